"""Makes a failing program small, and a script of it."""

import re

from .runner import check, make_data, run


def shrink(lines, marks, mode, salt):
    """Deletes lines as long as the program fails in this mode."""

    def fails(kept):
        return check(kept, marks, (mode,), salt) is not None

    size = max(1, len(lines) // 2)
    while size:
        at = len(lines)
        while at > 0:
            kept = lines[: max(0, at - size)] + lines[at:]
            if kept != lines and fails(kept):
                lines = kept
            at -= size
        size //= 2
    while True:  # what is left of lines whose tensors are gone
        errors = run(lines, "cpu", salt=salt).errors
        kept = [x for x, e in zip(lines, errors, strict=True) if not isinstance(e, NameError)]
        if len(kept) == len(lines) or not fails(kept):
            return lines
        lines = kept


SCRIPT = """\
import copy

import torch


def program(device):
    names = {{"read": lambda t: round(t.item()), "sync": lambda: None}}
    names |= {{"torch": torch, "copy": copy, "device": device}}
    names |= {{"nan": float("nan"), "inf": float("inf")}}
    for line in LINES:
        try:
            exec(line, names)
        except Exception as error:
            print(device, "raised", repr(error))
    return {{k: v for k, v in names.items() if isinstance(v, torch.Tensor)}}


LINES = {lines}
torch.tpu.eager_mode = "{mode}"
expected, actual = program("cpu"), program("tpu")
for name, tensor in expected.items():
    for device, t in ("tpu", actual[name]), ("cpu", tensor):
        print(name, "on", device, t.shape, t.tolist())
"""


def script(lines, mode, salt):
    """A Python script that shows the failure and needs nothing but PyTorch."""

    def literal(match):
        key, shape, dtype = match.groups()
        names = {"torch": __import__("torch")}
        shape = eval(shape)
        values = make_data(int(key), shape, eval(dtype, names), salt)
        text = f"torch.tensor({values.reshape(-1).tolist()}, dtype={dtype}, device=device)"
        return text if len(shape) == 1 else f"{text}.reshape({shape})"

    plain = [re.sub(r"data\((\d+), (\([^)]*\)), ([\w.]+)\)", literal, line) for line in lines]
    body = "[\n" + "".join(f"    {line!r},\n" for line in plain) + "]"
    return SCRIPT.format(lines=body, mode="fused" if mode == "mixed" else mode)
