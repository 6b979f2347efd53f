"""torch.tpu: devices, streams, events, memory, and what PyTorch asks of a device module."""

import gc

import pytest
import torch
from support import modes, only_tpu, python

pytestmark = only_tpu


def test_the_device_is_there():
    import torch_tpu

    assert torch.tpu.is_available() and torch.tpu.device_count() >= 1
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("tpu")
    assert torch.accelerator.device_count() == torch.tpu.device_count()
    assert torch_tpu.get_device() == torch.device("tpu", torch.tpu.current_device())
    assert torch.get_device_module("tpu") is torch.tpu


def test_a_device_has_an_index():
    x = torch.ones(2, device="tpu")
    assert x.device == torch.device("tpu:0") and x.device.index == 0
    assert x.is_tpu and not torch.ones(2).is_tpu
    assert torch.ones(2).tpu().device == x.device
    assert torch.nn.Linear(2, 2).tpu().weight.device == x.device
    assert torch.ones_like(x).device == x.device


def test_properties():
    properties = torch.tpu.get_device_properties("tpu:0")
    assert properties.name == torch.tpu.get_device_name() and properties.name
    assert properties.total_memory > 0 and properties.index == 0
    assert properties.api_version >= (0, 50)


@pytest.mark.parametrize("index", [77, 126])
def test_an_index_too_high_is_an_error(index):
    with pytest.raises(RuntimeError, match=str(index)):
        torch.ones(2, device=f"tpu:{index}")
    with pytest.raises(RuntimeError, match=str(index)):
        torch.tpu.set_device(index)
    assert torch.tpu.current_device() == 0


def test_device_context_managers():
    for chosen in (0, "tpu", "tpu:0", torch.device("tpu", 0), None, -1):
        with torch.tpu.device(chosen):
            assert torch.tpu.current_device() == 0
    with torch.tpu.device_of(torch.ones(1, device="tpu")), torch.tpu.device_of(torch.ones(1)):
        assert torch.tpu.current_device() == 0
    with pytest.raises(ValueError, match="cpu"):
        torch.tpu.device("cpu")


def test_default_device():
    with torch.device("tpu"):
        assert torch.zeros(3).device.type == "tpu"
        assert torch.nn.Linear(2, 2).weight.device.type == "tpu"
    torch.set_default_device("tpu")
    try:
        assert torch.arange(3).device.type == "tpu"
    finally:
        torch.set_default_device(None)
    assert torch.zeros(3).device.type == "cpu"


def test_streams():
    stream = torch.tpu.Stream()
    assert stream.device.type == "tpu" and isinstance(stream, torch.Stream)
    before = torch.tpu.current_stream()
    with torch.tpu.stream(stream):
        x = torch.ones(8, device="tpu") * 3
    assert torch.tpu.current_stream() == before == torch.tpu.default_stream()
    before.wait_stream(stream)
    assert x.sum().item() == 24
    stream.synchronize()
    assert stream.query()
    with torch.tpu.stream(None):
        pass


def test_events_measure_time():
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    x = torch.rand(256, 256, device="tpu")
    for _ in range(4):
        x = x @ x / 100
    end.record()
    end.synchronize()
    assert end.query() and 0 < start.elapsed_time(end) < 60_000


def test_synchronize():
    x = torch.ones(4, device="tpu") + 1
    torch.tpu.synchronize()
    torch.tpu.synchronize("tpu:0")
    torch.accelerator.synchronize()
    assert x.tolist() == [2.0] * 4


def test_memory_is_counted():
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    torch.tpu.reset_peak_memory_stats()
    x = torch.ones(1 << 18, device="tpu") * 2
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before >= 1 << 20
    del x
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before < 1 << 20
    assert torch.tpu.max_memory_allocated() - before >= 1 << 20
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total
    assert torch.accelerator.get_memory_info()[1] == total
    assert "peak" in torch.tpu.memory_summary()
    assert torch.accelerator.memory_allocated() >= 0
    stats = torch.tpu.memory_stats()
    assert stats["allocated_bytes.all.current"] >= 0
    assert set(torch.accelerator.memory_stats()) < set(stats)  # as of any accelerator


@pytest.mark.parametrize("mode", modes())
def test_tensors_count_from_the_line_that_makes_them(mode):
    def bytes_of_tensors():
        return [torch.tpu.memory_allocated(), torch.accelerator.memory_allocated()]

    gc.collect()
    torch.tpu.synchronize()  # what other tests had under way
    with torch.tpu.set_eager_mode(mode):
        start = torch.tpu.memory_allocated()
        torch.tpu.reset_peak_memory_stats()
        x = torch.ones(1000, device="tpu")
        assert bytes_of_tensors() == [start + 4000] * 2
        kept = [x + 1, torch.zeros(1000, device="tpu"), torch.empty(1000, device="tpu"), x.view(-1)]
        assert bytes_of_tensors() == [start + 16000] * 2
        x.untyped_storage().resize_(2000)
        assert bytes_of_tensors() == [start + 14000] * 2
        del x, kept
        assert bytes_of_tensors() == [start] * 2
        assert torch.tpu.max_memory_allocated() == start + 18000  # both, while resized
    torch.tpu.synchronize()


