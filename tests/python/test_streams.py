"""Several streams, events, and copies that do not wait."""

import gc
import json
import threading
import time

import pytest
import torch
from support import ROOT, only_tpu, python, same

pytestmark = only_tpu
ACCEL = ROOT / "build/release/libtt_accel_plugin.so"


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_streams_see_what_the_others_wrote(mode):
    torch.tpu.eager_mode = mode
    streams = [torch.tpu.Stream() for _ in range(3)]
    x, expected = torch.zeros(16, device="tpu"), torch.zeros(16)
    for i in range(60):
        with torch.tpu.stream(streams[i % 3]):
            x = x * 2 + i
            x[i % 16] = 1
        expected = (expected * 2 + i) % 1e30
        expected[i % 16] = 1
        x = x % 1e30
    same(x.cpu(), expected)


def test_a_thread_has_a_current_stream_for_each_device():
    stream, seen = torch.tpu.Stream(), []
    with torch.tpu.stream(stream):
        thread = threading.Thread(target=lambda: seen.append(torch.tpu.current_stream()))
        thread.start()
        thread.join()
        assert torch.tpu.current_stream() == stream
    assert seen == [torch.tpu.default_stream()]


def busy(x):
    for _ in range(40):
        x = x @ x / x.shape[0]
    return x


def test_recording_an_event_waits_for_nothing():
    x = torch.rand(700, 700, device="tpu")
    busy(x).sum().item()
    y = busy(x)
    event = torch.tpu.Event()
    begin = time.perf_counter()
    event.record()
    recorded = time.perf_counter() - begin
    pending = not event.query()
    event.synchronize()
    waited = time.perf_counter() - begin
    assert event.query() and pending and recorded < waited / 2
    assert torch.isfinite(y).all()


def test_time_between_events_is_what_the_work_took():
    x = torch.rand(500, 500, device="tpu")
    busy(x).sum().item()
    events = [torch.tpu.Event(enable_timing=True) for _ in range(3)]
    begin = time.perf_counter()
    events[0].record()
    busy(x)
    events[1].record()
    events[2].record()
    events[2].synchronize()
    whole = (time.perf_counter() - begin) * 1e3
    assert 0 < events[0].elapsed_time(events[1]) <= whole
    assert 0 <= events[1].elapsed_time(events[2]) <= whole / 2


def test_elapsed_time_of_an_event_that_has_not_passed():
    x = torch.rand(700, 700, device="tpu")
    busy(x).sum().item()
    start, end = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    start.record()
    busy(x)
    end.record()
    with pytest.raises(RuntimeError, match="completed"):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) > 0


def test_a_stream_waits_for_an_event_of_another():
    one, other = torch.tpu.Stream(), torch.tpu.Stream()
    x, event = torch.rand(400, 400, device="tpu"), torch.tpu.Event(enable_timing=True)
    after = torch.tpu.Event(enable_timing=True)
    with torch.tpu.stream(one):
        busy(x)
        event.record(one)
    other.wait_event(event)
    with torch.tpu.stream(other):
        torch.ones(2, device="tpu") + 1
        after.record(other)
    after.synchronize()
    assert event.query() and event.elapsed_time(after) >= 0
    other.wait_stream(one)
    x.record_stream(other)


def test_copies_from_pinned_memory_may_end_later():
    host = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    there = [host.to("tpu", non_blocking=True) for _ in range(4)]
    torch.tpu.synchronize()
    same(there[3].cpu(), host)
    host.zero_()
    assert there[0][5].item() == 5


def test_pinned_memory_lives_until_it_was_copied():
    there = []
    gc.freeze()  # what is here stays here: collecting is fast from here on
    for i in range(20):
        there.append(torch.full((1 << 16,), float(i)).pin_memory().to("tpu", non_blocking=True))
        gc.collect()
    gc.unfreeze()
    assert [x[7].item() for x in there] == list(range(20))


@pytest.mark.parametrize("wait", ["stream", "event", "device"])
def test_pinned_memory_was_copied_when_its_stream_was_waited_for(wait):
    stream, host, event = torch.tpu.Stream(), torch.empty(1 << 12).pin_memory(), torch.tpu.Event()
    for i in range(20):
        host.fill_(i)
        with torch.tpu.stream(stream):
            there = host.to("tpu", non_blocking=True)
            event.record()
        {"stream": stream, "event": event, "device": torch.tpu}[wait].synchronize()
        host.fill_(-1)
        assert there[7].item() == i


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_copies_through_pinned_memory_keep_their_order(mode):
    torch.tpu.eager_mode = mode
    host, seen = torch.zeros(1 << 12).pin_memory(), []
    for i in range(20):
        x = torch.full((1 << 12,), float(i), device="tpu")
        host.copy_(x, non_blocking=True)
        seen += [host.to("tpu", non_blocking=True), host.to("tpu"), host[5:].double().to("tpu")]
        host.copy_(x + 0.5, non_blocking=True)
        seen += [host[7:].to("tpu", non_blocking=True), host.to("tpu", non_blocking=True)]
        host.copy_(x - 1)
        assert host[7] == i - 1
    assert [one[7].item() for one in seen] == [
        i + d for i in range(20) for d in (0, 0, 0, 0.5, 0.5)
    ]


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_copies_to_pinned_memory_are_there_after_the_stream(mode):
    torch.tpu.eager_mode = mode
    x = torch.rand(300, 300, device="tpu")
    host = torch.empty(300, 300).pin_memory()
    y = busy(x)
    host.copy_(y, non_blocking=True)
    event = torch.tpu.Event()
    event.record()
    event.synchronize()
    same(host, y.cpu())
    part = torch.empty(10, 5, dtype=torch.float64).pin_memory()
    part.copy_(y[3:13, ::60], non_blocking=True)
    torch.tpu.synchronize()
    same(part, y[3:13, ::60].cpu().double())


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_result_of_to_is_complete(mode):
    """PyTorch pins it by itself: who asks for it may not know that it is to be waited for."""
    torch.tpu.eager_mode = mode
    y = busy(torch.rand(300, 300, device="tpu"))
    host = y.to("cpu", torch.float64, non_blocking=True)
    seen = host.clone()
    same(seen, y.cpu().double())


def test_a_read_waits_for_nothing_but_its_value():
    x = torch.rand(900, 900, device="tpu")
    busy(x).sum().item()
    small = torch.ones(3, device="tpu") + 1
    torch.tpu.synchronize()
    begin = time.perf_counter()
    event = torch.tpu.Event()
    busy(x)
    event.record()
    assert small.tolist() == [2.0] * 3
    looked, pending = time.perf_counter() - begin, not event.query()
    event.synchronize()
    assert pending and looked < (time.perf_counter() - begin) / 2


@pytest.mark.skipif(not ACCEL.exists(), reason="what takes time are the delays of this plugin")
@pytest.mark.slow
def test_copies_overlap_computations():
    """Each stream alone is busy for half of the time that both take in turn."""
    code = "import runpy; runpy.run_path('bench/overlap.py', run_name='__main__')"
    environment = {"TORCH_TPU_PLUGIN": str(ACCEL), "TT_ACCEL_DELAY_US": "4000"}
    status, out, errors = python(code, **environment)
    assert status == 0, errors
    assert json.loads(out)["ratio"] <= 0.75, out
