"""Products of f32 numbers carry the precision that is asked for."""

import pytest
import torch
from support import alone, modes, only_tpu, python, slow_but

pytestmark = only_tpu
OPERATORS = {
    "mm": lambda x: x @ x,
    "addmm": lambda x: torch.addmm(x, x, x),
    "conv": lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x[None, None]] * 3),
}
SETTINGS = {
    "": "HIGHEST",
    "torch.set_float32_matmul_precision('highest')": "HIGHEST",
    "torch.set_float32_matmul_precision('high')": "HIGH",
    "torch.set_float32_matmul_precision('medium')": "",
    "torch.backends.cuda.matmul.allow_tf32 = True": "HIGH",
    "torch.backends.fp32_precision = 'tf32'": "HIGH",
    "torch.backends.fp32_precision = 'ieee'": "HIGHEST",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'": "HIGHEST",  # of another device
    "torch.tpu.precision('high').__enter__()": "HIGH",
    "torch.tpu.precision('default').__enter__()": "",
    "torch.set_float32_matmul_precision('high'); torch.tpu.precision(2).__enter__()": "HIGHEST",
}
QUICK = [
    "",
    "torch.set_float32_matmul_precision('high'); torch.tpu.precision(2).__enter__()",
]
WORK = """
import torch
{setting}
x = torch.randn(4, 4, dtype=torch.{dtype}).to("tpu")
(x @ x).sum().item()
torch.nn.functional.conv1d(x[None], x[:, :, None]).sum().item()
"""


def precisions(folder, setting, dtype="float32"):
    """Returns the precisions that the StableHLO of products names."""
    code, _, errors = python(
        WORK.format(setting=setting, dtype=dtype),
        TORCH_TPU_CACHE_DIR=str(folder),
        TORCH_TPU_CONVOLUTIONS="xla",
        TORCH_TPU_KERNELS="xla",
    )
    assert code == 0, errors
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    products = [t for t in texts if b"dot_general" in t or b"stablehlo.convolution" in t]
    assert len(products) == 2
    names = ("HIGHEST", "HIGH")
    return {
        next((name for name in names if f"<precision {name}>".encode() in text), "")
        for text in products
    }


@pytest.mark.parametrize("setting", slow_but(SETTINGS, *QUICK), ids=str)
def test_precision_of_programs(setting, tmp_path):
    assert precisions(tmp_path, setting) == {SETTINGS[setting]}


def test_other_dtypes_have_none(tmp_path):
    assert precisions(tmp_path, "", "bfloat16") == {""}


def compare_programs(name):
    x = torch.randn(4, 4, device="tpu")
    wanted = OPERATORS[name](x.cpu())
    for mode in modes():
        with torch.tpu.set_eager_mode(mode):
            OPERATORS[name](x).cpu()
            with torch.tpu.precision("high"):
                before = torch.tpu.metrics()["programs"]
                torch.testing.assert_close(OPERATORS[name](x).cpu(), wanted)
                assert torch.tpu.get_precision() is torch.tpu.Precision.HIGH
                new = torch.tpu.metrics()["programs"] - before
            before = torch.tpu.metrics()["programs"]
            torch.testing.assert_close(OPERATORS[name](x).cpu(), wanted)
            assert torch.tpu.metrics()["programs"] == before
            assert new > 0 or mode != "debug"  # an earlier mode may have made it


@pytest.mark.parametrize("name", OPERATORS)
def test_another_precision_is_another_program(name):
    if name == "conv":
        alone(compare_programs, name, TORCH_TPU_CONVOLUTIONS="xla")
    else:
        compare_programs(name)


def test_why_it_is_another():
    x = torch.randn(3, 5, device="tpu")
    (x @ x.t()).cpu()
    with torch.tpu.precision("default"):
        (x @ x.t()).cpu()
    assert "the precision of products is another" in torch.tpu.explain()


def test_what_is_no_precision():
    with pytest.raises(ValueError, match="default, high, highest"):
        torch.tpu.precision("low")
    with pytest.raises(ValueError):
        torch.tpu.precision(3)
    assert torch.tpu.get_precision() is torch.tpu.Precision.HIGHEST
