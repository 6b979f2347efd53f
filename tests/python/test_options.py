"""Options of the plugin's compiler, by name: they reach it, and are part of what a program is."""

import pytest
import torch
from support import DEVICE, LOOSE, counted, only_tpu, python, same

from torch_tpu import compiler, export

pytestmark = [
    only_tpu,
    pytest.mark.cpu_plugin("its options by name"),
    pytest.mark.usefixtures("fresh_dynamo"),
]
COUNTED = ("captures", "programs", "compiles")


def function(x):
    return (x * 2).sin()


def test_the_plugin_is_given_them(tmp_path):
    x = torch.arange(4.0)
    options = {"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True, "repeat": False}
    same(torch.compile(function, options=options)(x.to(DEVICE)), function(x))
    assert any("sine" in file.read_text() for file in tmp_path.glob("*optimizations.txt"))


def test_other_options_are_another_program_and_equal_ones_the_same():
    x = torch.ones(3, device=DEVICE)
    options = {"xla_backend_optimization_level": 0, "xla_cpu_max_isa": "AVX2"}
    made = []
    for given in (None, options, dict(reversed(options.items())), None, options | {"repeat": True}):
        torch._dynamo.reset()
        [captures, programs, _], out = counted(
            lambda given=given: torch.compile(lambda x: function(x) - 3, options=given)(x), *COUNTED
        )
        same(out, function(x.cpu()) - 3)
        assert captures == 1
        made.append(programs > 0)
    assert made == [True, True, False, False, False]


def test_a_backward_has_the_options_of_its_forward():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    known = set(compiler.compiled())
    torch.compile(function, options={"xla_backend_optimization_level": 0})(x).sum().backward()
    same(x.grad, 2 * torch.cos(torch.full((3,), 2.0)))
    graphs = [one for one in compiler.compiled() if one not in known]
    texts = [program["text"] for one in graphs for held in one.captured for program in held.tell()]
    assert len(texts) == 2
    assert all(text.startswith("// option xla_backend_optimization_level int 0") for text in texts)


@pytest.mark.slow
def test_each_stretch_of_a_graph_has_them():
    def layers(x, weights):
        for weight in weights:
            x = (x @ weight).sin()
        return x

    x, weights = torch.ones(2, 2), [torch.full((2, 2), 0.1 * k) for k in range(6)]
    options = {"xla_backend_optimization_level": 0, "repeat": True}
    given = [weight.to(DEVICE) for weight in weights]
    same(torch.compile(layers, options=options)(x.to(DEVICE), given), layers(x, weights), **LOOSE)
    [made] = compiler.compiled()[-1].captured
    told = made.tell()
    assert sum(one["launches"] for one in told) > 1
    assert all(one["text"].startswith("// option xla_backend") for one in told)


CODE = """
import torch
from torch_tpu import compiler
x = torch.ones(5, device="tpu")
torch.compile(lambda x: (x + 7).exp(), options={"xla_cpu_max_isa": "AVX2"})(x).cpu()
seen = torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
metrics = torch.tpu.metrics()
text = compiler.compiled()[-1].captured[0].tell()[0]["text"]
print(seen, metrics["compiles"], "xla_cpu_max_isa" in text)
"""


@pytest.mark.slow
def test_caches_on_disk_keep_them(tmp_path):
    folders = {"TORCH_TPU_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "g")}
    status, first, error = python(CODE, **folders)
    assert status == 0, error
    other = CODE.replace('{"xla_cpu_max_isa": "AVX2"}', "{}")
    assert python(other, **folders)[1].split() == ["0", "1", "False"]
    assert first.split()[0] == "0" and first.split()[2] == "True"
    assert python(CODE, **folders)[1].split() == ["1", "0", "True"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("xla_no_such_thing", 1, "No such compile option"),
        ("xla_cpu_enable_fast_math", 1, "not a valid bool"),
        ("xla_backend_optimization_level", True, "not a valid int32"),
        ("xla_backend_optimization_level", 0.5, "not a valid int32"),
        ("xla_cpu_opt_preset", "NOPE", "not a valid enum"),
        ("xla_cpu_max_isa", "a\nb", "one line of text"),
        ("xla_cpu_max_isa", None, "one line of text"),
        ("xla_dump_hlo_as_text", 1 << 63, "64 bits"),
        ("xla_cpu_parallel_codegen_split_count", -1, "1 or more"),
        ("xla_Upper", 1, "in lower case"),
    ],
)
def test_what_the_plugin_does_not_take_is_said_when_it_is_compiled(tmp_path, name, value, reason):
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(RuntimeError, match=f"(?s)ValueError: the option {name}=.*{reason}"):
        torch.compile(function, options={name: value})(x)
    with pytest.raises(ValueError, match=f"the option {name}=.*{reason}"):
        export.save(tmp_path / "function", function, (x,), options={name: value})
    assert not (tmp_path / "function").exists()


def test_values_of_each_kind_are_taken():
    lines = compiler.options.lines
    assert lines({}) == ""
    assert lines({"xla_cpu_enable_fast_math": False}).endswith("bool false\n")
    assert lines({"xla_gpu_auto_spmd_partitioning_memory_budget_ratio": 0.0}).endswith("str 0.0\n")
    assert lines({"xla_cpu_opt_preset": "CPU_OPT_PRESET_FAST_COMPILE"}).endswith("COMPILE\n")
    assert lines({"xla_cpu_max_isa": ""}).endswith("str \n")


@pytest.mark.slow
def test_files_keep_them(tmp_path):
    x = torch.arange(3.0)
    options = {"xla_backend_optimization_level": 0}
    program = export.save(tmp_path / "one", function, (x,), options=options)
    loaded = export.load(tmp_path / "one")
    same(loaded(x.to(DEVICE)), function(x))
    assert loaded.text == program.text and loaded.source == "loaded"
    assert program.text.startswith("// option xla_backend_optimization_level int 0\n")
    dumped = {"xla_dump_to": str(tmp_path / "dump"), "xla_dump_hlo_as_text": True}
    export.save(tmp_path / "two", function, (x,), options=dumped)
    assert list((tmp_path / "dump").iterdir())
