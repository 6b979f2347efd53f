"""What a program's steps are made of. A template looks at the pool and returns one line of Python,
or raises Skip. `data`, `read` and `sync` are defined where the line runs; see runner.py."""

import dataclasses

import torch

from ..pool import EXACT, FLOATS, INTS

TEMPLATES = []


@dataclasses.dataclass
class Step:
    text: str
    writes: tuple = ()  # names whose storages change
    mark: int = EXACT  # of what it makes and writes, at least
    overlap: bool = False  # writing the same place twice does not matter
    takes: dict = dataclasses.field(default_factory=dict)  # the highest mark that a name may have


def template(weight=1):
    def add(function):
        TEMPLATES.extend([function] * weight)
        return function

    return add


def is_float(t):
    return t.dtype in FLOATS


def is_int(t):
    return t.dtype in INTS


def is_bool(t):
    return t.dtype == torch.bool


def is_number(t):
    return t.dtype in FLOATS + INTS


def is_signed(t):
    return is_number(t) and t.dtype != torch.uint8


def is_arithmetic(t):
    return t.dtype != torch.bool


def nonempty(t):
    return t.numel() > 0


def has_dims(t):
    return t.dim() > 0


def rank(n):
    return lambda t: t.dim() == n


def like(other):
    return lambda t: t.dtype == other.dtype


def new(pool, expression, **kwargs):
    return Step(f"{pool.fresh()} = {expression}", **kwargs)


def name_of(dtype):
    return str(dtype)
