"""Where PJRT plugins are: the names `cpu`, `tpu` and `cuda` stand for installed packages."""

import importlib
import importlib.util
import os
from pathlib import Path

_CPU_PACKAGE = "lammps_jax_pjrt_cpu"
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_GOOGLE_PCI_VENDOR = "0x1ae0"
# Devices of a chip, by the number that its bus has for it: of v2 and v3, and of v7x; of v4 (two
# kinds), v5p, v5e and v6e.
_DEVICES_OF_A_CHIP = {"0x0027": 2, "0x0076": 2} | dict.fromkeys(
    ("0x0056", "0x005e", "0x0062", "0x0063", "0x006f"), 1
)
# Plugins log at start-up on stderr unless these say otherwise.
_LOG_LEVELS = ("TF_CPP_MIN_LOG_LEVEL", "ABSL_MIN_LOG_LEVEL", "TPU_STDERR_LOG_LEVEL")


def resolve(name: str) -> str:
    """Returns the path of the plugin that `name` means; called once, before the plugin is opened.

    `name` is a path, `cpu`, `tpu`, `cuda`, or empty: then a TPU if libtpu is installed and one is
    there, else the CPU. Raises ImportError, saying what to install, for a name that is missing.
    """
    if "plugin" not in os.environ.get("TORCH_TPU_LOG", ""):
        for variable in _LOG_LEVELS:
            os.environ.setdefault(variable, "2")
    threads = _number(os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip())
    if threads and "NPROC" not in os.environ:
        os.environ.setdefault("PJRT_NPROC", str(threads))  # XLA's CPU client computes with so many
    return _find(name)


def expected_devices(name: str, cpu_devices: int) -> int:
    """Returns how many devices a plugin will have, if that is known without opening it; else -1.

    A plugin that is not there has none. torchrun counts so for `--nproc-per-node=auto`, and must
    not take the devices from the processes that it starts. name: as for resolve; cpu_devices: of
    the CPU plugin; 0: what the environment says.
    """
    try:
        path = _find(name)
    except ImportError:
        return 0
    if "/" in path and not os.path.exists(path):
        return 0
    if _chosen(name) == "cpu":
        return _cpu_devices(cpu_devices)
    counted = {"tpu": _tpu_devices, "cuda": _cuda_devices}.get(_chosen(name))
    return counted() if counted else -1


def may_span(name: str) -> bool:
    """Whether a plugin may have devices of several processes; name: as for resolve."""
    return _chosen(name) != "cpu"


def own_device(name: str) -> int:
    """Returns which of the host's devices a rank is to open; -1: all that it sees.

    Of GPUs each process sees all, unless its launcher says otherwise. name: as for resolve.
    """
    if _chosen(name) != "cuda" or _cuda_devices() < 2:
        return -1
    return int(os.environ.get("LOCAL_RANK", "-1"))


def _cpu_devices(asked: int) -> int:
    from torch_tpu import _env

    count = _number(str(asked or _env.value("CPU_DEVICES")))
    return count if 0 < count <= 127 else -1


def _number(text: str) -> int:
    """What decimal digits say; 0 for another text."""
    return int(text) if text.isascii() and text.isdigit() else 0


def _tpu_devices() -> int:
    chips = [
        _text(folder / "device")
        for folder in _PCI.glob("*")
        if _text(folder / "vendor") == _GOOGLE_PCI_VENDOR
    ]
    chips = [chip for chip in chips if chip in _DEVICES_OF_A_CHIP]
    if not chips:
        return -1
    visible = os.environ.get("TPU_VISIBLE_CHIPS") or os.environ.get("TPU_VISIBLE_DEVICES")
    count = len(visible.split(",")) if visible else len(chips)
    return count * _DEVICES_OF_A_CHIP[chips[0]]


def _cuda_devices() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([one for one in visible.split(",") if one and one != "-1"])
    return len(list(_NVIDIA.glob("*"))) or -1


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _chosen(name: str) -> str:
    return name or ("tpu" if _has_tpu() else "cpu")


def _find(name: str) -> str:
    name = _chosen(name)
    if name == "cpu":
        return _from_package(_CPU_PACKAGE, "PLUGIN_PATH", "lammps-jax-pjrt-cpu")
    if name == "tpu":
        return _from_package("libtpu", "get_library_path", "libtpu")
    if name == "cuda":
        return _cuda()
    return name


def _from_package(package: str, attribute: str, distribution: str) -> str:
    if importlib.util.find_spec(package) is None:
        raise ImportError(
            f"the PJRT plugin package {distribution} is not installed; run "
            f"`pip install --no-deps {distribution}`, or set TORCH_TPU_PLUGIN to a plugin's path"
        )
    value = getattr(importlib.import_module(package), attribute)
    return str(value() if callable(value) else value)


def _cuda() -> str:
    spec = importlib.util.find_spec("jax_plugins")
    for place in spec.submodule_search_locations or [] if spec else []:
        for library in sorted(Path(place).glob("xla_cuda*/xla_cuda_plugin.so")):
            return str(library)
    raise ImportError(
        "the PJRT plugin package jax-cuda13-pjrt is not installed; run "
        "`pip install jax-cuda13-pjrt`, or set TORCH_TPU_PLUGIN to a plugin's path"
    )


def _has_tpu() -> bool:
    if os.environ.get("TPU_SKIP_MDS_QUERY") or importlib.util.find_spec("libtpu") is None:
        return False
    if any(_text(vendor) == _GOOGLE_PCI_VENDOR for vendor in _PCI.glob("*/vendor")):
        return any(Path("/dev").glob("accel*")) or Path("/dev/vfio").exists()
    return False
