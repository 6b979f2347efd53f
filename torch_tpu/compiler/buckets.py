"""The bounds that programs for sizes that vary are compiled for (docs/compile.md)."""

import bisect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

LEAST, FINE = 8, 512  # the smallest bound; above, there are halves between powers of two

_named: tuple[int, ...] | None = None  # None: the default; (): each size is a program


@contextmanager
def _as_before(before: tuple[int, ...] | None) -> Iterator[None]:
    global _named
    try:
        yield
    finally:
        _named = before


def choose(*sizes: int | None) -> AbstractContextManager[None]:
    """What `torch.tpu.compiler.buckets` does."""
    global _named
    before = _named
    if sizes == (None,):
        _named = ()
    elif any(not isinstance(one, int) or one < 2 for one in sizes):
        raise ValueError(f"buckets{sizes}: bounds are whole numbers from 2 on, or None alone")
    else:
        _named = tuple(sorted({one for one in sizes if one is not None})) or None
    return _as_before(before)


def bound_of(size: int, most: int | None = None) -> int | None:
    """What a size is given room for, `most` at most; None: it is a program of its own."""
    if _named is not None:
        at = bisect.bisect_left(_named, size)
        found = _named[at] if at < len(_named) else None
    else:
        found = max(LEAST, 1 << (size - 1).bit_length())
        if found > FINE and size <= found * 3 // 4:
            found = found * 3 // 4
    if found is not None and most is not None:
        found = min(found, most)
    return found


def are_named() -> bool:
    """Whether bounds were chosen."""
    return _named is not None
