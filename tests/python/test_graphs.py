"""Captured graphs: torch.tpu.Graph, torch.accelerator.Graph, make_graphed_callables."""

import pytest
import torch
from support import only_tpu, same

pytestmark = only_tpu


def capture(function):
    """Captures a call; returns the graph and what the call returned."""
    graph = torch.tpu.Graph()
    with torch.tpu.graph(graph):
        result = function()
    return graph, result


def launches():
    return torch.tpu.metrics()["launches"]


def test_a_replay_reads_what_its_inputs_then_hold():
    x = torch.arange(6.0, device="tpu")
    graph, y = capture(lambda: (x * 2 + 1).view(2, 3).sum(1))
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        same(y.cpu(), torch.full((6,), value * 2 + 1).view(2, 3).sum(1))


def test_a_capture_computes_nothing():
    x = torch.ones(4, device="tpu")
    torch.tpu.synchronize()
    before = launches()
    graph = torch.tpu.Graph()
    with torch.tpu.graph(graph):
        x.add_(1)
        x.mul_(3)
    assert launches() == before
    assert x.tolist() == [1.0] * 4
    graph.replay()
    assert x.tolist() == [6.0] * 4
    graph.replay()
    assert x.tolist() == [21.0] * 4
    assert launches() == before + 2


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_a_replay_follows_what_was_recorded_before(mode):
    torch.tpu.eager_mode = mode
    x = torch.zeros(3, device="tpu")
    graph, _ = capture(lambda: x.add_(1))
    for _ in range(5):
        x.mul_(2)
        graph.replay()
    assert x.tolist() == [31.0] * 3


def test_inputs_that_were_never_written_read_as_zeros():
    buffer = torch.empty(3, device="tpu")
    graph, y = capture(lambda: buffer + 1)
    graph.replay()
    assert y.tolist() == [1.0] * 3
    buffer.copy_(torch.tensor([1.0, 2.0, 3.0]))
    graph.replay()
    assert y.tolist() == [2.0, 3.0, 4.0]


def test_temporaries_are_no_outputs():
    x = torch.ones(8, device="tpu")

    def body():
        temporary = torch.empty(8, device="tpu")
        temporary.copy_(x)
        temporary[2:4] = 7
        return temporary.sum()

    graph, y = capture(body)
    graph.replay()
    assert y.item() == 20
    assert "1 inputs, 1 outputs" in repr(graph)


def test_views_of_what_a_graph_writes():
    x = torch.zeros(4, 4, device="tpu")
    row = x[1]
    graph, _ = capture(lambda: (row.add_(1), x[:, 2].mul_(5)))
    graph.replay()
    graph.replay()
    expected = torch.zeros(4, 4)
    for _ in range(2):
        expected[1] += 1
        expected[:, 2] *= 5
    same(x.cpu(), expected)


def test_random_numbers_advance_as_they_would_without_a_graph():
    torch.tpu.manual_seed(7)
    expected = [torch.rand(5, device="tpu").cpu() for _ in range(3)]
    graph, y = capture(lambda: torch.rand(5, device="tpu"))
    torch.tpu.manual_seed(7)
    for one in expected:
        graph.replay()
        same(y.cpu(), one, rtol=0, atol=0)


def test_a_generator_of_its_own_advances_too():
    generator = torch.Generator("tpu").manual_seed(3)
    expected = [torch.randn(4, device="tpu", generator=generator).cpu() for _ in range(2)]
    graph, y = capture(lambda: torch.randn(4, device="tpu", generator=generator))
    generator.manual_seed(3)
    for one in expected:
        graph.replay()
        same(y.cpu(), one, rtol=0, atol=0)


@pytest.mark.parametrize("look", [torch.Tensor.item, torch.Tensor.tolist, bool, torch.Tensor.cpu])
def test_a_read_in_a_capture_names_its_line(look):
    x = torch.ones(1, device="tpu")
    graph = torch.tpu.Graph()
    message = r"test_graphs.py:\d+ in .*captured"
    with pytest.raises(RuntimeError, match=message), torch.tpu.graph(graph):
        look(x + 1)
    assert (x + 1).item() == 2
    graph, y = capture(lambda: x + 2)
    graph.replay()
    assert y.item() == 3


def test_lists_of_masks_in_a_capture_are_not_read():
    mask, out = torch.tensor([True, False], device="tpu"), torch.empty(4, device="tpu").bool()
    graph, sums = capture(
        lambda: [torch.cat([mask, ~mask], out=out), *torch._foreach_add([mask], 1)]
    )
    graph.replay()
    same(sums[0].cpu(), torch.tensor([True, False, False, True]))
    same(sums[1].cpu(), torch.tensor([2, 1]))


