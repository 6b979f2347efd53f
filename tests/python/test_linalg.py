"""Linear algebra that is built from factorisations, against the CPU, none of it on the host."""

import pytest
import torch
from support import DEVICE, check, check_gradients, modes, only_tpu, raises_alike

pytestmark = [only_tpu, pytest.mark.usefixtures("no_host")]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SQUARE = [(3, 3), (2, 4, 4), (1, 1), (0, 0), (0, 2, 2)]
LOOSE = {"rtol": 1e-3, "atol": 1e-4}


def matrix(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype)


@pytest.fixture(params=[mode for mode in modes() if mode != "debug"])
def mode(request):
    with torch.tpu.set_eager_mode(request.param):
        yield


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_determinants(shape, dtype):
    a = matrix(*shape, dtype=dtype)
    for function in (torch.linalg.det, torch.linalg.slogdet):
        check(function, a, tolerance=LOOSE)
        check(lambda x, f=function: f(x.mT), a, tolerance=LOOSE)
    check(torch.linalg.det, torch.zeros_like(a))


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_gradients_of_determinants(mode, dtype):
    a = matrix(2, 3, 3, dtype=dtype).requires_grad_()
    for function in (torch.linalg.det, torch.linalg.slogdet):
        check_gradients(lambda x, f=function: torch.view_as_real(f(x)[0] + 0j), a)
        check_gradients(lambda x, f=function: torch.view_as_real(f(x.mT)[0] + 0j), a)


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SQUARE)
def test_exponentials(shape, dtype):
    a = matrix(*shape, dtype=dtype)
    for scale in (0, 1e-3, 1, 10):
        check(torch.matrix_exp, a * scale, tolerance=LOOSE)


def test_exponentials_of_large_and_different_matrices(mode):
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    a = torch.stack([turn * 1e-3, turn * 100, turn])
    check(torch.matrix_exp, a, tolerance={"rtol": 1e-9, "atol": 1e-9})
    broken = torch.full((2, 2), torch.nan, device=DEVICE)
    assert torch.matrix_exp(broken).isnan().all()
    check_gradients(torch.matrix_exp, matrix(3, 3).requires_grad_())


@pytest.mark.parametrize("scale", [0.2, 2, 10, 40])
def test_exponentials_are_as_exact_as_on_the_cpu(scale):
    a = torch.randn(8, 5, 5, generator=torch.Generator().manual_seed(0)) * scale / 5**0.5
    exact = torch.matrix_exp(a.double())
    most = exact.abs().amax((-1, -2), keepdim=True)
    errors = [
        ((torch.matrix_exp(a.to(device)).cpu() - exact).abs() / most).max()
        for device in (DEVICE, "cpu")
    ]
    assert errors[0] < 2 * errors[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0, 2, 3), (0, 0)])
