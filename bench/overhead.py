"""What a harness adds to a turn: a model that answers at once over real HTTP, and a tool that returns at once.

`python -m bench.overhead [--quick] [--rounds N] [--peers PYTHON] [--json FILE]`. Every contender works the same
conversation against the same server, each in a process of its own, one after the other in every round.
PYTHON: the interpreter that has the peers (the extra `bench`); one that is missing there is skipped with a line.

Belongs here: running the contenders side by side and comparing them.
Must not know: how any of them is driven (bench/contenders.py).
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.contenders import CONTENDERS, PEERS
from bench.loopback import loopback


class Run(msgspec.Struct, frozen=True):
    """What one process measured; see bench/contenders.py. process_s: its whole life."""

    import_s: float
    import_mb: float
    at_s: tuple[float, ...]
    peak_mb: float
    process_s: float = 0.0

    def turn_ms(self, at: int, around: int = 5) -> float:
        """The median turn near the `at`-th."""
        gaps = [(b - a) * 1000 for a, b in itertools.pairwise(self.at_s)]
        return statistics.median(gaps[max(0, at - around) : at + around])


class Contender(msgspec.Struct, frozen=True):
    """Medians over rounds. start_s: a process that only loads it."""

    name: str
    turn_ms: dict[int, float]
    start_s: float
    import_mb: float
    peak_mb: float


class Goal(msgspec.Struct, frozen=True):
    what: str
    value: float
    at_most: float

    @property
    def met(self) -> bool:
        return self.value <= self.at_most


def once(name: str, base: str, calls: int, python: str) -> Run | str:
    """One process, or the last line of why it did not work."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk: the usual temporary folder may be in memory
        url = f"{base}/{time.monotonic_ns()}/{calls}/v1"
        command = [python, "-m", "bench.contenders", name, url, str(calls), folder]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        process_s = time.perf_counter() - started
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    found = msgspec.json.decode(done.stdout.splitlines()[-1], type=Run)
    return msgspec.structs.replace(found, process_s=process_s)


def measure(turns: Sequence[int], rounds: int, peers_python: str) -> tuple[list[Contender], list[str]]:
    """Every contender that works here, and a line for each that does not."""
    calls = max(turns) + 6
    runs: dict[str, list[Run]] = {}
    starts: dict[str, list[Run]] = {}
    skipped: dict[str, str] = {}
    with loopback() as base:
        for name in itertools.chain.from_iterable([CONTENDERS] * rounds):
            python = peers_python if name in PEERS else sys.executable
            start = once(name, base, 0, python)
            run = start if isinstance(start, str) else once(name, base, calls, python)
            if isinstance(start, str) or isinstance(run, str):
                skipped[name] = f"skipped {name}: {run}"
                continue
            starts.setdefault(name, []).append(start)
            runs.setdefault(name, []).append(run)
    found = [summed(name, runs[name], starts[name], turns) for name in CONTENDERS if name in runs]
    return found, list(skipped.values())


def summed(name: str, runs: Sequence[Run], starts: Sequence[Run], turns: Sequence[int]) -> Contender:
    """The medians. Of starts the least: what was in no cache the first time says nothing about the program."""
    return Contender(
        name,
        {at: statistics.median(run.turn_ms(at) for run in runs) for at in turns},
        min(start.process_s for start in starts),
        statistics.median(start.import_mb for start in starts),
        statistics.median(run.peak_mb for run in runs),
    )


def goals(found: Sequence[Contender], turns: Sequence[int]) -> list[Goal]:
    """The design's goals, as far as those who are needed are there."""
    by_name = {contender.name: contender for contender in found}
    ours, bare = by_name["turnlog"], by_name["bare loop"]
    first, last = min(turns), max(turns)
    added = {at: ours.turn_ms[at] - bare.turn_ms[at] for at in turns}
    result = [
        Goal(f"a turn at {last}, of the bare loop's", ours.turn_ms[last] / bare.turn_ms[last], 2.0),
        Goal(f"added at {last}, of what is added at {first}", added[last] / added[first], 1.5),
        Goal("start, seconds", ours.start_s, 0.5),
        Goal("memory after import, MB", ours.import_mb, 60.0),
    ]
    peers = [by_name[name].turn_ms[last] for name in PEERS if name in by_name]
    if peers:
        result.insert(0, Goal(f"a turn at {last}, of the best peer's", ours.turn_ms[last] / min(peers), 0.10))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 turns instead of 500")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="the interpreter that has the peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args()
    turns = (10, 50, 100) if options.quick else (10, 100, 500)
    found, skipped = measure(turns, options.rounds, options.peers)
    heads = "".join(f"{f'{at} turns':>11}" for at in turns)
    print(f"{'ms a turn':<16}{heads}{'start s':>11}{'import MB':>11}{'peak MB':>11}")
    for one in found:
        cells = "".join(f"{one.turn_ms[at]:>11.1f}" for at in turns)
        print(f"{one.name:<16}{cells}{one.start_s:>11.2f}{one.import_mb:>11.0f}{one.peak_mb:>11.0f}")
    for line in skipped:
        print(line)
    met = goals(found, turns)
    for goal in met:
        print(f"{goal.what:<44} {goal.value:>6.2f}  (at most {goal.at_most:g}) {'met' if goal.met else 'MISSED'}")
    if options.json is not None:
        shown = {"contenders": msgspec.to_builtins(found, str_keys=True), "goals": msgspec.to_builtins(met)}
        options.json.write_text(json.dumps(shown, indent=2) + "\n")


if __name__ == "__main__":
    main()
