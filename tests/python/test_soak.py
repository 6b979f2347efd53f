"""Threads that train, read, replace parameters, fork, change modes and interrupt one another.

`make soak` lets them go on for ten minutes, `make test-all` for a while.
"""

import contextlib
import copy
import os
import random
import signal
import statistics
import threading
import time
import traceback

import pytest
import torch
from support import DEVICE, modes, only_tpu
from torch import nn
from torch.nn import functional as F

SECONDS = float(os.environ.get("TT_SOAK_SECONDS", "20"))
SEED = int(os.environ.get("TT_SOAK_SEED", "0"))
WIDTH, STEPS, MEGABYTE = 256, 8, 1 << 20
pytestmark = [only_tpu, pytest.mark.slow]


def losses_of(model, x, y):
    """Trains a copy of the model; returns the loss of each step, still where it was computed."""
    model = copy.deepcopy(model).to(x.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


class Soak:
    """What the threads share, and what they do, over and over, until the time is up."""

    def __init__(self):
        torch.manual_seed(SEED)
        self.until = 0.0
        self.failures, self.counts = [], {}
        self.waiting, self.interrupts = False, 0
        self.model = nn.Sequential(nn.Linear(64, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 8))
        self.x, self.y = torch.randn(32, 64), torch.randint(0, 8, (32,))
        self.expected = losses_of(self.model, self.x, self.y)
        self.shared = nn.Linear(WIDTH, WIDTH, bias=False).to(DEVICE)
        self.replace(1)

    def replace(self, number):
        self.shared.weight.data = torch.full((WIDTH, WIDTH), float(number), device=DEVICE)

    def train(self, chance):
        with torch.tpu.set_eager_mode(chance.choice(modes())):
            losses = losses_of(self.model, self.x.to(DEVICE), self.y.to(DEVICE)).cpu()
        torch.testing.assert_close(losses, self.expected, rtol=1e-4, atol=1e-5)

    def swap(self, chance):
        self.replace(chance.randint(1, 9))

    def read(self, chance):
        rows = chance.choice((1, 4, 64))
        with torch.no_grad():
            found = self.shared(torch.ones(rows, WIDTH, device=DEVICE)).cpu().unique()
        assert found.numel() == 1 and float(found) / WIDTH in range(1, 10), found

    def fork(self, chance):
        # With gradients PyTorch itself may hang: in `p.data = q` it holds the GIL and waits for the
        # lock of the weight's accumulator, and in a product the other way round.
        with torch.no_grad():
            pending = self.shared.weight * 2
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                try:
                    pending.cpu()
                except RuntimeError:
                    os._exit(0)
            os._exit(1)
        assert ended(child, 20) == 0, "a child of fork is told at once"
        time.sleep(chance.uniform(0.05, 0.2))

    def interrupt(self, chance):
        time.sleep(chance.uniform(0.05, 0.4))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def interrupted(self, number, frame):
        """Handles the signal: the test itself, beside what it waits for, is not interrupted."""
        if self.waiting:
            self.waiting = False
            self.interrupts += 1
            raise KeyboardInterrupt

    def wait(self):
        """What the main thread does between interrupts."""
        x = torch.ones(WIDTH, WIDTH, device=DEVICE)
        for _ in range(64):
            x = (x @ x).clamp(0, 1)
        assert x.cpu().eq(1).all()

    def repeat(self, what, seed):
        chance, count = random.Random(seed), 0
        try:
            while time.monotonic() < self.until and not self.failures:
                what(chance)
                count += 1
        except BaseException:
            self.failures.append(f"{what.__name__} (seed {seed}):\n{traceback.format_exc()}")
        self.counts[f"{what.__name__} {seed}"] = count


def ended(child, seconds):
    """The exit status of a child, which is killed when it takes longer."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "no end"


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def attend(soak, threads):
    """Waits in the main thread while the others work; returns what memory took meanwhile."""
    sizes = []
    while any(thread.is_alive() for thread in threads):
        try:
            soak.waiting = True
            soak.wait()
            soak.waiting = False  # here, since who suppresses it could be interrupted, too
        except KeyboardInterrupt:
            pass
        torch.tpu.empty_cache()  # what the C library keeps of freed memory is no leak
        sizes.append((resident(), torch.tpu.memory_reserved()))
    return sizes


@pytest.fixture
def soak():
    made = Soak()
    before = signal.signal(signal.SIGINT, made.interrupted)
    yield made
    made.until = 0.0
    signal.signal(signal.SIGINT, before)


def test_many_threads_for_long(soak):
    print(f"seed {SEED}, {SECONDS} s")
    work = [soak.train, soak.train, soak.train, soak.swap, soak.read, soak.read, soak.fork]
    threads = [
        threading.Thread(target=soak.repeat, args=(what, SEED * 100 + i))
        for i, what in enumerate([*work, soak.interrupt])
    ]
    soak.train(random.Random(0))  # what is compiled first takes no part of the time
    soak.until = time.monotonic() + SECONDS
    for thread in threads:
        thread.start()
    sizes = attend(soak, threads)
    print(soak.counts, soak.interrupts, "interrupts", torch.tpu.metrics())
    assert not soak.failures, "\n\n".join(soak.failures)
    assert soak.interrupts and all(soak.counts.values()), soak.counts
    quarter = len(sizes) // 4
    early, late = sizes[quarter : 2 * quarter], sizes[-quarter:]
    for what, limit in ((0, 64 * MEGABYTE), (1, 8 * MEGABYTE)):
        growth = statistics.median(s[what] for s in late) - statistics.median(
            s[what] for s in early
        )
        print(f"{'memory of the process' if what == 0 else 'of the device'}: {growth:+.0f} bytes")
        assert growth < limit, (what, growth)
