"""Lightning takes `tpu`: a tiny library of the same shape; tests/ecosystem runs the real one."""

import pytest
from support import only_tpu, slow_but
from test_integrations import run

pytestmark = only_tpu

TWO_DEVICES = {"TORCH_TPU_PLUGIN": "cpu", "TORCH_TPU_CPU_DEVICES": "2"}

CONNECTOR = """
import torch

class Registry(dict):
    def register(self, name, value, description=None, override=False, **options):
        assert override or name not in self
        self[name] = lambda: value(**options)

class Accelerator:
    pass

class CPUAccelerator(Accelerator):
    name = staticmethod(lambda: "cpu")
    parse_devices = staticmethod(lambda devices: 1)
    auto_device_count = staticmethod(lambda: 1)
    get_parallel_devices = staticmethod(lambda devices: [torch.device("cpu")])
    def setup_device(self, device):
        pass

class XLAAccelerator(Accelerator):
    is_available = staticmethod(lambda: {xla})

class SingleDeviceStrategy:
    def __init__(self, device="cpu"):
        self.root_device = torch.device(device)

class MixedPrecision:
    def __init__(self, precision, device):
        self.device = device

{accelerators}, {strategies} = Registry(), Registry()
{accelerators}.register("cpu", CPUAccelerator)
{accelerators}.register("tpu", XLAAccelerator)
{strategies}.register("single_tpu", SingleDeviceStrategy)

class {connector}:
    {precision}, {plugin} = "32-true", None

    def __init__(
        self, accelerator="auto", strategy="auto", devices="auto", precision="32-true", num_nodes=1
    ):
        self._strategy_flag, self.{precision}, self._num_nodes_flag = strategy, precision, num_nodes
        name = self._choose_auto_accelerator() if accelerator == "auto" else accelerator
        self.accelerator = {accelerators}[name]()
        devices = self.accelerator.auto_device_count() if devices == "auto" else devices
        devices = self.accelerator.parse_devices(devices)
        self._parallel_devices = self.accelerator.get_parallel_devices(devices)
        self.strategy = self._choose_strategy() if strategy == "auto" else strategy
        if isinstance(self.strategy, str):
            self.strategy = {strategies}[self.strategy]()
        self.plugin = self._check_and_init_precision()
        self.accelerator.setup_device(self.strategy.root_device)

    @staticmethod
    def _choose_auto_accelerator():
        return "cpu"

    def _choose_strategy(self):
        return SingleDeviceStrategy("cpu")

    def _check_and_init_precision(self):
        return self.{plugin} or MixedPrecision(self.{precision}, "cuda")
"""
TRAINER = CONNECTOR.format(
    accelerators="AcceleratorRegistry", strategies="StrategyRegistry", xla=False,
    connector="_AcceleratorConnector", precision="_precision_flag", plugin="_precision_plugin_flag",
)  # fmt: skip
FABRIC = {
    "accelerators": "ACCELERATOR_REGISTRY", "strategies": "STRATEGY_REGISTRY", "xla": False,
    "connector": "_Connector", "precision": "_precision_input", "plugin": "_precision_instance",
}  # fmt: skip
SEED = """
import contextlib
@contextlib.contextmanager
def isolate_rng(include_cuda=True):
    yield
"""


def library(trainer="lightning/pytorch", fabric="lightning/fabric", **changes):
    package = trainer.replace("/", ".")
    return {
        f"{fabric}/connector.py": CONNECTOR.format(**FABRIC | changes),
        f"{trainer}/trainer/connectors/accelerator_connector.py": TRAINER,
        f"{trainer}/trainer/setup.py": "said = []\nrank_zero_info = said.append\n"
        "def _log_device_info(trainer):\n    said.append('CPU')",
        f"{trainer}/utilities/seed.py": SEED,
        f"{trainer}/utilities/memory.py": "def is_oom_error(error):\n    return 'no' in str(error)",
        f"{trainer}/trainer/trainer.py": f"""
from {fabric.replace("/", ".")} import connector as fabric
from {package}.trainer import setup
from {package}.trainer.connectors import accelerator_connector as connector
from {package}.utilities.memory import is_oom_error
from {package}.utilities.seed import isolate_rng
Trainer, Fabric = connector._AcceleratorConnector, fabric._Connector
Single = connector.SingleDeviceStrategy
""",
    }


