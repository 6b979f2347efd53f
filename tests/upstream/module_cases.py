"""The inputs of PyTorch's module_db, made into modules that draw no random numbers."""

import inspect

import torch
from harness import gradients
from torch.testing._internal.common_modules import module_db

QUICK = [torch.float32]
OTHERS = [torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128]


def cases(module_info, dtype, training=True):
    """Yields [module, args, kwargs] on the CPU for each input of the database."""
    torch.manual_seed(7)
    for case in module_info.module_inputs_func(
        module_info, device="cpu", dtype=dtype, requires_grad=True, training=training
    ):
        forward = case.forward_input
        if forward is not None:
            module = build(module_info.module_cls, case.constructor_input, dtype)
            initialise(module, forward)
            yield [module.train(training), forward.args, forward.kwargs]


def build(cls, inputs, dtype, device="cpu"):
    """Makes a module, on its device from the start if it takes one, without dropout."""
    places = {"device": device, "dtype": dtype} if takes_device(cls) else {}
    module = cls(*inputs.args, **{**places, **inputs.kwargs}).to(device, dtype)
    for part in module.modules():
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(getattr(part, "dropout", None), float):
            part.dropout = 0.0
    return module


def initialise(module, forward):
    """Lets a lazy module see its input once."""
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        with torch.no_grad():
            module(*forward.args, **forward.kwargs)


def takes(cls, name):
    return name in inspect.signature(cls.__init__).parameters


def takes_device(cls):
    return takes(cls, "device") or issubclass(cls, torch.nn.RNNBase)


def few(module_info, dtype, training=True, count=6):
    """Some of the cases, from the first to the last of them."""
    made = list(cases(module_info, dtype, training))
    return made[:: max(1, -(-len(made) // count))]


MAKE_ON_DEVICE = [info for info in module_db if takes_device(info.module_cls)]
IN_PLACE = [info for info in module_db if takes(info.module_cls, "inplace")]
ERRORS = [info for info in module_db if info.module_error_inputs_func]


def run(case):
    """One forward pass, gradients of the inputs and the parameters, and the buffers after it."""
    module, args, kwargs = case
    outputs = module(*args, **kwargs)
    return (
        outputs,
        gradients(outputs, [args, kwargs, dict(module.named_parameters())]),
        state(module),
    )


def state(module):
    return [dict(module.named_parameters()), dict(module.named_buffers())]
