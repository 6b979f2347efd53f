"""The tensors of a program under construction, and the random choices made over them."""

import itertools

import torch

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTS = (torch.int64, torch.int32, torch.int16, torch.uint8)
# Integers up to here are exact in every intermediate result of the operators that count as exact.
LIMITS = {torch.bfloat16: 60, torch.float16: 250, torch.uint8: 255}
EXACT, LOOSE, RAW = range(3)  # order-exact; rounded somewhere; arbitrary bits, only to be moved
LARGEST = 160  # elements of a tensor


class Skip(Exception):
    """The template has nothing to do with the tensors that are there."""


def span(tensor):
    """Returns the bytes of the storage that each element of a tensor starts at."""
    steps = [range(size) for size in tensor.shape]
    places = (
        sum(i * s for i, s in zip(index, tensor.stride(), strict=True))
        for index in itertools.product(*steps)
    )
    return [(place + tensor.storage_offset()) * tensor.itemsize for place in places]


def overlaps(tensor):
    places = span(tensor)
    return len(set(places)) != len(places)


def shares(a, b):
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def interferes(target, source):
    """Tells if writing `target` while `source` is read has no defined result."""
    if not shares(target, source):
        return False
    a, b = span(target), span(source)
    if a == b and target.dtype == source.dtype:
        return False
    width = max(target.itemsize, source.itemsize)
    return any(abs(x - y) < width for x in a for y in set(b))


def numel_of(*tensors):
    try:
        return torch.broadcast_shapes(*(t.shape for t in tensors)).numel()
    except RuntimeError:
        return None


class Palette:
    """The few shapes, dtypes and constants that an epoch of programs shares, so that most of its
    operators have been compiled before."""

    SHAPES = (
        *((), (1,), (3,), (4,), (5,), (0,)),
        *((2, 3), (3, 4), (4, 4), (4, 1), (1, 3), (2, 0), (3, 3)),
        *((2, 3, 4), (2, 2, 2), (3, 1, 2), (1, 4, 3), (2, 1, 3, 2), (2, 2, 2, 2)),
    )
    DTYPES = (torch.float32,) * 6 + (torch.int64,) * 3 + (torch.bool,) * 2 + (torch.int32,) * 2
    RARE = (torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.uint8, torch.int16)

    def __init__(self, rng, templates):
        self.rng = rng
        self.shapes = rng.sample(self.SHAPES, 3)
        self.dtypes = [rng.choice(self.DTYPES), rng.choice(self.DTYPES + self.RARE * 2)]
        self.templates = rng.sample(templates, len(templates) // 4)
        self.chosen = {}

    def options(self, kind, options):
        """Two of the options, always the same ones in an epoch."""
        if kind not in self.chosen:
            options = list(options)
            self.chosen[kind] = self.rng.sample(options, min(2, len(options)))
        return self.chosen[kind]


class Pool:
    """What a template works with: named tensors on the CPU, and choices."""

    def __init__(self, rng, palette):
        self.rng, self.palette = rng, palette
        self.names, self.marks, self.count, self.taken = {}, {}, 0, {}

    def __getitem__(self, name):
        return self.names[name]

    def fresh(self):
        self.count += 1
        return f"v{self.count}"

    def chance(self, probability):
        return self.rng.random() < probability

    def choice(self, options):
        options = list(options)
        if not options:
            raise Skip
        return self.rng.choice(options)

    def pick(self, kind, *options):
        """One of the options, of which an epoch uses two."""
        return self.rng.choice(self.palette.options(kind, options))

    def mark(self, name):
        return self.marks.get(self[name].untyped_storage()._cdata, EXACT)

    def tensor(self, *wanted, mark=EXACT):
        """A tensor for which all conditions hold, with no more than this mark."""
        fitting = [
            name
            for name, tensor in self.names.items()
            if self.mark(name) <= mark and all(condition(tensor) for condition in wanted)
        ]
        # Lately made ones are likelier, so that programs are deep and not only wide.
        name = self.choice(fitting + fitting[-3:])
        self.taken[name] = min(mark, self.taken.get(name, RAW))
        return name

    def partner(self, name, *wanted, mark=EXACT):
        """A tensor that broadcasts with the named one to a size that is not too large."""
        a = self[name]
        return self.tensor(lambda t: (numel_of(a, t) or 1e9) <= LARGEST, *wanted, mark=mark)

    def dim(self, name):
        rank = self[name].dim()
        if rank == 0:
            raise Skip
        dim = self.rng.randrange(rank)
        return dim - rank if self.chance(0.2) else dim

    def number(self, name):
        """A small constant that does not change the dtype of what it meets."""
        dtype = self[name].dtype
        if dtype == torch.bool:
            return self.pick("bool", True, False)
        if dtype == torch.uint8:
            return self.pick("unsigned", 0, 1, 2, 3)
        if dtype in FLOATS and self.chance(0.3):
            return self.pick("float", -2.0, 3.0, 1.0, 0.0)
        return self.pick("int", 0, 1, 2, -1, 3, -3)
