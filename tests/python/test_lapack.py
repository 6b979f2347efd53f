"""What programs let LAPACK compute: the CPU's own numbers, signs and orders included."""

import math

import pytest
import torch
from support import check, check_gradients, modes, only_tpu, python

pytestmark = [
    only_tpu,
    pytest.mark.cpu_plugin("only its programs call LAPACK"),
    pytest.mark.usefixtures("no_host"),
]
linalg = torch.linalg
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def hermitian(a):
    return a + a.mH


def positive(a):
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype)


def sizes(dtype, *shapes):
    """The first for every dtype, all of them for the first dtype."""
    return shapes if dtype is DTYPES[0] else shapes[:1]


SQUARE = {
    "lu_factor": (linalg.lu_factor, None),
    "lu": (linalg.lu, None),
    "cholesky": (linalg.cholesky_ex, positive),
    "cholesky upper": (lambda a: linalg.cholesky(a, upper=True), positive),
    "eigh": (linalg.eigh, hermitian),
    "eigh upper": (lambda a: linalg.eigh(a, UPLO="U"), None),
    "eigvalsh": (linalg.eigvalsh, hermitian),
    "eig": (linalg.eig, None),
    "eigvals": (linalg.eigvals, None),
    "ldl": (linalg.ldl_factor_ex, lambda a: a + a.mT),
    "ldl hermitian": (lambda a: linalg.ldl_factor_ex(a, hermitian=True), hermitian),
}
ANY = {
    "qr": linalg.qr,
    "qr complete": lambda a: linalg.qr(a, mode="complete"),
    "geqrf": torch.geqrf,
    "svd": linalg.svd,
    "svd reduced": lambda a: linalg.svd(a, full_matrices=False),
    "svdvals": linalg.svdvals,
    "lu_factor": linalg.lu_factor,
}


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SQUARE)
def test_square_matrices(name, dtype):
    function, prepare = SQUARE[name]
    for shape in sizes(dtype, (2, 3, 4, 4), (20, 20), (0, 0), (0, 2, 2)):
        a = torch.randn(shape, dtype=dtype)
        check(function, prepare(a) if prepare else a)


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ANY)
def test_matrices_of_any_sizes(name, dtype):
    for shape in sizes(dtype, (2, 5, 3), (3, 5), (20, 9), (2, 0), (0, 3)):
        check(ANY[name], torch.randn(shape, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("self_adjoint", [False, True])
def test_solutions_with_bunch_kaufman_factors(self_adjoint, dtype):
    def solve(a, b):
        factors, pivots = linalg.ldl_factor(a, hermitian=self_adjoint)
        return linalg.ldl_solve(factors, pivots, b, hermitian=self_adjoint)

    for shape in sizes(dtype, (2, 4, 4), (30, 30)):
        a = torch.randn(shape, dtype=dtype)
        b = torch.randn(*shape[:-1], 3, dtype=dtype)
        check(solve, hermitian(a) if self_adjoint else a + a.mT, b)
    check(solve, torch.eye(2, dtype=dtype), torch.randn(3, 2, 1, dtype=dtype))  # batches meet


@pytest.mark.parametrize("mode", modes())
def test_gradients(mode):
    a = torch.tensor([[2.0, 1, 0], [0.5, 3, 1], [0.1, 0.2, 5]]).requires_grad_()
    with torch.tpu.set_eager_mode(mode):
        check_gradients(lambda x: torch.view_as_real(linalg.eigvals(x)), a)
        check_gradients(lambda x: linalg.eig(x).eigenvectors.abs(), a)
        check_gradients(linalg.svdvals, a)
        check_gradients(lambda x: linalg.eigh(x + x.mT).eigenvectors.abs(), a)


def test_strides_are_the_cpus():
    a = torch.randn(2, 4, 4)
    for function in (linalg.eig, linalg.eigh, linalg.svd, linalg.ldl_factor_ex, linalg.qr):
        for ours, theirs in zip(function(a.to("tpu")), function(a), strict=True):
            assert ours.stride() == theirs.stride()


FAILING = [linalg.eig, linalg.eigvals, linalg.eigh, linalg.eigvalsh, linalg.svd, linalg.svdvals]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("function", FAILING)
def test_numbers_that_are_not_finite(function, value):
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 1, 1] = value
    try:
        function(a)
    except RuntimeError as theirs:
        with torch.tpu.set_eager_mode("debug"), pytest.raises(type(theirs)):
            function(a.to("tpu"))
        for mode in set(modes()) - {"debug"}:
            with torch.tpu.set_eager_mode(mode):
                results = function(a.to("tpu"))
                values = results if torch.is_tensor(results) else results[0]
                assert values[0].cpu().isfinite().all()
    else:
        check(function, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.complex128])
def test_eigenvalues_of_what_cannot_be_balanced(dtype):
    """Of a full matrix with a NaN, LAPACK ends the process, as it does on the CPU."""
    for place in ((2, 2), (2, 1)):
        a = torch.arange(25).reshape(5, 5).to(dtype)
        a[place] = math.nan
        with torch.tpu.set_eager_mode("strict"):
            assert linalg.eigvals(a.to("tpu")).isnan().all()
            assert linalg.eig(a.to("tpu")).eigenvalues.isnan().all()
        with torch.tpu.set_eager_mode("debug"), pytest.raises(RuntimeError, match="not finite"):
            linalg.eigvals(a.to("tpu"))


def test_dtypes_that_lapack_lacks_are_refused_as_on_the_cpu():
    for function in (linalg.eig, linalg.svd, linalg.qr, linalg.ldl_factor, linalg.eigvals):
        for dtype in (torch.float16, torch.bfloat16, torch.int64):
            a = torch.ones(2, 2).to(dtype)
            with pytest.raises(RuntimeError):
                function(a)
            with pytest.raises(RuntimeError):
                function(a.to("tpu"))


@pytest.mark.slow
def test_where_lapack_is_not_at_hand_it_is_the_hosts():
    code = """
import torch
a = torch.tensor([[1.0, 2], [3, 4]])
torch.tpu.host_fallback = "silent"
got = torch.linalg.eigvals(a.to("tpu"))
torch.testing.assert_close(got.cpu(), torch.linalg.eigvals(a))
assert torch.tpu.metrics()["host_operators"] == {"aten::_linalg_eigvals": 1}
"""
    status, _, err = python(code, TORCH_TPU_LAPACK="off")
    assert status == 0, err


@pytest.mark.slow
def test_without_lapack():
    """The other ways to factorise, which accelerators take, pass the tests of linear algebra."""
    tests = ["-q", "-p", "no:cacheprovider", "-k", "not ldl_factor", "tests/python/test_linalg.py"]
    code = f"import pytest, sys; sys.exit(pytest.main({tests}))"
    status, out, _ = python(code, timeout=1200, TORCH_TPU_LAPACK="off")
    assert status == 0, out[-3000:]
