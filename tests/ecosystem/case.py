"""What a case file runs: ordinary code of a library's user, which names no device.

The runner runs each file twice, with and without torch_tpu: the first takes `tpu` by itself, the
second the CPU, and what they compute must be equal.
"""

import json
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

Work = Callable[[], tuple[object, Iterable[float]]]


def case(what: str, tolerance: float = 1e-4) -> Callable[[Work], Work]:
    """Runs a function, which returns the device that it found and the numbers that it computed.

    Prints a line of JSON: what it does, the device, the numbers, the seconds of the first run and
    of the second, the tolerance of its numbers (relative, and absolute for numbers below 1).
    """

    def decorate(work: Work) -> Work:
        line: dict[str, Any] = {"what": what, "tolerance": tolerance}
        try:
            for name in ("first", "again"):
                torch.manual_seed(0)
                begin = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    device, numbers = work()
                line["values"] = [float(value) for value in numbers]
                line[name] = time.perf_counter() - begin
                line["device"] = str(device)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"
        print("CASE " + json.dumps(line), flush=True)
        return work

    return decorate