def test_factors_of_nothing(shape, dtype):
    a = matrix(*shape, dtype=dtype)
    for how in ("reduced", "complete", "r"):
        check(torch.linalg.qr, a, how)
    for full in (True, False):
        check(torch.linalg.svd, a, full)
    check(torch.linalg.svdvals, a)
    check(torch.linalg.pinv, a)
    if shape[-1] == shape[-2]:
        check(torch.linalg.eigh, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
def test_products_with_reflectors(dtype, left):
    packed, tau = torch.geqrf(matrix(5, 3, dtype=dtype))
    other = matrix(5, 2, dtype=dtype) if left else matrix(2, 5, dtype=dtype)
    for adjoint in (True, False):
        check(torch.ormqr, packed, tau, other, left, adjoint, tolerance=LOOSE)


@pytest.mark.diagonal
@pytest.mark.parametrize("driver", [None, "gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 5, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64])
def test_least_squares(shape, driver, dtype):
    a, b = matrix(*shape, dtype=dtype), matrix(*shape[:-1], 2, dtype=dtype)
    check(lambda x, y: torch.linalg.lstsq(x, y, driver=driver), a, b, tolerance=LOOSE)
    check(lambda x, y: torch.linalg.lstsq(x, y, driver=driver).solution, a[..., :0], b)


def test_least_squares_of_vectors_and_of_low_rank(mode):
    a = matrix(5, 3, dtype=torch.float64)
    check(torch.linalg.lstsq, matrix(2, 5, 3), matrix(2, 5), tolerance=LOOSE)
    a[:, 2] = a[:, 0] + a[:, 1]
    b = matrix(5, 2, dtype=torch.float64)
    for driver in ("gelsy", "gelsd"):
        check(lambda x, y, d=driver: torch.linalg.lstsq(x, y, rcond=1e-9, driver=d), a, b)
    raises_alike(lambda x, y: torch.linalg.lstsq(x, y, driver="none"), a, b)


def test_gradients_of_least_squares():
    a, b = matrix(5, 3).requires_grad_(), matrix(5, 2).requires_grad_()
    check_gradients(lambda x, y: torch.linalg.lstsq(x, y).solution, a, b)


def test_running_sums_of_complex_exponentials():
    z = matrix(3, 6, dtype=torch.complex64)
    check(lambda x: torch.logcumsumexp(x * 5, 1).exp(), z, tolerance=LOOSE)
    turns = torch.randn(5, 40, dtype=z.dtype, generator=torch.Generator().manual_seed(0))
    check(lambda x: torch.logcumsumexp(x * 9, 1), turns, tolerance=LOOSE)
    check_gradients(lambda x: torch.view_as_real(torch.logcumsumexp(x, 1)), z.requires_grad_())
    inf, nan = torch.inf, torch.nan
    check(torch.logcumsumexp, torch.tensor([-inf, -inf, 1, inf, 2]), 0)
    check(torch.logcumsumexp, torch.tensor([-inf, 1, nan, inf, 2]), 0)


SPECTRA = {
    "spread": torch.logspace(0, -12, 24),
    "equal": torch.ones(24),
    "deficient": torch.cat([torch.linspace(1, 2, 10), torch.zeros(14)]),
    "tiny": torch.linspace(1e-25, 2e-25, 24),
    "huge": torch.linspace(1e25, 2e25, 24),
    "none": torch.zeros(24),
}


@pytest.mark.diagonal
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("shape", [(24, 24), (40, 24), (24, 40)], ids=str)
def test_singular_values(shape, spectrum, dtype):
    """Values, product and orthogonality are as exact as the dtype's numbers."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    left, right = (torch.linalg.qr(torch.randn(k, k, dtype=wide))[0] for k in shape)
    values = SPECTRA[spectrum].double().sort(descending=True).values
    a = ((left[:, :24] * values) @ right[:24]).to(dtype)
    limit = 200 * torch.finfo(dtype).eps
    for full in (False, True):
        u, s, vh = (x.cpu() for x in torch.linalg.svd(a.to(DEVICE), full_matrices=full))
        largest = float(values[0])
        assert (s - values).abs().max() <= limit * largest
        product = (u[:, :24].to(wide) * s) @ vh[:24].to(wide)
        assert (product - a.to(wide)).abs().max() <= limit * largest
        for one in (u.mH @ u, vh @ vh.mH):
            assert (one - torch.eye(len(one))).abs().max() <= limit


CHECKED = {
    "cholesky_ex": lambda x: torch.linalg.cholesky_ex(x, check_errors=True),
    "cholesky": torch.cholesky,
    "inv_ex": lambda x: torch.linalg.inv_ex(x, check_errors=True),
    "solve_ex": lambda x: torch.linalg.solve_ex(x, x, check_errors=True),
    "lu_factor_ex": lambda x: torch.linalg.lu_factor_ex(x, check_errors=True),
    "ldl_factor_ex": lambda x: torch.linalg.ldl_factor_ex(x, check_errors=True),
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("name", CHECKED)
def test_errors_are_checked_where_that_is_asked_for(name, mode):
    function, good = CHECKED[name], torch.eye(3) * 2 + 0.1
    check(lambda x: function(x) if name == "cholesky" else [*function(x)], good)
    for wrong in (torch.zeros(3, 3), torch.stack([good, torch.zeros(3, 3)])):
        with pytest.raises(RuntimeError) as want:
            function(wrong)
        error = raises_alike(function, wrong)
        assert str(error).partition("(")[0] == str(want.value).partition("(")[0]
