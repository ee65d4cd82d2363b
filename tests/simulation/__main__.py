"""`python -m tests.simulation`: run seeds, count what they amounted to, and print the line that repeats a failure.

Belongs here: arguments and output.
Must not know: what a simulation does.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.simulation.story import reason, simulate


def main() -> int:
    """Exit status 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--start", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one only, with the traceback of what it finds")
    asked = parser.parse_args()
    seeds = [asked.seed] if asked.seed is not None else range(asked.start, asked.start + asked.seeds)
    totals: Counter[str] = Counter()
    orders: set[int] = set()
    failed: list[int] = []
    began = time.monotonic()
    for seed in seeds:
        try:
            report = simulate(seed)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is a finding)
            failed.append(seed)
            if asked.seed is not None:
                traceback.print_exception(error)
            print(f"FAILED, repeat with: make simulate SEED={seed}    {reason(error)}", flush=True)
            continue
        totals.update(report.counts)
        totals["task steps"] += report.steps
        orders.add(report.order)
    count = len(seeds)
    took_s = time.monotonic() - began
    print(f"{count} seeds, {len(failed)} failed, {len(orders)} different interleavings, {took_s:.0f} s")
    for name in sorted(totals):
        print(f"{totals[name]:>10,}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
