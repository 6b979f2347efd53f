"""A process that makes new shapes all the time: what was remembered makes way, and nothing breaks.

The limit is low, in processes of their own, so that it is reached many times.
"""

import json

import pytest
from support import only_tpu, python, slow_but

pytestmark = only_tpu

TRAINING = """
import json, torch
torch.manual_seed(0)
torch.tpu.eager_mode = torch.tpu.EagerMode.{mode}
host = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 1))
model.load_state_dict(host.state_dict())
model.to("tpu")
optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (host, model)]
bits = torch.arange(8, device="tpu", dtype=torch.int32)
for step in range(60):
    x, losses = torch.randn(step % 30 + 1, 3), []
    for m, o, data in zip((host, model), optimizers, (x, x.to("tpu"))):
        o.zero_grad()
        loss = m(data).square().mean()
        loss.backward()
        o.step()
        losses.append(loss)
    alias = bits[: step % 8]
    alias <<= 1  # a decomposition
    if step % 4 == 0:
        torch.testing.assert_close(losses[1].item(), losses[0].item(), rtol=1e-4, atol=1e-6)
expected = torch.arange(8, dtype=torch.int32)
for step in range(60):
    expected[: step % 8] <<= 1
assert torch.equal(bits.cpu(), expected)
for ours, theirs in zip(model.parameters(), host.parameters()):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-5)
print(json.dumps(torch.tpu.metrics()))
"""

THREADS = """
import json, threading, torch
torch.tpu.eager_mode = torch.tpu.EagerMode.{mode}
errors = []

def work(number):
    try:
        total = torch.zeros(number + 1, device="tpu")
        for step in range(150):
            part = torch.full((number + 1, step % 80 + 1), 2.0, device="tpu")
            total = total + (part * 3).sum(1)
        expected = sum(6.0 * (step % 80 + 1) for step in range(150))
        assert total.tolist() == [expected] * (number + 1)
    except Exception as error:
        errors.append(repr(error))

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
print(json.dumps(torch.tpu.metrics()))
"""


@pytest.mark.parametrize("mode", slow_but(["DEBUG", "STRICT", "FUSED"]))
@pytest.mark.parametrize(
    "body", slow_but([TRAINING, THREADS], TRAINING), ids=["training", "threads"]
)
def test_what_is_alive_goes_on(body, mode):
    status, out, err = python(body.format(mode=mode), TORCH_TPU_CALL_LIMIT="40")
    assert status == 0, err
    metrics = json.loads(out)
    assert metrics["reclaims"] >= (3 if body is TRAINING else 1)
    # Tables are emptied where a chunk ends; threads that add to it by turns may put that off, but
    # not for more than 512 operators (PATIENCE in session/reclaim.c). In all there are 1,200 calls.
    assert metrics["calls"] <= (400 if body is TRAINING else 700)
