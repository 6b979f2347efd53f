"""`torch.tpu.FloatTensor` and the like: constructors of older scripts, as `torch.cuda` has them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class TensorType(type):
    """The type of tensors of one dtype on this device, which is called to make one.

    Names, dtypes and arguments are those of `torch.FloatTensor` and its kin.
    """

    dtype: torch.dtype
    is_cuda = False
    is_sparse = False
    is_tpu = True
    layout = torch.strided

    def __call__(cls, *args: Any, device: torch.device | str | int = "tpu") -> Tensor:
        """Makes a tensor of given sizes that holds anything, or of a sequence's or array's numbers.

        A tensor of this very type is returned as another that shares its storage. Raises TypeError
        for arguments that `torch.FloatTensor` refuses, and for tensors of other types.
        """
        if len(args) == 1 and isinstance(args[0], Tensor):
            if not isinstance(args[0], cls):
                raise TypeError(f"expected {cls.__name__} (got {args[0].type()})")
            return args[0].detach()
        sizes = args[0] if len(args) == 1 and isinstance(args[0], torch.Size) else args or (0,)
        if all(isinstance(size, int) for size in sizes):
            return torch.empty(sizes, dtype=cls.dtype, device=device)
        return _of_the_cpu(cls)(*args).to(device)

    def __instancecheck__(cls, instance: object) -> bool:
        """Whether it is a tensor of this dtype on this device."""
        if not isinstance(instance, Tensor) or instance.layout != cls.layout:
            return False
        return instance.device.type == "tpu" and instance.dtype == cls.dtype

    def __repr__(cls) -> str:
        return f"<class '{cls.__name__}'>"


def _of_the_cpu(kind: TensorType) -> Callable[..., Tensor]:
    made: Callable[..., Tensor] = getattr(torch, kind.__name__.rpartition(".")[2])
    return made


def _make(word: str, dtype: torch.dtype) -> TensorType:
    # `Tensor.type()` reads the whole name, with its dots.
    return TensorType(f"torch.tpu.{word}Tensor", (), {"__slots__": (), "dtype": dtype})


BFloat16Tensor = _make("BFloat16", torch.bfloat16)
BoolTensor = _make("Bool", torch.bool)
ByteTensor = _make("Byte", torch.uint8)
CharTensor = _make("Char", torch.int8)
DoubleTensor = _make("Double", torch.float64)
FloatTensor = _make("Float", torch.float32)
HalfTensor = _make("Half", torch.float16)
IntTensor = _make("Int", torch.int32)
LongTensor = _make("Long", torch.int64)
ShortTensor = _make("Short", torch.int16)
