"""Products of matrices in groups whose ends are numbers of the running program."""

import pytest
import torch
from support import DEVICE, check, check_gradients, modes, only_tpu, raises_alike, same, slow_but
from torch.nn.functional import grouped_mm

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Multiples of 16 bytes, as the CPU has it, where a matrix is not transposed.
WIDTH, HEIGHT = 16, 24


@pytest.fixture(params=modes() if DEVICE == "tpu" else ["cpu"])
def mode(request):
    if DEVICE == "tpu":
        torch.tpu.eager_mode = request.param
    return request.param


def ends(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def matrices(*shape, dtype=torch.float32, by_columns=False):
    """Numbers whose products half precision holds well; only the strides tell how they lie."""
    x = torch.randn(*shape).div(4).to(dtype)
    return x.mT.contiguous().mT if by_columns else x


def operands(form, groups, size, dtype=torch.float32, **lies):
    """The operands of a product; `size` elements are divided into groups."""
    shapes = {
        "rows": ((size, WIDTH), (groups, WIDTH, HEIGHT)),
        "columns": ((groups, HEIGHT, WIDTH), (WIDTH, size)),
        "contracted": ((HEIGHT, size), (size, WIDTH)),
    }[form]
    return [matrices(*shape, dtype=dtype, **lies) for shape in shapes]


def product(a, b, offs):
    return grouped_mm(a, b, offs=offs)


def covered(form, last):
    """The product without what is in no group, which the CPU leaves as it finds it."""
    if form == "rows":
        return lambda a, b, offs: grouped_mm(a, b, offs=offs)[:last]
    if form == "columns":
        return lambda a, b, offs: grouped_mm(a, b, offs=offs)[:, :last]
    return product


FORMS = ("rows", "columns", "contracted")
DIVISIONS = {
    "even": (8, 16, 24, 32),
    "uneven": (3, 4, 25, 32),
    "empty": (0, 7, 7, 7, 32, 32),
    "one": (32,),
    "short": (5, 5, 19),
    "none": (0, 0, 0),
    "over": (5, 40),
    "back": (20, 9, 32),
    "negative": (9, -8),
}


@pytest.mark.parametrize("dtype", slow_but(DTYPES, DTYPES[0]))
@pytest.mark.parametrize("form", FORMS)
def test_divisions(form, dtype, mode):
    for division in DIVISIONS.values():
        a, b = operands(form, len(division), 32, dtype)
        check(covered(form, division[-1]), a, b, ends(*division))


@only_tpu
@pytest.mark.parametrize("form", FORMS)
def test_what_is_in_no_group_is_zero(form):
    args = (*operands(form, 3, 32), ends(0, 11, 11))
    found = product(*(x.to(DEVICE) for x in args)).cpu()
    expected = {"rows": 11 * HEIGHT, "columns": 11 * HEIGHT, "contracted": HEIGHT * WIDTH}
    assert found.count_nonzero() == expected[form]


@pytest.mark.parametrize("form", FORMS)
def test_many_blocks(form):
    """Groups of several blocks, and blocks that go over the end of all."""
    for size, division in (
        (1000, (0, 300, 310, 999)),
        (1000, (1000,)),
        (520, (515, 520)),
        (8, (5,)),
    ):
        a, b = operands(form, len(division), size)
        check(covered(form, division[-1]), a, b, ends(*division))


def test_many_groups():
    division = torch.randint(0, 3, (200,)).cumsum(0, dtype=torch.int32)
    check(covered("rows", int(division[-1])), *operands("rows", 200, 400), division)


@pytest.mark.parametrize("form", FORMS)
def test_no_number_of_another_group_counts(form):
    a, b = operands(form, 2, 32)
    (b if form == "columns" else a)[..., 11:].fill_(torch.nan)
    if form == "rows":
        b[1] = torch.inf
    check(product, a, b, ends(11, 32))


def test_nothing(mode):
    check(product, *operands("rows", 2, 0), ends(0, 0))
    check(product, torch.randn(0, 8), torch.randn(0, 8, 8), ends())


@only_tpu
@pytest.mark.parametrize("form", FORMS)
def test_nothing_to_divide(form, mode):
    args = (*operands(form, 2, 0, by_columns=True), ends(0, 0))
    assert product(*(x.to(DEVICE) for x in args)).count_nonzero() == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_need_no_ends(dtype, mode):
    check(grouped_mm, matrices(3, 5, 16, dtype=dtype), matrices(3, 16, 8, dtype=dtype))


@pytest.mark.parametrize("form", FORMS)
def test_lies_anywhere(form, mode):
    division = ends(3, 20, 32)
    check(product, *operands(form, 3, 32, by_columns=True), division)
    a, b = operands(form, 3, 64)
    every = {"rows": (a[::2], b), "columns": (a, b[:, 16:48]), "contracted": (a[:, 32:], b[::2])}
    check(product, *every[form], division)
    check(lambda a, b, offs: grouped_mm(a, b, offs=offs[::2]), *every[form], ends(3, 0, 20, 0, 32))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_gradients(form, by_columns, mode):
    a, b = (x.requires_grad_() for x in operands(form, 4, 32, by_columns=by_columns))
    check_gradients(product, a, b, ends(0, 9, 9, 32))


def test_gradients_of_batches(mode):
    a, b = matrices(3, 8, 16).requires_grad_(), matrices(3, 16, 8).requires_grad_()
    check_gradients(grouped_mm, a, b)


def test_chains_of_odd_widths():
    """The CPU's results have gaps, so that it takes them as operands again; ours need none."""

    def chain(x, first, second, offs):
        return grouped_mm(grouped_mm(x, first, offs=offs), second, offs=offs)

    weights = matrices(3, 16, 5, by_columns=True), matrices(3, 5, 8)
    check(chain, matrices(32, 16), *weights, ends(3, 20, 32))


def test_autocast_leaves_it_alone():
    a, b, division = (x.to(DEVICE) for x in (*operands("rows", 2, 32), ends(9, 32)))
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        assert product(a, b, division).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda a, b, e: grouped_mm(a.double(), b.double(), offs=e),
            "Expected mat_a to be Float32",
        ),
        (lambda a, b, e: grouped_mm(a, b.half(), offs=e), "same dtype"),
        (lambda a, b, e: grouped_mm(a, b), "Have to provide offsets"),
        (lambda a, b, e: grouped_mm(b, b.mT, offs=e), "Have to provide offsets"),
        (lambda a, b, e: grouped_mm(a, b, offs=e.long()), "Offsets have to be int32"),
        (lambda a, b, e: grouped_mm(a, b, offs=e[None]), "offs has to be 1D"),
        (lambda a, b, e: grouped_mm(a, b, offs=e[:1]), "matrix batch sizes have to match"),
        (lambda a, b, e: grouped_mm(a[0], b, offs=e), "mat_a has to be 2 or 3d"),
        (lambda a, b, e: grouped_mm(a, b[None], offs=e), "mat_b has to be 2 or 3d"),
        (lambda a, b, e: grouped_mm(a[:, :8], b, offs=e), "contraction dimension"),
        (lambda a, b, e: grouped_mm(b, b.mT[:1]), "batched dimension has to match"),
        (lambda a, b, e: grouped_mm(a[:, ::4], b[:, :4], offs=e), "Invalid strides/sizes"),
        (lambda a, b, e: grouped_mm(a, b, offs=e, bias=b[:, 0]), "Bias not supported yet"),
        (
            lambda a, b, e: grouped_mm(a, b, offs=e, out_dtype=torch.float16),
            "output dtype must match",
        ),
    ],
)
def test_errors(call, text):
    assert text in str(raises_alike(call, *operands("rows", 2, 32), ends(9, 32)))


