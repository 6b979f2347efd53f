"""Calls back when a module has been imported."""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Callback = Callable[[str], None]


class Watcher(importlib.abc.MetaPathFinder):
    """Watches for modules by name, and finds none itself.

    The other finders find them; a watched one's loader calls `imported(name)` when the module is
    complete. Watching costs a look into a dictionary for each module that is imported later.
    """

    def __init__(self, imported: Callback) -> None:
        self._imported = imported
        self._names: set[str] = set()

    def watch(self, names: Sequence[str]) -> None:
        """Watches for these; those that are there already are called back about at once."""
        there = [name for name in names if is_complete(name)]
        self._names.update(set(names) - set(there))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for name in there:
            self._imported(name)

    def stop(self) -> None:
        """Watches no more."""
        self._names.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders find, where the module is watched for."""
        if fullname not in self._names:
            return None
        self._names.discard(fullname)
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                self._call_back_after(spec.loader)
                return spec
        return None

    def _call_back_after(self, loader: importlib.abc.Loader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._imported(module.__name__)

        loader.exec_module = exec_module  # type: ignore[method-assign]


def is_complete(name: str) -> bool:
    """Whether a module has been imported to its end."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


def replace(library: str, name: str, original: object, new: object) -> None:
    """Binds `name` anew wherever a loaded module of `library` has bound it to `original`."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] == library and vars(module).get(name) is original:
            setattr(module, name, new)
