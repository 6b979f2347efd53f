"""Libraries that take `tpu` by themselves: when they are changed, and when they are left alone.

The libraries here are tiny ones of the same shape; tests/ecosystem runs the real ones.
"""

import json
import sys

import pytest
import torch
from support import DEVICE, only_tpu, python, slow_but

from torch_tpu.integrations._imports import Watcher, is_complete, replace

pytestmark = only_tpu

LIBRARY = {
    "peft/__init__.py": "from .utils.other import infer_device\nfrom . import peft_model",
    "peft/utils/__init__.py": "from .other import infer_device",
    "peft/utils/other.py": "import torch\ndef infer_device():\n    return 'cpu'",
    "peft/peft_model.py": "from .utils import infer_device\ndef where():\n"
    "    return infer_device()",
}


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def run(tmp_path, code, files=LIBRARY, **environment):
    where = write(tmp_path, files)
    code = f"import sys\nsys.path.insert(0, {where!r})\n{code}"
    status, out, errors = python(code, fresh=True, **environment)
    assert status == 0, errors
    return out.split(), errors


SHOW = "print(peft.infer_device(), peft.peft_model.where(), peft.utils.infer_device())"


@pytest.mark.parametrize("order", slow_but(["import torch, peft", "import peft, torch"]))
def test_a_library_is_changed_wherever_it_bound_the_name(tmp_path, order):
    out, errors = run(tmp_path, f"{order}\n{SHOW}")
    assert out == ["tpu:0"] * 3 and errors == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "found"), [("off", "cpu"), ("safetensors", "cpu"), ("accelerate,peft", "tpu:0")]
)
def test_the_switch(tmp_path, setting, found):
    out, _ = run(tmp_path, f"import peft\n{SHOW}", TORCH_TPU_INTEGRATIONS=setting)
    assert out == [found] * 3


@pytest.mark.slow
def test_switches_in_python(tmp_path):
    code = """
import torch
from torch_tpu.integrations import disable, integrations
disable("peft")
import peft
try: disable("numpy")
except ValueError as error: assert "'numpy' is none of" in str(error)
else: raise AssertionError
print(peft.infer_device(), *[one.state for one in integrations() if one.library == "peft"])
"""
    assert run(tmp_path, code)[0] == ["cpu", "off"]


@pytest.mark.slow
def test_a_library_of_another_shape_is_a_warning(tmp_path):
    files = {
        **LIBRARY,
        "peft/__init__.py": "from . import peft_model",
        "peft/peft_model.py": "import torch",
        "peft/utils/__init__.py": "",
    }
    code = """
import warnings, torch
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import peft
[told] = [str(one.message) for one in seen if "peft" in str(one.message)]
assert "0.21" in told and "TORCH_TPU_INTEGRATIONS" in told, told
from torch_tpu.integrations import integrations
[one] = [one for one in integrations() if one.library == "peft"]
print(one.state, peft.peft_model.__name__)
"""
    assert run(tmp_path, code, files)[0] == ["failed", "peft.peft_model"]


@pytest.mark.slow
def test_what_is_not_imported_is_not_loaded():
    code = """
import sys, torch
print([name for name in sys.modules if name.startswith("torch_tpu.integrations.")])
"""
    status, out, errors = python(code, fresh=True)
    assert status == 0 and out.strip() == "['torch_tpu.integrations._imports']", out + errors


@pytest.mark.slow
def test_an_unknown_name_is_told():
    status, out, errors = python(
        "import torch\nprint(torch.ones(1).item())", fresh=True, TORCH_TPU_INTEGRATIONS="numpy"
    )
    assert (status, out.strip()) == (0, "1.0")
    assert "TORCH_TPU_INTEGRATIONS: numpy: expected on, off" in errors


def test_the_list():
    code = "import sys; sys.argv = ['', 'integrations', '--json']\n"
    code += "import runpy; runpy.run_module('torch_tpu', run_name='__main__')"
    status, out, errors = python(code)
    rows = {row["library"]: row for row in json.loads(out)}
    assert status == 0, errors
    assert {"accelerate", "peft", "transformers"} <= set(rows)
    assert all(row["state"] == "on" and row["tested"] for row in rows.values())
    assert all(row["without it"].endswith(".") for row in rows.values())


def test_a_watched_module_is_complete(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(
        write(tmp_path, {"watched_a.py": "x = 1\ny = 2", "watched_b.py": "from watched_a import x"})
    )
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    seen = []
    watcher = Watcher(lambda name: seen.append((name, sys.modules[name].y, is_complete(name))))
    watcher.watch(["watched_a", "watched_never"])
    import watched_b

    assert seen == [("watched_a", 2, False)]
    assert watched_b.x == 1 and sys.modules["watched_a"].__loader__.get_source("watched_a")
    Watcher(lambda name: seen.append(name)).watch(["watched_a"])
    assert seen[1:] == ["watched_a"]
    original, new = object(), object()
    sys.modules["watched_a"].z, watched_b.z = original, 3
    replace("watched_a", "z", original, new)
    assert sys.modules["watched_a"].z is new and watched_b.z == 3
    for name in ("watched_a", "watched_b"):
        del sys.modules[name]


def test_kernels_for_weights_of_few_bits():
    from torch_tpu.integrations import bitsandbytes as bnb

    codes = torch.arange(200, dtype=torch.uint8).view(10, 20)
    table, scales = torch.linspace(-1, 1, 256), torch.tensor([1.0, 2, 3, 5])
    x = torch.randint(-127, 128, (2, 3, 4096), dtype=torch.int8)
    operands = [
        (bnb.dequantize_blockwise, codes, scales, table, 64, torch.float16),  # the last block: 8
        (bnb.gemv_4bit, torch.ones(1, 19), codes, (19, 19), scales.repeat(2)[:6], table[:16], 64),
        (bnb.int8_linear_matmul, x, x.flatten(0, 1)),
    ]
    for kernel, *rest in operands:
        there = [one.to(DEVICE) if isinstance(one, torch.Tensor) else one for one in rest]
        torch.testing.assert_close(kernel(*there).cpu(), kernel(*rest))
    values = bnb.dequantize_blockwise(codes, scales, table, 64, torch.float32).flatten()
    assert torch.equal(values[128:192], table[128:192] * 3)
    four = bnb.gemv_4bit(torch.eye(2), codes.flatten()[16:18], (2, 2), scales[:1], table[:16], 64)
    assert torch.equal(four, table[torch.tensor([[1, 1], [0, 1]])])
    assert torch.equal(bnb.int8_linear_matmul(x, x[0]), (x.double() @ x[0].double().T).int())
