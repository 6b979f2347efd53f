"""PyTorch's hash of its own sources, which is part of the key of each graph that it caches.

To read and hash them takes 0.2 s in each process that compiles. So the hash is kept in the folder
of cached graphs, as long as all files are those that were hashed, by size, times and place.
"""

import contextlib
import hashlib
import os
import tempfile
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

import torch

NAME = "tpu_torch_key"
SIZE = hashlib.sha256().digest_size  # of both parts of the file
_OTHERS = frozenset(("__pycache__", "bin", "include", "lib", "share"))

_done = False


def recall() -> None:
    """Has PyTorch know the hash of its sources; only the first call does anything."""
    global _done
    if _done:
        return
    _done = True
    from torch._inductor import codecache
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    key: Any = codecache.torch_key
    path = Path(cache_dir(), NAME)
    files = fingerprint(Path(torch.__file__).parent)
    kept = path.read_bytes() if path.exists() else b""
    if kept[:SIZE] != files or len(kept) != 2 * SIZE:
        _write(path, files + key())
        return
    with contextlib.suppress(RuntimeError):  # it was computed already
        key.set(kept[SIZE:])


def fingerprint(root: Path) -> bytes:
    """Tells whether any module under a folder may have changed."""
    suffixes, folders, found = tuple(all_suffixes()), [str(root)], []
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(suffixes):
                    one = entry.stat()
                    times = (one.st_mtime_ns, one.st_ctime_ns)
                    found.append((entry.path, one.st_ino, one.st_size, *times))
                elif entry.name not in _OTHERS and entry.is_dir():
                    folders.append(entry.path)
    return hashlib.sha256(repr((torch.__version__, sorted(found))).encode()).digest()


def _write(path: Path, content: bytes) -> None:
    """Whoever reads meanwhile sees all of it, or what was there. A folder may be read-only."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
