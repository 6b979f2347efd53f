"""Runs random programs: `python -m fuzz 2000 --seed 0`, in tests/python."""

import argparse
import sys
import time
from collections import Counter

import torch

from . import campaign, programs

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("programs", type=int, nargs="?", default=300)
parser.add_argument("--seed", type=int, default=0, help="of the first program")
parser.add_argument("--salts", type=int, default=2, help="sets of numbers for each program")
parser.add_argument("--epoch", type=int, default=programs.EPOCH, help="programs of one palette")
parser.add_argument("--modes", default="strict,debug,fused,mixed")
parser.add_argument("--keep-going", action="store_true", help="after a failure")
parser.add_argument("--show", action="store_true", help="print the programs")
options = parser.parse_args()
torch.tpu.host_fallback = "silent"
start, failures, tally = time.monotonic(), 0, Counter()
for report in campaign.run(
    range(options.seed, options.seed + options.programs),
    tuple(options.modes.split(",")),
    options.salts,
    options.epoch,
    options.show,
    tally,
):
    failures += 1
    print(report, flush=True)
    if not options.keep_going:
        break
seconds = time.monotonic() - start
print(
    f"{options.programs} programs, {failures} failures, sets of numbers: {dict(tally)}; "
    f"{seconds:.1f} s, "
    f"{time.process_time():.1f} s of CPU, {torch.tpu.metrics()}"
)
sys.exit(failures > 0)