def test_dtypes_that_it_holds():
    held = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.uint16, torch.complex64} <= held
    for dtype in held:
        assert torch.ones(2, device="tpu").to(dtype).cpu().to(torch.complex64).tolist() == [1, 1]
    assert torch.qint8 not in held


@only_tpu
@pytest.mark.parametrize("empty", [torch.tpu.empty_cache, torch.accelerator.empty_cache])
def test_zeros_are_kept_until_the_cache_is_emptied(empty):
    torch.tpu.synchronize()
    empty()
    before = torch.tpu.memory_reserved()
    torch.zeros(1 << 12, device="tpu")
    kept = torch.zeros(1 << 12, device="tpu")
    torch.tpu.synchronize()
    assert torch.tpu.memory_reserved() - before == 1 << 14
    empty()
    assert torch.tpu.memory_reserved() - before == 1 << 14 and not kept.any().item()
    del kept
    torch.tpu.synchronize()
    empty()
    assert torch.tpu.memory_reserved() <= before


@only_tpu
def test_requested_bytes():
    def requested():
        torch.tpu.synchronize()
        stats = torch.tpu.memory_stats()
        return [stats[f"requested_bytes.all.{what}"] for what in ("current", "allocated")]

    current, ever = requested()
    for _ in range(3):
        x = torch.full((1000,), 2.0, device="tpu")
        torch.tpu.synchronize()  # in Fused mode memory is taken when a chunk is launched
    assert requested() == [current + 4000, ever + 12000]
    del x
    assert requested() == [current, ever + 12000]


def test_memory_does_not_grow():
    model = torch.nn.Linear(32, 32).to("tpu")

    def step():
        model.zero_grad()
        model(torch.ones(8, 32, device="tpu")).sum().backward()

    step()
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    for _ in range(10):
        step()
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before


def test_supported_dtypes():
    assert torch.tpu.is_bf16_supported()
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype()


def test_a_forked_child_is_told():
    code = """
import os, sys, torch
torch.ones(1, device="tpu").cpu()
pid = os.fork()
if pid == 0:
    status = 1
    try:
        torch.ones(1, device="tpu").cpu()
    except RuntimeError as error:
        status = 0 if "spawn" in str(error) else 2
    os._exit(status)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    status, _, errors = python(code)
    assert status == 0, errors


THREADS = """
import os, torch
x = torch.ones(400, 400, device="tpu")
(x @ x).cpu()
names = [open(f"/proc/self/task/{one}/comm").read() for one in os.listdir("/proc/self/task")]
print(sum(name.startswith("tf_XLAEigen") for name in names))
"""


@pytest.mark.cpu_plugin("its threads are counted")
@pytest.mark.parametrize(
    "threads, nproc, count",
    [
        ("3,1", "", 3),
        pytest.param("1", "", 1, marks=pytest.mark.slow),
        pytest.param("1", "2", 2, marks=pytest.mark.slow),
    ],
)
def test_as_many_threads_as_openmp_may_have(threads, nproc, count):
    """As torchrun allows its ranks one each."""
    environment = {"OMP_NUM_THREADS": threads} | ({"NPROC": nproc} if nproc else {})
    status, out, errors = python(THREADS, **environment)
    assert status == 0, errors
    assert int(out) == count


def test_threads_have_their_own_current_device():
    import threading

    seen = []

    def work():
        x = torch.full((64,), 2.0, device="tpu", requires_grad=True)
        (x * x).sum().backward()
        seen.append((torch.tpu.current_device(), x.grad.sum().item()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [(0, 256.0)] * 4


@only_tpu
@pytest.mark.cpu_plugin("other plugins say how much memory there is, or refuse it themselves")
@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
@pytest.mark.parametrize(
    "huge",
    [
        lambda: torch.arange(2**40, dtype=torch.int8, device="tpu"),
        lambda: torch.ones(1, 2, device="tpu").expand(2**40, 2) @ torch.ones(2, 2, device="tpu"),
        lambda: torch.arange(2**42, dtype=torch.int8, device="tpu").eq(3).any(),
    ],
    ids=["range", "product", "reduced"],
)
def test_what_no_memory_holds_is_refused_before_it_is_compiled(huge, mode):
    told = "(?s)aten::.* out of memory\\."  # which accelerate looks for
    with torch.tpu.set_eager_mode(mode), pytest.raises(torch.OutOfMemoryError, match=told):
        huge().sum().item()
    assert (torch.ones(2, device="tpu") + 1).tolist() == [2, 2]
