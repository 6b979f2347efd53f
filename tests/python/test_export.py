"""Exported programs: as text, in files that are loaded again, and by tt_run without Python."""

import json
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support import DEVICE, LOOSE, ROOT, only_tpu, same, slow_but

from torch_tpu import export

pytestmark = only_tpu
TT_RUN = ROOT / "build/release/tt_run"
JAX = ROOT / ".venv-bench/bin/python"
needs_tt_run = pytest.mark.skipif(not TT_RUN.exists(), reason="tt_run is not built")


class Block(torch.nn.Module):
    """Attention and a perceptron, with weights that are shared."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.again = self.out
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x, *, causal=True):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).transpose(1, 3).unbind(2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        y = self.again(self.out(y.transpose(1, 2).flatten(2))) * self.scale
        return {"y": x + y, "first": (y[:, 0].t(), causal)}


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


def conv_net():
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()]
    return torch.nn.Sequential(
        *layers, torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(128, 5)
    )


def filled(model):
    """Eval mode, with weights and statistics that are all different."""
    torch.manual_seed(3)
    for one in [*model.parameters(), *model.buffers()]:
        if one.is_floating_point():
            one.data.uniform_(0.1, 0.4)
    return model.eval()


def tt_run(*arguments, **environment):
    """Runs the command; returns its status, stdout and stderr."""
    command = [str(TT_RUN), *map(str, arguments)]
    from torch_tpu import _C

    torch.tpu.init()
    environment = {**os.environ, "TORCH_TPU_PLUGIN": _C.plugin_path(), **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    return done.returncode, done.stdout, done.stderr


def array(one):
    """As NumPy has it, with bfloat16 as raw elements."""
    one = one.detach().cpu().contiguous()
    if one.dtype is torch.bfloat16:
        return one.view(torch.int16).numpy().view("V2")
    return one.numpy()


def check_file(path, function, inputs, want):
    """What `load` and tt_run compute of a file is what is wanted."""
    loaded = export.load(path)
    same(loaded(*(one.to(DEVICE) for one in inputs)), want, **LOOSE)
    if not TT_RUN.exists():
        return loaded
    folder = path.parent
    for i, one in enumerate(inputs):
        np.save(folder / f"{i}.npy", array(one))
    files = [folder / f"{i}.npy" for i in range(len(inputs))]
    status, out, error = tt_run(path, *files, "--out", folder, "--json")
    assert (status, error) == (0, ""), error
    assert json.loads(out)["program"] == loaded.source == "loaded"
    leaves = [x for x in torch.utils._pytree.tree_leaves(want) if isinstance(x, torch.Tensor)]
    for port, one in zip(loaded.outputs, leaves, strict=False):
        got = np.load(folder / f"{port.name}.npy")
        np.testing.assert_allclose(got.astype(np.float64), array(one), rtol=1e-4, atol=1e-5)
    return loaded


MODELS = {
    "perceptron": (mlp, lambda: (torch.randn(3, 8),)),
    "convolution": (conv_net, lambda: (torch.randn(2, 3, 8, 8),)),
    "attention": (Block, lambda: (torch.randn(2, 5, 16),)),
    "recurrent": (lambda: torch.nn.LSTM(8, 6, batch_first=True), lambda: (torch.randn(2, 4, 8),)),
    "embedding": (lambda: torch.nn.EmbeddingBag(9, 4), lambda: (torch.randint(9, (3, 4)),)),
}


@pytest.mark.parametrize("name", slow_but(MODELS, "perceptron", "attention"))
def test_a_file_computes_what_the_model_does(name, tmp_path):
    make, inputs = MODELS[name]
    model, args = filled(make()), inputs()
    want = model(*args)
    export.save(tmp_path / "model", model, args)
    loaded = check_file(tmp_path / "model", model, args, want)
    assert {one.name for one in loaded.outputs if one.new_value_of} == set()
    with torch.no_grad():
        eager = model.to(DEVICE)(*(one.to(DEVICE) for one in args))
    same(loaded(*(one.to(DEVICE) for one in args)), eager, **LOOSE)


def test_text_has_the_arguments_in_order():
    model = filled(Block())
    program = export.stablehlo(model, (torch.randn(2, 5, 16),), {"causal": False})
    assert [one.name for one in program.inputs] == ["x"]
    assert [one.name for one in program.outputs] == ["output.y", "output.first.0"]
    assert "func.func public @main(%arg0: tensor<2x5x16xf32>" in str(program)
    assert not program.weights and "tf.aliasing_output" not in program.text
    beside = export.stablehlo(model, (torch.randn(2, 5, 16),), weights="beside")
    names = [one.name for one in beside.inputs if one.kind == "weight"]
    assert names == list(beside.weights) and "out.weight" in names and "again.weight" not in names
    assert beside.text.partition("@program(")[0].count("dense<") <= 1  # run-time numbers


def test_weights_are_written_beside(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model = filled(mlp())
    export.stablehlo(model, (torch.randn(1, 8),), weights="beside").write(tmp_path / "net.mlir")
    assert "@main" in (tmp_path / "net.mlir").read_text()
    written = safetensors.load_file(tmp_path / "net.safetensors")
    same(written, {name: model.state_dict()[name] for name in written})
    assert len(written) == 4


def test_what_is_written_is_a_result(tmp_path):
    def step(x, total):
        total.add_(x.sum())
        return total * 2

    x, total = torch.arange(3.0), torch.tensor(1.0)
    program = export.stablehlo(step, (x, total))
    assert [(one.name, one.new_value_of) for one in program.outputs] == [
        ("output", ""),
        ("total", "total"),
    ]
    export.save(tmp_path / "step", step, (x, total))
    x_device, total_device = x.to(DEVICE), torch.ones(2, 1, device=DEVICE)[1, 0]
    loaded = export.load(tmp_path / "step")
    same(loaded(x_device, total_device).cpu(), torch.tensor(8.0))
    same(loaded(total=total_device, x=x_device).cpu(), torch.tensor(14.0))
    same(total_device.cpu(), torch.tensor(7.0))


def test_statistics_are_weights_that_are_written(tmp_path):
    model = torch.nn.BatchNorm1d(3)
    x = torch.randn(4, 3)
    export.save(tmp_path / "norm", model, (x,))
    loaded = export.load(tmp_path / "norm")
    for _ in range(2):
        same(loaded(x.to(DEVICE)), model(x), **LOOSE)
    same(
        {name: loaded.weights[name].cpu() for name in dict(model.named_buffers())},
        dict(model.named_buffers()),
        **LOOSE,
    )


def noisy(x):
    return F.dropout(x, 0.5, True), torch.rand(5, device=x.device)


def test_places_of_random_numbers_are_added_in_64_bits(tmp_path):
    x = torch.ones(300, device=DEVICE)
    export.save(tmp_path / "noisy", noisy, (x,))
    loaded = export.load(tmp_path / "noisy")
    for offset in (2**32 - 100, 2**34 - 400, 2**40 + 7):
        state = torch.tensor([-3, offset]).view(torch.uint8)
        results = []
        for function in (noisy, loaded):
            torch.tpu.set_rng_state(state)
            results.append([*function(x), torch.tpu.get_rng_state()])
        same(results[1], results[0])


def test_random_numbers_are_the_generators(tmp_path):
    x = torch.ones(300, device=DEVICE)
    program = export.save(tmp_path / "noisy", noisy, (x,))
    assert program.inputs[-1].kind == "random" and program.blocks > 0
    loaded = export.load(tmp_path / "noisy")
    results = []
    for function in (noisy, loaded):
        torch.manual_seed(11)
        results.append([function(x), function(x)])
    same(results[1], results[0])
    assert not torch.equal(results[1][0][0].cpu(), results[1][1][0].cpu())
    np.save(tmp_path / "x.npy", array(x))
    if TT_RUN.exists():
        arguments = [tmp_path / "noisy", tmp_path / "x.npy", "--seed", 11, "--out", tmp_path]
        for repeat in (1, 2):
            status, _, error = tt_run(*arguments, "--repeat", repeat)
            assert status == 0, error
            want = [array(one) for one in results[0][repeat - 1]]
            for i in range(2):
                np.testing.assert_array_equal(np.load(tmp_path / f"output.{i}.npy"), want[i])
    fixed = export.stablehlo(noisy, (x,), seed=11)
    assert [one.kind for one in fixed.inputs] == ["input"]


def test_tensors_of_a_closure_are_constants(tmp_path):
    shift = torch.arange(4.0, device=DEVICE)
    flags = torch.tensor([True, False, True, True], device=DEVICE)

    def function(x, scale):
        return torch.where(flags, x * scale, shift)

    x = torch.randn(4, device=DEVICE)
    assert 'dense<"0x' in export.stablehlo(function, (x, 2)).text
    export.save(tmp_path / "closure", function, (x, 2))
    want = function(x, 2).cpu()
    shift.zero_()
    loaded = export.load(tmp_path / "closure")
    same(loaded(x, 2).cpu(), want)
    with pytest.raises(ValueError, match=r"argument scale is 3; the program is for 2"):
        loaded(x, 3)


def test_an_exported_program_may_come_from_the_cpu(tmp_path):
    class Positions(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(6, 4)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls.add_(1)
            return x + self.table(torch.arange(x.shape[0], device=x.device)) + self.calls

    model, x = Positions(), torch.randn(3, 4)
    exported = torch.export.export(model, (x,))
    export.save(tmp_path / "positions", exported, (x,))
    loaded = export.load(tmp_path / "positions")
    for _ in range(2):
        same(loaded(x.to(DEVICE)), model(x), **LOOSE)


def test_what_is_compiled_is_exported_as_it_was(tmp_path):
    model = filled(mlp())
    x = torch.randn(3, 8)
    names = [one.name for one in export.stablehlo(torch.compile(model), (x,)).inputs]
    assert names == ["input"]
    want = model(x) * 2
    model.to(DEVICE)
    program = export.save(tmp_path / "file", torch.compile(lambda x: model(x) * 2), (x,))
    assert [one.kind for one in program.inputs] == ["input"] + ["weight"] * 4
    same(export.load(tmp_path / "file")(x.to(DEVICE)), want, **LOOSE)


def test_dtypes(tmp_path):
    def function(a, b, c, d):
        return a + 1, b.logical_not(), c * 2, d + 1j

    args = (
        torch.tensor([1.5, -2], dtype=torch.bfloat16),
        torch.tensor([True, False, True]),
        torch.tensor(7, dtype=torch.int64),
        torch.tensor([[1 + 2j]]),
    )
    want = function(*args)
    export.save(tmp_path / "dtypes", function, args)
    same(export.load(tmp_path / "dtypes")(*(one.to(DEVICE) for one in args)), want)
    if not TT_RUN.exists():
        return
    for i, one in enumerate(args):
        np.save(tmp_path / f"{i}.npy", array(one))
    names = "abcd"
    files = [part for i in range(4) for part in ("-i", f"{names[i]}={tmp_path / f'{i}.npy'}")]
    status, out, error = tt_run(tmp_path / "dtypes", *files, "--out", tmp_path)
    assert status == 0, error
    assert "output.0 bf16[2]: 2.5 -1" in out and "output.1 i1[3]: 0 1 0" in out
    for i, one in enumerate(want):
        got = np.load(tmp_path / f"output.{i}.npy")
        assert got.tobytes() == array(one).tobytes() and got.shape == tuple(one.shape)


@needs_tt_run
def test_wrong_use_is_a_sentence_and_status_1(tmp_path):
    path = tmp_path / "file"
    export.save(path, mlp(), (torch.randn(3, 8),))
    np.save(tmp_path / "good.npy", np.zeros((3, 8), np.float32))
    np.save(tmp_path / "shape.npy", np.zeros((8, 3), np.float32))
    np.save(tmp_path / "dtype.npy", np.zeros((3, 8), np.float64))
    (tmp_path / "none.npy").write_bytes(b"nothing")
    good, data = tmp_path / "good.npy", path.read_bytes()
    other = bytearray(data)
    other[8] += 1
    (tmp_path / "version").write_bytes(other)
    (tmp_path / "cut").write_bytes(data[:-1])
    cases = [
        (["/nowhere"], "cannot read '/nowhere'"),
        ([good], "is no file that torch_tpu.export.save wrote"),
        ([tmp_path / "version", good], "has format 2, and this version reads format 1"),
        ([tmp_path / "cut", good], "was cut short"),
        ([path], "input 'input' has no value"),
        ([path, tmp_path / "shape.npy"], "of shape (8, 3), not '<f4' (f32) of shape (3, 8)"),
        ([path, tmp_path / "dtype.npy"], "input 'input': "),
        ([path, tmp_path / "none.npy"], "is no .npy file"),
        ([path, "-i", f"y={good}"], "--list tells them"),
        ([path, good, good], "is an input too many"),
        ([path, good, "--plugin", "/nowhere.so"], "cannot read the PJRT plugin '/nowhere.so'"),
        ([path, good, "--device", "7"], "there is no device 7"),
        ([path, good, "--out", "/nowhere"], "cannot write '/nowhere/output.npy'"),
    ]
    for arguments, words in cases:
        status, out, error = tt_run(*arguments)
        assert status == 1 and words in error and error.count("\n") == 1 and not out, error
    assert tt_run()[0] == tt_run(path, "--repeat", "x")[0] == 64
    status, out, _ = tt_run(path, "--list")
    assert status == 0 and "input  input f32[3,8]" in out and "weight 0.weight f32[16,8]" in out


@needs_tt_run
def test_another_key_is_compiled(tmp_path):
    export.save(tmp_path / "file", mlp(), (torch.randn(3, 8),))
    np.save(tmp_path / "x.npy", np.zeros((3, 8), np.float32))
    arguments = [tmp_path / "file", tmp_path / "x.npy", "--json", "--repeat", "3"]
    first = json.loads(tt_run(*arguments)[1])
    again = json.loads(tt_run(*arguments, XLA_FLAGS="--xla_cpu_enable_fast_math=false")[1])
    assert (first["program"], again["program"]) == ("loaded", "compiled")
    assert first["runs"] == 3 and first["least_ms"] <= first["median_ms"]
    same(first["outputs"], again["outputs"])


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "file"
    export.save(path, lambda x: x + 1, (torch.randn(2),))
    data = path.read_bytes()
    for at in (0, 9, 30, 90, 200, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with pytest.raises(RuntimeError, match=str(path)):
            export.load(path)


@pytest.mark.slow
@needs_tt_run
def test_no_byte_that_changed_crashes_tt_run(tmp_path):
    path, other = tmp_path / "file", tmp_path / "other"
    export.save(path, lambda x: x + 1, (torch.randn(2),))
    data = path.read_bytes()
    for at in range(len(data)):
        other.write_bytes(data[:at] + bytes([data[at] ^ 255]) + data[at + 1 :])
        status, out, error = tt_run(other, "--list")
        assert status == 1 and str(other) in error and not out, at


def test_what_cannot_be_exported_says_why():
    total = torch.zeros(2, device=DEVICE)
    x = torch.ones(2, device=DEVICE)
    with pytest.raises(RuntimeError, match="writes a tensor that is no argument and no weight"):
        export.stablehlo(lambda x: total.add_(x), (x,))
    with pytest.raises(RuntimeError, match="value is asked for"):
        export.stablehlo(lambda x: x * x.sum().item(), (x,))
    with pytest.raises(TypeError, match="output is on cpu"):
        export.stablehlo(lambda x: torch.ones(3), (x,))
    with pytest.raises(TypeError, match="returns what no program can"):
        export.stablehlo(lambda x: (x, object()), (x,))
    with pytest.raises(TypeError, match="a module, function or ExportedProgram"):
        export.stablehlo(3, (x,))
    with pytest.raises(ValueError, match="inside"):
        export.stablehlo(lambda x: x, (x,), weights="above")
    same((x + 1).cpu(), torch.full((2,), 2.0))  # nothing is left captured


@pytest.mark.parametrize(
    ("function", "size"),
    [(torch.linalg.qr, (3, 3)), (torch.nn.Conv2d(3, 4, 3), (1, 3, 8, 8))],
    ids=["qr", "convolution"],
)
def test_exported_programs_call_nothing_of_this_process(function, size):
    assert "torch_tpu." not in export.stablehlo(function, (torch.ones(size, device=DEVICE),)).text


def test_what_only_lapack_computes_is_not_exported():
    with pytest.raises(NotImplementedError, match="LAPACK, which alone computes it"):
        export.stablehlo(torch.linalg.eigvals, (torch.eye(3, device=DEVICE),))


def test_names_may_be_alike(tmp_path):
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(3.0))

        def forward(self, weight, random, *more, **named):
            noise = torch.rand((), device=random.device)
            return weight * self.weight + random + more[0] + named["more_0"] + 0 * noise

    args = [torch.tensor(float(i)) for i in (1, 10, 100)]
    program = export.save(tmp_path / "file", Scaled(), args, {"more_0": torch.tensor(1000.0)})
    names = [one.name for one in program.inputs]
    assert names == ["weight", "random", "more_0", "more_0_1", "weight_1", "random"]
    loaded = export.load(tmp_path / "file")
    moved = [one.to(DEVICE) for one in args]
    same(loaded(*moved, more_0=torch.tensor(1000.0, device=DEVICE)).cpu(), torch.tensor(1113.0))


def test_arguments_are_checked(tmp_path):
    export.save(tmp_path / "sum", lambda x, y: x + y, (torch.ones(2), torch.ones(2)))
    loaded = export.load(tmp_path / "sum")
    one = torch.ones(2, device=DEVICE)
    with pytest.raises(TypeError, match="input y is missing"):
        loaded(one)
    with pytest.raises(TypeError, match="takes no z"):
        loaded(one, one, z=one)
    with pytest.raises(TypeError, match="3 positional arguments"):
        loaded(one, one, one)
    with pytest.raises(ValueError, match=r"input x is torch.float32\[3\]; the program is for"):
        loaded(torch.ones(3, device=DEVICE), one)
    with pytest.raises(ValueError, match=r"input x is torch\.int64"):
        loaded(one.long(), one)
    with pytest.raises(ValueError, match="input y is on cpu"):
        loaded(one, torch.ones(2))
    assert "x: torch.float32[2]" in repr(loaded)


@pytest.mark.skipif(not shutil.which("c++"), reason="there is no C++ compiler")
def test_the_example_of_the_c_api(tmp_path):
    """docs/c_api.md's, as it is there."""
    code = re.search(r"```cpp\n(.*?)```", (ROOT / "docs/c_api.md").read_text(), re.DOTALL)[1]
    (tmp_path / "service.cpp").write_text(code)
    library = ROOT / "build/release/libtt_core.a"
    if not library.exists():
        pytest.skip("libtt_core.a is not built")
    command = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "core")]
    command += [str(tmp_path / "service.cpp"), str(library), "-ldl", "-lpthread", "-lm"]
    subprocess.run([*command, "-o", str(tmp_path / "service")], check=True)
    model = filled(mlp())
    export.save(tmp_path / "file", model, (torch.randn(3, 8),))
    run = [tmp_path / "service", tmp_path / "file"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    got = torch.tensor([float(line) for line in done.stdout.split()])
    same(got, model(torch.ones(3, 8)).detach().flatten(), **LOOSE)
    done = subprocess.run([run[0], "/nowhere"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and done.stderr.startswith("error: cannot read '/nowhere'")


# -- JAX --


def test_bytecode_needs_jaxlib():
    program = export.stablehlo(lambda x: x + 1, (torch.ones(2),))
    try:
        import jaxlib  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError, match="jaxlib"):
            program.bytecode()
    else:
        assert program.bytecode().startswith(b"ML\xefR")


@pytest.mark.slow
@pytest.mark.skipif(not JAX.exists(), reason="JAX is installed by `make bench-env`")
def test_jax_draws_the_same_numbers(tmp_path):
    x = torch.ones(300, device=DEVICE)
    torch.manual_seed(11)
    want = noisy(x)
    for name, seed, more in (
        ("given", None, [np.array([11, 0, 0, 0], np.uint32)]),
        ("set", 11, []),
    ):
        folder = tmp_path / name
        folder.mkdir()
        export.stablehlo(noisy, (x,), seed=seed).write(folder / "main.mlir")
        np.savez(folder / "inputs.npz", **{str(i): a for i, a in enumerate([array(x), *more])})
        command = [str(JAX), str(ROOT / "tests/python/stablehlo_jax.py"), str(folder)]
        subprocess.run(command, check=True, timeout=300)
        with np.load(folder / "results.npz") as results:
            for i in range(2):
                np.testing.assert_array_equal(results[str(i)], array(want[i]))


def architecture(index):
    architectures = pytest.importorskip("architectures")
    model, batch = architectures.build(architectures.ARCHITECTURES[index])
    model.config.use_cache = False
    return model.eval(), batch


@pytest.mark.slow
@needs_tt_run
@pytest.mark.skipif(not JAX.exists(), reason="JAX is installed by `make bench-env`")
def test_jax_and_tt_run_agree(tmp_path):
    """Ten models and more: equal numbers from JAX, from tt_run, and, nearly, from the CPU."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    pytest.importorskip("transformers")
    import architectures

    cases = {name: (filled(make()), inputs(), {}) for name, (make, inputs) in MODELS.items()}
    for index in range(0, len(architectures.ARCHITECTURES), 8):
        name = architectures.ARCHITECTURES[index].model_type
        model, batch = architecture(index)
        cases[name] = (model, (), batch)
    assert len(cases) >= 10
    wanted = {}
    for name, (model, args, kwargs) in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        kwargs = {k: v for k, v in kwargs.items() if isinstance(v, torch.Tensor)}
        with torch.no_grad():
            wanted[name] = (export.stablehlo(model, args, kwargs), model(*args, **kwargs))
        program = wanted[name][0]
        (folder / "main.mlir").write_text(program.text)
        given = {**dict(zip([one.name for one in program.inputs], args, strict=False)), **kwargs}
        arrays = [array(given[one.name]) for one in program.inputs]
        np.savez(folder / "inputs.npz", **{str(i): one for i, one in enumerate(arrays)})
        export.save(folder / "file", model, args, kwargs)
        for i, one in enumerate(arrays):
            np.save(folder / f"{i}.npy", one)
    folders = [str(tmp_path / name) for name in cases]
    command = [str(JAX), str(ROOT / "tests/python/stablehlo_jax.py"), *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    for name, (program, want) in wanted.items():
        folder = tmp_path / name
        files = [folder / f"{i}.npy" for i in range(len(program.inputs))]
        status, _, error = tt_run(folder / "file", *files, "--out", folder)
        assert status == 0, error
        leaves = [x for x in torch.utils._pytree.tree_leaves(want) if isinstance(x, torch.Tensor)]
        with np.load(folder / "results.npz") as results:
            for i, (port, leaf) in enumerate(zip(program.outputs, leaves, strict=True)):
                mine = np.load(folder / f"{port.name}.npy")
                np.testing.assert_allclose(mine, results[str(i)], rtol=1e-5, atol=1e-6)
                np.testing.assert_allclose(mine, array(leaf), rtol=1e-3, atol=1e-4)
