"""Adds the device "tpu" to PyTorch: once a process, and never at the price of `import torch`."""

import atexit
import contextlib
import importlib
import os
import sys
import time
import warnings
from importlib.metadata import entry_points

import torch
from torch.utils import backend_registration

ENTRY_POINT = "torch_tpu._autoload:load"
SUPPORTED = ((2, 11), (2, 13))
TRACE_RULES = "torch._dynamo.trace_rules"
FOLDED = "torch._dynamo.variables.torch"
TRACER = "torch._dynamo.symbolic_convert"
BACKENDS = "torch._dynamo.backends.registry"
FLOPS = "torch.utils.flop_counter"
DISTRIBUTED = "torch.distributed"
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # of NVIDIA, of either under WSL, of AMD

_loaded = False
_problem = ""


def load() -> None:
    """Entry point of the group `torch.backends`; called at the end of `import torch`.

    Whatever goes wrong becomes one warning, and PyTorch goes on without the device. So it does in
    silence where PyTorch has a GPU of its own, until `import torch_tpu` asks for this device, or
    TORCH_TPU_PLUGIN does: while both are there, PyTorch asks only this one for the streams of a
    `backward()`, and fails on the other (https://github.com/pytorch/pytorch/issues/161129).
    """
    global _problem
    if _loaded or _problem:
        return
    if not os.environ.get("TORCH_TPU_PLUGIN") and _has_gpu_of_its_own():
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch_tpu"]:
            del sys.modules[name]  # so that `import torch_tpu` comes here again
        return
    try:
        _load()
    except Exception as error:
        _problem = str(error) or type(error).__name__
        warnings.warn(f"torchtpu: no device 'tpu': {_problem}", RuntimeWarning, stacklevel=2)


def load_or_raise() -> None:
    """Adds the device if that has not happened yet. Raises ImportError, with the reason."""
    global _problem
    if _problem:
        raise ImportError(f"torchtpu: no device 'tpu': {_problem}")
    # `import torch_tpu` from within torch's own autoload comes here, too: leave it to `load`.
    if not _loaded and _torch_is_complete():
        try:
            _load()
        except Exception as error:
            _problem = str(error) or type(error).__name__
            raise ImportError(f"torchtpu: no device 'tpu': {_problem}") from error


def _has_gpu_of_its_own() -> bool:
    """Looks for a driver's files: who asks the driver itself cannot fork any more."""
    if not torch.backends.cuda.is_built() or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return any(os.path.exists(file) for file in GPU_FILES)


def _torch_is_complete() -> bool:
    spec = getattr(torch, "__spec__", None)
    return not getattr(spec, "_initializing", False)


def _load() -> None:
    global _loaded
    _check_version()
    _check_other_backends()
    try:
        importlib.import_module("torch_tpu._C")  # registers kernels, guard, hooks, allocator
    except ImportError as error:
        raise ImportError(_explain_import(error)) from error
    from torch_tpu import _agreement, _patches, tpu  # noqa: F401 (the glue asks _agreement)
    from torch_tpu.integrations import _imports

    _apply_environment()
    backend_registration.rename_privateuse1_backend("tpu")
    # They register themselves.
    for family in "kernels fft lent sparse nested quantised recurrent vision".split():
        importlib.import_module(f"torch_tpu._{family}")

    torch._register_device_module("tpu", tpu)
    for name, module in list(sys.modules.items()):
        if name.startswith("torch_tpu.tpu."):
            sys.modules[name.replace("torch_tpu.tpu", "torch.tpu", 1)] = module
    backend_registration.generate_methods_for_privateuse1_backend(for_storage=True)
    _patches.apply()
    _imports.Watcher(_tell_distributed).watch([DISTRIBUTED])
    _imports.Watcher(_tell_dynamo).watch([TRACE_RULES, FOLDED, TRACER, BACKENDS])
    _imports.Watcher(_tell_flop_counter).watch([FLOPS])
    atexit.register(_let_autograd_end)
    _loaded = True


def _let_autograd_end() -> None:
    """Gives PyTorch's autograd threads a moment before Python ends.

    They may still be letting go of Python objects of the last `backward()`, on any device but the
    CPU; one that asks for the GIL while Python ends is ended, and with it, by C++, the process.
    """
    from torch_tpu import tpu

    if tpu.is_initialized():
        time.sleep(0.02)


def _apply_environment() -> None:
    """Sets the properties of `torch.tpu` that an environment variable chooses."""
    from torch_tpu import _env, integrations, tpu

    integrations.watch(_env.value("INTEGRATIONS"))
    for name in ("eager_mode", "host_fallback"):
        try:
            setattr(tpu, name, _env.value(name.upper()))
        except ValueError as error:
            raise ValueError(f"TORCH_TPU_{name.upper()}: {error}") from None


def _tell_distributed(_module: str) -> None:
    """Adds the backend of process groups, as soon as `torch.distributed` is there."""
    import torch.distributed

    if torch.distributed.is_available():
        from torch_tpu import distributed

        distributed.register()


def _tell_dynamo(module: str) -> None:
    """Has `torch.compile` take our backend and trace none of our functions.

    Called when a module of Dynamo's was imported.
    """
    from torch_tpu import _patches

    if module == TRACE_RULES:
        sys.modules[module].add("torch_tpu")
        _patches.functions_in_graphs(sys.modules[module])
    elif module == FOLDED:
        from torch_tpu.compiler import interface

        _patches.functions_folded(sys.modules[module])
        interface.install()
    elif module == TRACER:
        _patches.no_names_for_logs(sys.modules[module])
    else:
        from torch_tpu.compiler import backend

        backend.install()


def _tell_flop_counter(_module: str) -> None:
    """Adds the formulas of attention, as soon as the counter is there."""
    from torch_tpu import _flop_formulas

    _flop_formulas.register()


def _check_version() -> None:
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    low, high = SUPPORTED
    if not low <= (major, minor) <= high:
        raise ImportError(
            f"PyTorch {torch.__version__} is not supported; install a version from "
            f"{low[0]}.{low[1]} to {high[0]}.{high[1]}"
        )


def _check_other_backends() -> None:
    """Refuses to share a process with another owner of the name "tpu"."""
    advice = "keep one of the two: `pip uninstall torch_tpu` or `pip uninstall torchtpu`"
    if hasattr(torch, "tpu"):
        raise ImportError(f"another backend has already registered torch.tpu; {advice}")
    for point in entry_points(group="torch.backends"):
        if point.value != ENTRY_POINT and point.value.partition(".")[0] == "torch_tpu":
            raise ImportError(
                f"another distribution of the package torch_tpu ({point.value}) is installed "
                f"beside torchtpu; {advice}"
            )
    current = torch._C._get_privateuse1_backend_name()
    if current != "privateuseone":
        raise ImportError(f"the backend {current!r} already holds PyTorch's one external device")


def _explain_import(error: ImportError) -> str:
    text = str(error)
    built_for = ""
    with contextlib.suppress(ImportError):
        from torch_tpu._build_info import TORCH

        built_for = TORCH
    if isinstance(error, ModuleNotFoundError) and error.name == "torch_tpu._C":
        return "its extension module is not built; run `make build` or reinstall torchtpu"
    if built_for and not torch.__version__.startswith(built_for + "."):
        return (
            f"it was built for PyTorch {built_for} and this is {torch.__version__}; "
            f"reinstall torchtpu ({text})"
        )
    return f"its extension module does not load: {text}"