START = "import torch\nfrom {}.trainer.trainer import *\nfrom {}.trainer import trainer\n"
SHOW = """
def show(*all, **options):
    print(*[kind(**options).strategy.root_device for kind in (Trainer, Fabric)])
"""


@pytest.mark.parametrize(
    "names",
    slow_but(
        ["lightning/pytorch lightning/fabric", "pytorch_lightning lightning_fabric"],
        "lightning/pytorch lightning/fabric",
    ),
)
def test_who_chooses(tmp_path, names):
    trainer, fabric = names.split()
    package = trainer.replace("/", ".")
    code = (
        START.format(package, package)
        + SHOW
        + """
show(); show(accelerator="tpu"); show(strategy="single_tpu"); show(precision="bf16-mixed")
show(devices=[1]); show(devices="1,"); show(devices=1); show(devices="1")
show(accelerator="cpu"); show(strategy=Single("cpu")); show(strategy=Single("tpu:1"))
"""
    )
    out, errors = run(tmp_path, code, library(trainer, fabric), **TWO_DEVICES)
    assert errors == ""
    found = ["tpu:0"] * 4 + ["tpu:1"] * 2 + ["tpu:0"] * 2 + ["cpu"] * 2 + ["tpu:1"]
    assert out == [one for one in found for _ in range(2)]


@pytest.mark.slow
def test_what_is_no_single_device_is_refused(tmp_path):
    code = (
        START.format("lightning.pytorch", "lightning.pytorch")
        + """
import pytest
for kind in (Trainer, Fabric):
    for devices in (2, -1, [0, 1], [2], "0,1", []):
        with pytest.raises(ValueError, match="one tpu device, of 2 here") as caught:
            kind(devices=devices)
        assert repr(devices) in str(caught.value)
    with pytest.raises(ValueError, match="num_nodes=2"):
        kind(num_nodes=2)
    with pytest.raises(ValueError, match="device is cpu, not a tpu"):
        kind(accelerator="tpu", strategy=Single("cpu"))
"""
    )
    run(tmp_path, code, library(), **TWO_DEVICES)


@pytest.mark.slow
def test_what_the_accelerator_and_the_trainer_know(tmp_path):
    code = (
        START.format("lightning.pytorch", "lightning.pytorch")
        + """
for precision in ("16-mixed", "bf16-mixed", "32-true"):
    for accelerator in ("auto", "cpu"):
        for kind in (Trainer, Fabric):
            print(kind(accelerator=accelerator, precision=precision).plugin.device)
one = Trainer()
assert one.accelerator.get_device_stats("tpu:0").keys() == torch.tpu.memory_stats().keys()
for seen in (one, Trainer(accelerator="cpu")):
    setup._log_device_info(seen)
assert setup.said == ["TPU available: True, used: tpu:0", "CPU"], setup.said
with trainer.isolate_rng():
    first = torch.rand(4, device="tpu")
assert torch.equal(first, torch.rand(4, device="tpu"))
assert not torch.equal(first, torch.rand(4, device="tpu"))
assert trainer.is_oom_error(torch.OutOfMemoryError("tpu"))
assert trainer.is_oom_error(OSError("no"))
assert not trainer.is_oom_error(RuntimeError("tpu"))
"""
    )
    out, _ = run(tmp_path, code, library())
    assert out == (["tpu"] * 2 + ["cuda"] * 2) * 2 + ["cuda"] * 4


@pytest.mark.slow
def test_torch_xla_is_left_alone(tmp_path):
    code = (
        START.format("lightning.pytorch", "lightning.pytorch")
        + """
print(Trainer().strategy.root_device, Fabric().strategy.root_device)
"""
    )
    assert run(tmp_path, code, library(xla=True))[0] == ["tpu:0", "cpu"]
