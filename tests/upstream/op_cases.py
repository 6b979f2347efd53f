"""The samples of PyTorch's op_db, and which of them have a value to compare."""

import re

import torch
from harness import first, full_name
from torch.testing._internal.common_methods_invocations import op_db

# Values that are not determined, or drawn at random; whether small floats that are too large are
# NaN is a matter of the CPU's make.
UNSETTLED = (
    "empty",
    "new_empty",
    "rand",
    "normal",
    "uniform",
    "cauchy",
    "log_normal",
    "_scaled_mm",
)
RANDOM = ("dropout", "bernoulli", "multinomial", "exponential", "geometric", "rrelu", "fractional")
COUNT = 2


def settled(op):
    """Whether equal arguments give equal results, on every device."""
    name = re.sub(r"^(nn\.functional|_refs|torch)\.", "", op.name)
    return not (
        name.startswith(UNSETTLED) or any(word in name for word in RANDOM) or "jiterator" in name
    )


OPS = [op for op in op_db if settled(op) and not op.is_factory_function]


def samples(op, dtype, count=COUNT, **options):
    """Yields [input, args, kwargs] and what makes a result unique, on the CPU."""
    torch.manual_seed(13)
    made = (without_dropout(op, one) for one in op.sample_inputs("cpu", dtype, **options))
    kept = (one for one in made if not one.kwargs.get("dropout_p"))
    for one in first(kept, count):
        # A device's name would stay as it is where a sample is copied.
        one.args = tuple(
            torch.device(x) if isinstance(x, str) and x == "cpu" else x for x in one.args
        )
        if "device" in one.kwargs:
            one.kwargs["device"] = torch.device(one.kwargs["device"])
        yield [one.input, list(one.args), one.kwargs], one.output_process_fn_grad


def without_dropout(op, sample):
    """Attention takes the share of what is dropped by its place."""
    if op.name == "nn.functional.multi_head_attention_forward":
        sample.args = (*sample.args[:9], 0.0, *sample.args[10:])
    return sample


def call(op, sample, **more):
    x, args, kwargs = sample
    return op(x, *args, **kwargs, **more)


__all__ = ["OPS", "call", "full_name", "samples"]
