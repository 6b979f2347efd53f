"""What the first call of a compiled function is spared, and that nothing is lost by it."""

import gc
import logging
import os
import sys

import pytest
import torch
from support import DEVICE, LOOSE, counted, only_tpu, python, same

from torch_tpu import _patches
from torch_tpu.compiler import backend, sources
from torch_tpu.compiler.cached import Cached

pytestmark = [only_tpu, pytest.mark.usefixtures("fresh_dynamo")]

TRAINING = """
import sys
import torch
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).to("tpu")
torch.compile(model)(torch.ones(2, 4, device="tpu")).sum().backward()
print(torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"])
heavy = ("ir", "scheduler", "lowering", "pattern_matcher", "decomposition", "codegen.wrapper")
print([name for name in heavy if "torch._inductor." + name in sys.modules])
from torch._dynamo import funcname_cache
print(len(funcname_cache.cache))
"""


@pytest.mark.slow
def test_inductor_is_not_imported(tmp_path):
    folder = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for hits in "01":
        status, out, error = python(TRAINING, **folder)
        assert status == 0, error
        assert out.split() == [hits, "[]", "0"]


def test_a_stand_in_makes_way_for_the_module(tmp_path, monkeypatch):
    (tmp_path / "stood_in_for.py").write_text("def one(): return 1\ndef two(): return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with _patches._stand_in("stood_in_for", one=lambda: "ours"):
        from stood_in_for import one

        assert one() == "ours"
        held = sys.modules["stood_in_for"]
        from stood_in_for import two

        assert two() == 2 and held.two() == 2
        assert sys.modules["stood_in_for"] is not held
    with _patches._stand_in("stood_in_for", one=lambda: "ours"):
        from stood_in_for import one

        assert one() == 1
    del sys.modules["stood_in_for"]
    with _patches._stand_in("stood_in_for"):
        pass
    assert "stood_in_for" not in sys.modules


def test_equal_operators_are_one_where_nothing_is_written_between():
    """The partitioner's pass relies on how we number what a graph writes."""

    def function(x, y):
        first = x.sin() * y
        return first, x.sin() * y + 1, (x * 2).exp_()

    args = [torch.randn(3, requires_grad=True), torch.randn(3)]
    on_device = [one.detach().to(DEVICE).requires_grad_(one.requires_grad) for one in args]
    want, got = function(*args), torch.compile(function)(*on_device)
    same(got, want, **LOOSE)
    sum(one.sum() for one in want).backward()
    sum(one.sum() for one in got).backward()
    same(on_device[0].grad, args[0].grad, **LOOSE)


def test_logs_of_traced_calls_name_functions(caplog):
    from torch._dynamo import output_graph

    logger = output_graph.trace_call_log
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(caplog.handler)
    try:
        torch.compile(lambda x: x + 1)(torch.ones(2, device=DEVICE))
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
    assert "(test_logs_of_traced_calls_name_functions" in caplog.text


def test_the_collector_is_as_it_was():
    assert gc.get_freeze_count() == 0
    torch.compile(lambda x: x * 5)(torch.ones(2, device=DEVICE))
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        torch.compile(lambda x: x * 6)(torch.ones(2, device=DEVICE))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_the_collector_counts_anew_once_a_graph_is_compiled():
    gc.disable()
    try:
        with backend._nothing_old_collected():
            many = [[one] for one in range(10_000)]
        assert gc.get_count()[0] < len(many) // 10
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_changed_source_is_seen(tmp_path):
    (tmp_path / "inner").mkdir()
    file = tmp_path / "inner" / "one.py"
    file.write_text("a")
    (tmp_path / "notes.txt").write_text("a")
    first = sources.fingerprint(tmp_path)
    assert sources.fingerprint(tmp_path) == first
    (tmp_path / "notes.txt").write_text("b")
    assert sources.fingerprint(tmp_path) == first
    times = file.stat()
    file.write_text("b")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert sources.fingerprint(tmp_path) != first


KEY = """
import torch
from torch._inductor import codecache
from torch_tpu.compiler import sources
from torch_tpu.compiler.cached import Cached
hashed, build = [], codecache.build_code_hash
codecache.build_code_hash = lambda *args: (hashed.append(1), build(*args))
sources.recall()
key = codecache.torch_key()
print(key.hex(), bool(hashed))
"""


@pytest.mark.slow
def test_the_hash_of_the_sources_is_pytorchs(tmp_path):
    folder = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    runs = [python(KEY, **folder)[1].split() for _ in range(2)]
    assert [hashed for _, hashed in runs] == ["True", "False"]
    file = tmp_path / sources.NAME
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    runs.append(python(KEY, **folder)[1].split())
    assert runs[-1][1] == "True" and file.read_bytes() == whole
    from torch._inductor.codecache import torch_key

    assert {key for key, _ in runs} == {torch_key().hex()}


@pytest.mark.parametrize("training", [True, False])
def test_a_forward_is_compiled_while_its_graphs_are_cached(training, monkeypatch):
    made = []
    save = Cached.prepare_for_serialization

    def saving(self):
        made.append(self.programs)
        save(self)

    monkeypatch.setattr(Cached, "prepare_for_serialization", saving)
    weight, x = torch.randn(6, 4, requires_grad=training), torch.randn(8, 6)
    function = torch.compile(lambda weight, x: (x @ weight).tan() * 1.5)
    given = weight.detach().to(DEVICE).requires_grad_(training), x.to(DEVICE)[2:5]
    [captures, programs], out = counted(lambda: function(*given), "captures", "programs")
    assert (captures, programs, made) == (1, 1, [1, 0] if training else [1])
    want = (x[2:5] @ weight).tan() * 1.5
    same(out, want, **LOOSE)
    [captures], out = counted(lambda: function(*given), "captures")
    assert captures == 0
    if training:
        want.sum().backward()
        out.sum().backward()
        same(given[0].grad, weight.grad, **LOOSE)


def test_an_obstacle_to_an_early_capture_is_none_to_the_call(monkeypatch):
    program = Cached._program
    tried = []

    def refusing(self, *args):
        tried.append(self)
        if len(tried) > 1:
            return program(self, *args)
        self.why = "not now"
        return None

    monkeypatch.setattr(Cached, "_program", refusing)
    x = torch.randn(5)
    same(torch.compile(lambda x: x.cos() - 3)(x.to(DEVICE)), x.cos() - 3, **LOOSE)
    assert len(tried) == 2 and not tried[0].why and tried[0].programs == 1
