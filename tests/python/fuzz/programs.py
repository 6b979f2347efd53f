"""Makes random programs: lines of Python that all ran on the CPU as they were chosen."""

import dataclasses
import random
import re

import torch

from . import templates
from .pool import EXACT, FLOATS, INTS, LIMITS, LOOSE, RAW, Palette, Pool, Skip, interferes, overlaps
from .runner import namespace

EPOCH = 40  # programs that share a palette
FAMILY = 4  # programs of much the same steps
NAME = re.compile(r"\bv\d+\b")
# A loop repeats in-place steps on tensors that keep their sizes.
REPEATABLE = [
    t
    for t in templates.TEMPLATES
    if t.__name__.startswith("write_") and t.__name__[6:] not in ("shape", "resize", "set", "out")
] + [templates.foreach, templates.index_write, templates.scatter_write]


@dataclasses.dataclass
class Program:
    seed: int
    lines: list
    marks: dict  # name -> mark, at the end


def program(seed, epoch=EPOCH):
    """The program of a seed: the first of its family, or a mutation of that one."""
    first = seed - seed % FAMILY
    palette = Palette(random.Random(f"epoch {seed // epoch}"), templates.TEMPLATES)
    builder = Builder(random.Random(first), palette)
    builder.build()
    if seed != first:
        steps, builder = builder.steps, Builder(random.Random(seed), palette)
        builder.mutate(steps)
    pool = builder.pool
    return Program(seed, builder.lines, {name: pool.mark(name) for name in pool.names})


class Builder:
    def __init__(self, rng, palette):
        self.pool = Pool(rng, palette)
        self.env = namespace("cpu", 0)
        self.steps, self.lines = [], []

    def build(self):
        for _ in range(2):
            self.add(templates.make)
        length, tries = self.pool.rng.randint(5, 16), 0
        while len(self.lines) < length and tries < 200:
            tries += 1
            if self.pool.chance(0.05):
                self.add_loop()
            else:
                self.add(self.pool.choice(self.pool.palette.templates))
            if len(self.pool.names) < 2:
                self.add(templates.make)

    def mutate(self, steps):
        """The same steps: some left out, some twice, some a little later."""
        later = []
        for step in steps:
            kind = self.pool.rng.random()
            if kind < 0.1:
                continue
            if kind < 0.2:
                later.append(step)
                continue
            self.execute(step)
            if kind < 0.35:
                self.execute(step)
            if later and kind > 0.6:
                self.execute(later.pop())

    def add(self, make):
        self.pool.taken = {}
        try:
            step = make(self.pool)
        except Skip:
            return
        step.takes = self.pool.taken
        self.execute(step)

    def add_loop(self):
        """A few in-place steps, several times; more often than a chunk is long, sometimes."""
        pool, steps = self.pool, []
        pool.taken = {}
        for _ in range(pool.rng.randint(1, 3)):
            try:
                steps.append(pool.choice(REPEATABLE)(pool))
            except Skip:
                continue
        writes = tuple(dict.fromkeys(name for step in steps for name in step.writes))
        if not steps:
            return
        body = [step.text for step in steps] + [
            f"{name}.clamp_(-9, 9)"
            for name in writes
            if pool.mark(name) < RAW and pool[name].dtype in FLOATS + INTS[:3]
        ]
        text = f"for _ in range({pool.rng.choice([2, 3, 3, 5, 40, 90])}): {'; '.join(body)}"
        self.execute(templates.Step(text, writes, max(s.mark for s in steps), takes=pool.taken))

    def defined(self, step):
        """Tells if PyTorch says what the step does with the tensors as they are now."""
        pool, used = self.pool, set(NAME.findall(step.text)) & self.pool.names.keys()
        if any(pool.mark(name) > step.takes.get(name, RAW) for name in used):
            return False
        if step.overlap:
            return True
        targets = used & set(step.writes)
        return not any(overlaps(pool[a]) for a in targets) and not any(
            interferes(pool[a], pool[b]) for a in targets for b in used - {a}
        )

    def execute(self, step):
        pool, old = self.pool, dict(self.pool.names)
        if not self.defined(step):
            return
        held = [t.untyped_storage() for t in old.values()]  # so that no address comes twice
        known = {storage._cdata for storage in held}
        mark = max([step.mark, *(pool.mark(n) for n in NAME.findall(step.text) if n in old)])
        try:
            exec(step.text, self.env)
        except Exception as error:
            wrong = isinstance(error, NameError | IndexError) or "index" in str(error)
            if not wrong and ";" not in step.text and pool.chance(0.15):
                self.keep(step, "")
            return
        pool.names = {
            name: value
            for name, value in self.env.items()
            if NAME.fullmatch(name) and isinstance(value, torch.Tensor)
        }
        touched = {t.untyped_storage()._cdata for n, t in pool.names.items() if t is not old.get(n)}
        touched |= {pool[n].untyped_storage()._cdata for n in step.writes if n in pool.names}
        for place in touched:
            fresh = EXACT if place not in known else pool.marks.get(place, EXACT)
            pool.marks[place] = max(mark, fresh)
        live = {t.untyped_storage()._cdata for t in pool.names.values()}
        pool.marks = {place: value for place, value in pool.marks.items() if place in live}
        self.keep(step, self.tame(touched))

    def keep(self, step, more):
        self.steps.append(step)
        self.lines.append(step.text + more)

    def tame(self, touched):
        """Keeps numbers small, so that exact ones stay exact. Returns the text that does it."""
        pool, text = self.pool, ""
        for name, tensor in list(pool.names.items()):
            if tensor.untyped_storage()._cdata not in touched or pool.mark(name) == RAW:
                continue
            more = taming(name, tensor)
            if more:
                text += "; " + more
                exec(more, self.env)
            if more and more.startswith("del"):
                del pool.names[name]
            elif pool.mark(name) == EXACT and not is_whole(tensor):
                pool.marks[tensor.untyped_storage()._cdata] = LOOSE
        return text


def taming(name, tensor):
    if tensor.requires_grad or tensor.dim() > 5 or tensor.numel() > 400:
        return f"del {name}"
    if tensor.numel() == 0 or not (tensor.is_complex() or tensor.dtype in FLOATS + INTS[:3]):
        return None
    if float(tensor.abs().max()) <= LIMITS.get(tensor.dtype, 1000):
        return None
    if overlaps(tensor):
        return f"del {name}"
    return f"{name}.fill_(1)" if tensor.is_complex() else f"{name}.clamp_(-9, 9)"


def is_whole(tensor):
    if tensor.is_complex():
        return is_whole(torch.view_as_real(tensor.resolve_conj()))
    return tensor.dtype not in FLOATS or bool((tensor == tensor.round()).all())
