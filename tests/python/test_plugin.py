"""Loading: missing and broken plugins, other backends, and `import torch` that never fails."""

import os
import sys
from importlib import metadata

import pytest
from support import only_tpu, python, slow_but

from torch_tpu import _plugins

pytestmark = only_tpu

USE = """
import torch
try:
    torch.ones(2, device="tpu").cpu()
    print("worked")
except Exception as error:
    print(type(error).__name__, "|", error)
print(torch.tpu.is_available(), torch.tpu.device_count(), torch.ones(2).sum().item())
"""


@pytest.mark.parametrize("kind", ["missing", "text", "no symbol"])
def test_a_plugin_that_cannot_be_used(kind, tmp_path):
    path = tmp_path / "plugin.so"
    if kind == "text":
        path.write_text("this is no library")
    elif kind == "no symbol":
        import _bisect

        path = getattr(_bisect, "__file__", None) or sys.modules["_ctypes"].__file__
    status, out, errors = python(USE, TORCH_TPU_PLUGIN=str(path))
    assert status == 0, errors
    failure, state = out.strip().splitlines()
    assert failure.startswith("RuntimeError |") and str(path) in failure
    assert state == "False 0 2.0"


def test_an_unknown_name():
    status, out, errors = python(USE, TORCH_TPU_PLUGIN="gpu9000")
    assert status == 0, errors
    assert out.startswith("RuntimeError |") and "gpu9000" in out


