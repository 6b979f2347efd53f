"""`accelerator="auto"` is the CPU unless torch_xla is there, which is what "tpu" is taken to mean.

Lightning's registries are given an accelerator "tpu" and a strategy "single_tpu", for `Trainer` and
`Fabric`. No registry says what "auto" chooses, which strategy belongs to an accelerator, and on
which device autocast is ("cuda", if it is neither "cpu" nor "mps"): these are three methods of
their connectors. Four functions of the trainer know CUDA only: what it tells of the devices, the
random numbers that its sanity check leaves as they were, and what the batch size finder takes for
too little memory.

Nothing is changed where torch_xla finds devices.
"""

import contextlib
import sys
from collections.abc import Iterator
from functools import wraps
from typing import Any

import torch

from torch_tpu import tpu
from torch_tpu.integrations import chosen
from torch_tpu.integrations._imports import replace

TESTED = "2.6"


def apply(module: str) -> None:
    """Has `Fabric` or `Trainer` take `tpu`, by whichever of its names the library was imported."""
    if module.endswith(".connector"):
        connector = sys.modules[module]
        registries = connector.ACCELERATOR_REGISTRY, connector.STRATEGY_REGISTRY
        precision = "_precision_input", "_precision_instance"
        _connector(connector, connector._Connector, registries, precision)
        return
    package = module.removesuffix(".trainer.trainer")
    connector = sys.modules[f"{package}.trainer.connectors.accelerator_connector"]
    registries = connector.AcceleratorRegistry, connector.StrategyRegistry
    precision = "_precision_flag", "_precision_plugin_flag"
    _connector(connector, connector._AcceleratorConnector, registries, precision)
    _announcement(sys.modules[f"{package}.trainer.setup"])
    _random(sys.modules[f"{package}.utilities.seed"])
    _memory(sys.modules[f"{package}.utilities.memory"])


def _connector(module: Any, cls: Any, registries: tuple[Any, Any], names: tuple[str, str]) -> None:
    if module.XLAAccelerator.is_available():
        return
    accelerator, single = _accelerator(module.Accelerator), module.SingleDeviceStrategy
    registries[0].register("tpu", accelerator, description="torch_tpu", override=True)
    registries[1].register("single_tpu", single, "torch_tpu", override=True, device="tpu:0")
    _choices(cls, accelerator, single)
    _autocast(cls, accelerator, module.MixedPrecision, *names)


def _accelerator(base: Any) -> Any:
    class TPUAccelerator(base):  # type: ignore[misc]
        """One of the devices of torch_tpu."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != "tpu":
                raise ValueError(f"accelerator='tpu': the strategy's device is {device}, not a tpu")
            tpu.set_device(device)

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return tpu.memory_stats(device)

        def teardown(self) -> None:
            tpu.empty_cache()

        @staticmethod
        def parse_devices(devices: Any) -> list[int]:
            return [_index(devices)]

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device("tpu", index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return chosen() is not None

        @staticmethod
        def name() -> str:
            return "tpu"

    return TPUAccelerator


def _index(devices: Any) -> int:
    """The one device that is meant by a number (-1: all) or a list, which may be a string."""
    wanted, count = devices, tpu.device_count()
    if isinstance(wanted, str):
        several = "," in wanted
        wanted = [int(one) for one in wanted.split(",") if one.strip()] if several else int(wanted)
    if isinstance(wanted, int):
        wanted = range(count if wanted == -1 else wanted)
    if len(wanted) != 1 or not 0 <= wanted[0] < count:
        raise ValueError(
            f"devices={devices!r}: Lightning trains on one tpu device, of {count} here: expected "
            "'auto', 1, or a list of one index"
        )
    return int(wanted[0])


def _choices(cls: Any, accelerator: Any, single: Any) -> None:
    choose, strategy = cls._choose_auto_accelerator, cls._choose_strategy

    def _choose_auto_accelerator(self: Any) -> str:
        found: str = choose()
        asked = self._strategy_flag
        at_tpu = isinstance(asked, single) and asked.root_device.type == "tpu"
        fits = at_tpu or (isinstance(asked, str) and asked in ("auto", "single_tpu"))
        return "tpu" if found == "cpu" and fits and chosen() is not None else found

    def _choose_strategy(self: Any) -> Any:
        if not isinstance(self.accelerator, accelerator):
            return strategy(self)
        if self._num_nodes_flag > 1:
            raise ValueError(
                f"num_nodes={self._num_nodes_flag}: Lightning trains on one tpu device; name a "
                "strategy, or accelerator='cpu'"
            )
        return single(device=self._parallel_devices[0])

    cls._choose_auto_accelerator, cls._choose_strategy = _choose_auto_accelerator, _choose_strategy


def _autocast(cls: Any, accelerator: Any, mixed: Any, flag: str, plugin: str) -> None:
    original = cls._check_and_init_precision

    def _check_and_init_precision(self: Any) -> Any:
        asked = getattr(self, flag)
        at_tpu = isinstance(self.accelerator, accelerator)
        if at_tpu and getattr(self, plugin) is None and asked in ("16-mixed", "bf16-mixed"):
            setattr(self, plugin, mixed(asked, "tpu"))
        return original(self)

    cls._check_and_init_precision = _check_and_init_precision


def _announcement(setup: Any) -> None:
    original = setup._log_device_info

    @wraps(original)
    def _log_device_info(trainer: Any) -> None:
        if trainer.accelerator.name() == "tpu" and trainer.strategy.root_device.type == "tpu":
            setup.rank_zero_info(f"TPU available: True, used: {trainer.strategy.root_device}")
        else:
            original(trainer)

    replace(setup.__name__.partition(".")[0], "_log_device_info", original, _log_device_info)


def _random(seed: Any) -> None:
    original = seed.isolate_rng

    @wraps(original)
    @contextlib.contextmanager
    def isolate_rng(include_cuda: bool = True) -> Iterator[None]:
        states = tpu.get_rng_state_all() if include_cuda and tpu.is_initialized() else []
        with original(include_cuda):
            yield
        if states:
            tpu.set_rng_state_all(states)

    replace(seed.__name__.partition(".")[0], "isolate_rng", original, isolate_rng)


def _memory(memory: Any) -> None:
    original = memory.is_oom_error

    @wraps(original)
    def is_oom_error(exception: BaseException) -> bool:
        return isinstance(exception, torch.OutOfMemoryError) or original(exception)

    replace(memory.__name__.partition(".")[0], "is_oom_error", original, is_oom_error)
