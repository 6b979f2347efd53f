"""Programs in `torch.compiler.save_cache_artifacts`, from where another process loads them.

PyTorch asks each cache to record what it wrote. A program is written by a compiler that nobody
waits for, so what is recorded is a promise: the files are read when the artifacts are saved.
"""

import io
import itertools
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

KIND = "tpu_programs"

_began = int(time.time())
_numbers = itertools.count()
_saved: set[str] = set()


@CacheArtifactFactory.register
class Programs(CacheArtifact):
    """The programs of the user's folder that were used since Dynamo was imported.

    Those that were saved before are left out. `content` is a zip archive of the folder's files.
    """

    def __init__(self, key: str, content: bytes) -> None:
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_given", content)

    @property
    def content(self) -> bytes:  # type: ignore[override]
        """What was given, else what is in the folder now."""
        return getattr(self, "_given", b"") or _pack()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Programs) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def populate_cache(self) -> None:
        """Makes the programs ready here: copied, or compiled where they are another machine's."""
        from torch_tpu import _cache

        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
                for name in archive.namelist():
                    Path(folder, Path(name).name).write_bytes(archive.read(name))
            opened = _cache.open_folder(Path(folder), readonly=True)
            for name, _ in _cache.entries_of(opened) if opened else ():
                _cache.outcome(opened.warm, name)  # type: ignore[union-attr]

    @staticmethod
    def type() -> str:
        """The name that PyTorch knows these artifacts by."""
        return KIND


def record() -> None:
    """Has the next saving contain what is compiled from now on: one promise for all of it."""
    if not CacheArtifactManager._new_cache_artifacts.get(KIND):
        CacheArtifactManager.record_artifact(KIND, str(next(_numbers)), b"")


def _pack() -> bytes:
    from torch_tpu import _cache

    data = io.BytesIO()
    opened: Any = _cache.open_folder(None, readonly=True)
    with zipfile.ZipFile(data, "w") as archive:
        for used, name, _ in opened.entries() if opened else ():
            if used >= _began and name.endswith(_cache.PROGRAM) and name not in _saved:
                archive.write(Path(_cache.read_settings().dir, name), name)
                _saved.add(name)
    return data.getvalue()