def test_out_dtype(mode):
    a, b = operands("rows", 2, 32, torch.bfloat16)
    check(lambda a, b, e: grouped_mm(a, b, offs=e, out_dtype=torch.bfloat16), a, b, ends(9, 32))


@only_tpu
def test_reads_nothing_and_compiles_once(mode):
    """Whatever the numbers are, forward and backward."""
    weight = torch.nn.Parameter(matrices(4, WIDTH, HEIGHT).to(DEVICE))
    divisions = torch.randint(0, 33, (6, 4)).sort(1).values.int().to(DEVICE)
    divisions = [one.clone() for one in divisions]  # no upload whose size others have varied
    inputs = matrices(32, WIDTH).to(DEVICE)

    def step(division):
        x = inputs.detach().requires_grad_()
        grouped_mm(x, weight, offs=division).square().sum().backward()
        return x.grad

    for division in divisions[:2]:
        step(division)
    torch.tpu.synchronize()
    torch.tpu.reset_metrics()
    with torch.tpu.no_recompile():
        found = [step(division) for division in divisions[2:]]
    metrics = torch.tpu.metrics()
    assert metrics["compiles"] == 0 and not metrics["synchronisations"]
    assert not metrics["host_operators"]
    assert all(x.shape == inputs.shape for x in found)


@pytest.mark.slow
@only_tpu
@pytest.mark.parametrize("mode", slow_but(modes(), "strict"), indirect=True)
def test_mixture_of_experts_compiles_nothing_more(mode):
    transformers = pytest.importorskip(
        "transformers", reason="needs scripts/requirements-models.txt"
    )
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16}
    config = transformers.MixtralConfig(
        **sizes,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_local_experts=4,
    )
    model = transformers.MixtralForCausalLM(config)
    batches = [torch.randint(0, 64, (2, 8)) for _ in range(5)]

    def train(model, device):
        optimizer = torch.optim.AdamW(model.parameters())
        for i, batch in enumerate(batches):
            if i == 2 and device == "tpu":
                torch.tpu.synchronize()
                torch.tpu.reset_metrics()
            batch = batch.to(device)
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    state = {name: x.clone() for name, x in model.state_dict().items()}
    expected = list(train(model, "cpu"))
    model.load_state_dict(state)
    same(
        list(map(torch.tensor, train(model.to(DEVICE), DEVICE))), list(map(torch.tensor, expected))
    )
    # Programs of chunks, in Fused, are asked for later, and compiled when nobody waits.
    asked = "compiles" if mode == "fused" else "programs"
    assert torch.tpu.metrics()[asked] == 0
