"""Where PJRT plugins are: the names `cpu`, `tpu` and `cuda` stand for installed packages."""

import importlib
import importlib.util
import os
from pathlib import Path

_CPU_PACKAGE = "lammps_jax_pjrt_cpu"
_GOOGLE_PCI_VENDOR = "0x1ae0"
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
    return _find(name)


def expected_devices(name: str, cpu_devices: int) -> int:
    """Returns how many devices a plugin will have, if that is known without opening it; else -1.

    A plugin that is not there has none. name: as for resolve; cpu_devices: of the CPU plugin; 0:
    what the environment says.
    """
    try:
        path = _find(name)
    except ImportError:
        return 0
    if "/" in path and not os.path.exists(path):
        return 0
    if _chosen(name) != "cpu":
        return -1
    from torch_tpu import _env

    count = str(cpu_devices or _env.value("CPU_DEVICES"))
    return int(count) if count.isascii() and count.isdigit() and 0 < int(count) <= 127 else -1


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
    for vendor in Path("/sys/bus/pci/devices").glob("*/vendor"):
        try:
            if vendor.read_text().strip() == _GOOGLE_PCI_VENDOR:
                return any(Path("/dev").glob("accel*")) or Path("/dev/vfio").exists()
        except OSError:
            continue
    return False
