"""What the context builder and a replay cost as a history grows.

`python -m bench.replay [--quick] [--json FILE]`. A build is that of a turn whose step is always the same; its cost has
to grow with what is new only. Beside it, what handing the whole history to a request costs at least: one list of its
items. A check of a log builds every turn's request again and compares its digest.

Belongs here: the two measurements.
Must not know: how logs are made (bench/logs.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

import harness
from bench.logs import long_log
from harness import events as ev
from harness.context import build
from harness.folding import apply
from harness.state import SessionState

AT = (1_000, 10_000, 100_000)


class Build(msgspec.Struct, frozen=True):
    """Medians in microseconds, at a history of so many items. list_us: of copying the list of items alone."""

    events: int
    items: int
    build_us: float
    list_us: float

    @property
    def own_us(self) -> float:
        """What the builder itself takes."""
        return self.build_us - self.list_us


def builds(log: Sequence[ev.Logged], at: Sequence[int], times: int = 40) -> list[Build]:
    """Build costs just before the last turn at or before each of these lengths."""
    found: list[Build] = []
    state, before = SessionState(), SessionState()
    lengths = iter(sorted(at))
    wanted = next(lengths)
    for logged in log:
        if isinstance(logged.event, ev.TurnStarted) and logged.event.reason is ev.Reason.RESULTS:
            before = state
        state = apply(state, logged)
        if logged.seq == wanted:
            found.append(_measured(before, times))
            wanted = next(lengths, 0)
    return found


def _measured(state: SessionState, times: int) -> Build:
    build(state)  # counts what is fixed once, as the turn before had done
    took, copied = [], []
    items = state.sent.items
    for _ in range(times):
        started = time.perf_counter()
        build(state)
        took.append(time.perf_counter() - started)
        started = time.perf_counter()
        items[:]
        copied.append(time.perf_counter() - started)
    return Build(state.seq, len(items), statistics.median(took) * 1e6, statistics.median(copied) * 1e6)


def check_s(log: Sequence[ev.Logged]) -> float:
    """Seconds that checking a whole log takes. Raises ValueError if it is not in order."""
    started = time.perf_counter()
    if harness.Replay("s", log).check():
        raise ValueError("the log would not be sent again as it was")
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, with more noise")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    at = AT[:-1] if options.quick else AT
    log = long_log(at[-1])
    found = builds(log, at)
    print(f"{'events':>10} {'items':>8} {'build us':>10} {'list us':>10} {'the rest':>10}")
    for one in found:
        print(f"{one.events:>10,} {one.items:>8,} {one.build_us:>10.0f} {one.list_us:>10.0f} {one.own_us:>10.0f}")
    ratio = found[-1].own_us / found[0].own_us
    print(f"build without the list, longest of shortest: {ratio:.2f} (goal: about 1)")
    checked_s = check_s(log[: at[-2]])
    print(f"replay.check of {at[-2]:,} events: {checked_s:.2f} s")
    if options.json is not None:
        shown = {"builds": msgspec.to_builtins(found), "ratio": ratio, "check_s": checked_s, "check_events": at[-2]}
        options.json.write_text(json.dumps(shown, indent=2) + "\n")


if __name__ == "__main__":
    main()