def test_waiting_in_a_capture_is_an_error():
    graph = torch.tpu.Graph()
    with pytest.raises(RuntimeError, match="captured"), torch.tpu.graph(graph):
        torch.tpu.synchronize()
    assert not torch.tpu.is_current_stream_capturing()


def test_another_size_is_an_error():
    x = torch.ones(4, device="tpu")
    graph, _ = capture(lambda: x + 1)
    x.resize_(8)
    with pytest.raises(RuntimeError, match="capture the graph again"):
        graph.replay()


def test_a_graph_can_be_captured_again_after_reset():
    x = torch.ones(2, device="tpu")
    graph, _ = capture(lambda: x + 1)
    with pytest.raises(RuntimeError, match="reset"):
        graph.capture_begin()
    graph.reset()
    with torch.tpu.graph(graph):
        y = x * 10
    graph.replay()
    assert y.tolist() == [10.0, 10.0]


def test_an_empty_graph():
    graph, _ = capture(lambda: None)
    graph.replay()
    with pytest.raises(RuntimeError, match="captured"):
        torch.tpu.Graph().replay()


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def steps_on_cpu(count, optimizer, batches):
    model = make_model()
    optimize, losses = optimizer(model.parameters(), False), []
    for i in range(count):
        optimize.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(batches[i][0]), batches[i][1])
        loss.backward()
        optimize.step()
        losses.append(loss.item())
    return losses


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p, tpu: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p, tpu: torch.optim.AdamW(p, lr=1e-2, capturable=tpu),
    ],
    ids=["sgd", "adamw"],
)
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_training_step_is_one_launch(optimizer, mode):
    torch.tpu.eager_mode = mode
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(6, 8, generator=generator), torch.randint(4, (6,), generator=generator))
        for _ in range(8)
    ]
    expected = steps_on_cpu(8, optimizer, batches)
    model = make_model().to("tpu")
    optimize = optimizer(model.parameters(), True)
    x, target = torch.empty(6, 8, device="tpu"), torch.empty(6, dtype=torch.long, device="tpu")

    def step():
        optimize.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimize.step()
        return loss

    losses = []
    for i in range(3):  # states are made outside of the graph
        x.copy_(batches[i][0])
        target.copy_(batches[i][1])
        losses.append(step().item())
    optimize.zero_grad(set_to_none=True)
    graph, loss = capture(step)
    torch.tpu.synchronize()
    before = launches()
    for i in range(3, 8):
        x.copy_(batches[i][0])
        target.copy_(batches[i][1])
        graph.replay()
        losses.append(loss.item())
    assert launches() - before == 5
    assert losses == pytest.approx(expected, rel=1e-4)


def test_dropout_in_a_graph_draws_anew():
    x = torch.ones(1000, device="tpu")
    graph, y = capture(lambda: torch.nn.functional.dropout(x, 0.5))
    graph.replay()
    first = y.cpu()
    graph.replay()
    assert not torch.equal(first, y.cpu())


def test_a_decomposed_operator_in_a_graph():
    x = torch.linspace(-2, 2, 9, device="tpu")
    function = torch.nn.functional.huber_loss
    function(x, x * 2)
    graph, y = capture(lambda: function(x, x * 2) + torch.special.zeta(x.abs() + 2, x.abs() + 1))
    graph.replay()
    host = x.cpu()
    same(y.cpu(), function(host, host * 2) + torch.special.zeta(host.abs() + 2, host.abs() + 1))


def test_the_accelerator_graph_of_pytorch():
    if not hasattr(torch.accelerator, "Graph"):
        pytest.skip("this PyTorch has no torch.accelerator.Graph")
    x = torch.ones(3, device="tpu")
    graph = torch.accelerator.Graph()
    graph.capture_begin()
    y = x + 1
    graph.capture_end()
    x.fill_(4)
    graph.replay()
    assert y.tolist() == [5.0] * 3


def test_graphed_callables_have_the_same_gradients():
    model, sample = make_model().to("tpu"), torch.randn(5, 8, device="tpu", requires_grad=True)
    plain = make_model().to("tpu")
    graphed = torch.tpu.make_graphed_callables(model, (sample,))
    for _ in range(2):
        x = torch.randn(5, 8, device="tpu", requires_grad=True)
        y = x.detach().clone().requires_grad_()
        a, b = graphed(x), plain(y)
        same(a, b)
        a.square().sum().backward()
        b.square().sum().backward()
        same(x.grad, y.grad)
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        same(p.grad, q.grad)


def test_graphs_are_freed_while_they_run():
    x = torch.ones(64, device="tpu")
    for _ in range(20):
        graph, y = capture(lambda: (x @ x) + 1)
        graph.replay()
        del graph
        assert y.item() == 65