@pytest.mark.parametrize(
    "chips, variables, count",
    [
        (["0x0063"] * 4, {}, 4),
        (["0x0063"] * 4, {"TPU_VISIBLE_CHIPS": "2"}, 1),
        (["0x0027"] * 4, {}, 8),
        (["0x1234"], {}, -1),
    ],
    ids=["v5e", "one of them", "v3", "no TPU"],
)
def test_chips_are_counted_without_opening_them(chips, variables, count, monkeypatch, tmp_path):
    for number, chip in enumerate(chips):
        folder = tmp_path / f"0000:00:{number:02}.0"
        folder.mkdir()
        (folder / "vendor").write_text("0x1ae0\n")
        (folder / "device").write_text(f"{chip}\n")
    monkeypatch.setattr(_plugins, "_PCI", tmp_path)
    monkeypatch.setattr(_plugins, "_find", lambda name: "libtpu.so")
    for name in ("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert _plugins.expected_devices("tpu", 0) == count


def test_gpus_are_counted_without_opening_them(monkeypatch, tmp_path):
    monkeypatch.setattr(_plugins, "_NVIDIA", tmp_path)
    monkeypatch.setattr(_plugins, "_find", lambda name: "cuda.so")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert _plugins.expected_devices("cuda", 0) == -1
    (tmp_path / "0000:01:00.0").mkdir()
    assert _plugins.expected_devices("cuda", 0) == 1
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3,5")
    assert _plugins.expected_devices("cuda", 0) == 3


def test_named_plugin():
    status, out, errors = python(USE, TORCH_TPU_PLUGIN="cpu")
    assert status == 0, errors
    assert out.splitlines()[0] == "worked"


def test_virtual_devices():
    code = """
import torch
x = torch.arange(3.0, device="tpu:1")
print(torch.tpu.device_count(), x.device, (x * 2).cpu().tolist(), x.to("tpu:0").device)
with torch.tpu.device(1):
    print(torch.ones(1, device="tpu").device)
"""
    status, out, errors = python(code, TORCH_TPU_PLUGIN="cpu", TORCH_TPU_CPU_DEVICES="2")
    assert status == 0, errors
    assert out.split("\n")[:2] == ["2 tpu:1 [0.0, 2.0, 4.0] tpu:0", "tpu:1"]


def test_choosing_a_plugin_in_python():
    code = """
import torch
torch.tpu.set_plugin("/nowhere/plugin.so")
try:
    torch.ones(1, device="tpu")
except RuntimeError as error:
    print("nowhere" in str(error))
"""
    status, out, errors = python(code)
    assert status == 0 and out.strip() == "True", errors


def test_a_plugin_cannot_be_changed_once_open():
    code = """
import torch
torch.ones(1, device="tpu")
try:
    torch.tpu.set_plugin("cpu")
except RuntimeError as error:
    print("refused")
"""
    status, out, errors = python(code)
    assert status == 0 and out.strip() == "refused", errors


@pytest.mark.slow
def test_nothing_is_opened_by_importing():
    code = "import torch; print(torch.tpu.is_initialized())"
    status, out, errors = python(code, fresh=True)
    assert status == 0 and out.strip() == "False", errors


def test_the_first_operators_do_not_import_dynamo():
    code = """
import sys, torch
x = torch.rand(2, 3, 8, 8, device="tpu", requires_grad=True)
layer = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.GELU())
y = torch.where(layer.to("tpu")(x) > 0, x[..., 1:7, 1:7].mean(1, keepdim=True) * 2, 1.5)
(y.exp().clamp(max=3) - torch.atan2(y, y + 1)).sum().backward()
print(x.grad.isfinite().all().item(), "torch._dynamo" in sys.modules)
import torch._dynamo
torch._refs.add(y, y), torch._refs.mul(y, y)
inner = torch._refs.add.__wrapped__.__wrapped__
print(inner.__dynamo_disable.__module__)
"""
    status, out, errors = python(code, fresh=True)
    assert status == 0 and out.split() == ["True", "False", "torch._dynamo.eval_frame"], (
        out + errors
    )


def test_autoload_can_be_turned_off():
    code = """
import torch
print(hasattr(torch, "tpu"))
import torch_tpu
print(torch.ones(2, device="tpu").sum().item())
"""
    status, out, errors = python(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert status == 0 and out.split() == ["False", "2.0"], errors


GPU = """
import os, torch
torch.backends.cuda.is_built = lambda: True
exists = os.path.exists
os.path.exists = lambda file: file == "/dev/nvidiactl" or exists(file)
torch.__spec__._initializing = True  # as it is when PyTorch calls that
torch._import_device_backends()
torch.__spec__._initializing = False
print(torch._C._get_privateuse1_backend_name())
import torch_tpu
print(torch.ones(2, device="tpu").sum().item())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment, name",
    [
        ({}, "privateuseone"),
        pytest.param({"TORCH_TPU_PLUGIN": "cpu"}, "tpu", marks=pytest.mark.slow),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, "tpu", marks=pytest.mark.slow),
    ],
)
def test_a_gpu_of_pytorch_s_own_is_left_alone(environment, name):
    """PyTorch's autograd fails on the GPU as soon as another device is registered."""
    without = {"TORCH_TPU_PLUGIN": "", "CUDA_VISIBLE_DEVICES": "0"}
    without["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    status, out, errors = python(GPU, fresh=True, **(without | environment))
    assert status == 0 and out.split() == [name, "2.0"], errors
    assert not errors


@pytest.mark.parametrize(
    "order", slow_but(["torch, torch_tpu", "torch_tpu, torch"], "torch_tpu, torch")
)
def test_import_order(order):
    code = f"import {order}; print(torch_tpu.get_device(), torch.tpu.is_available())"
    status, out, errors = python(code, fresh=True)
    assert status == 0 and out.split() == ["tpu:0", "True"], errors
    assert "Warning" not in errors


def test_import_is_cheap():
    code = """
import sys, torch
from torch_tpu import _autoload
heavy = [name for name in ("rich", "matplotlib", "typer", "jax") if name in sys.modules]
print(heavy)
"""
    status, out, errors = python(code, fresh=True)
    assert status == 0 and out.strip() == "[]", errors


def test_the_cpu_plugin_is_a_dependency():
    assert any(one.startswith("lammps-jax-pjrt-cpu") for one in metadata.requires("torchtpu"))


@pytest.mark.slow
def test_another_distribution_is_left_alone(tmp_path):
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    harmless = "torch_tpu._autoload:_check_version"
    (info / "entry_points.txt").write_text(f"[torch.backends]\ntorch_tpu = {harmless}\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = "import torch; print(hasattr(torch, 'tpu'), torch.ones(2).sum().item())"
    status, out, errors = python(code, fresh=True, PYTHONPATH=path)
    assert status == 0 and out.split() == ["False", "2.0"], errors
    assert "another distribution" in errors and "pip uninstall" in errors


@pytest.mark.slow
def test_another_backend_of_the_name_is_left_alone():
    code = """
import types, torch
torch.utils.rename_privateuse1_backend("tpu")
other = types.ModuleType("torch.tpu")
torch._register_device_module("tpu", other)
try:
    import torch_tpu
except ImportError as error:
    print(torch.tpu is other, error)
"""
    status, out, errors = python(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert status == 0 and out.startswith("True torchtpu: no device 'tpu': another backend"), errors


@pytest.mark.slow
def test_an_unsupported_pytorch_is_refused():
    code = """
import warnings
import torch
torch.__version__ = "2.99.0"
try:
    import torch_tpu
except ImportError as error:
    print(error)
"""
    status, out, errors = python(code, fresh=True, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert status == 0 and "2.99.0 is not supported" in out, errors


def test_the_process_ends_in_peace():
    code = """
import torch
x = torch.rand(512, 512, device="tpu", requires_grad=True)
kept = [(x @ x).relu() for _ in range(4)]
kept[0].sum().backward()
"""
    status, _, errors = python(code, fresh=True)
    assert status == 0 and not errors.strip(), errors
