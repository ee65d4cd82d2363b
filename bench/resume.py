"""What resuming a session costs as its log grows: seconds and memory, each length in a process of its own.

`python -m bench.resume [--quick] [--json FILE]`. The process opens the store and the session, and is idle then. Memory
is what is resident, and the most that was, over what it was with the same imported and nothing opened.

Belongs here: making the stores, starting the processes, reading their figures.
Must not know: how logs are made (bench/logs.py), or how a session is resumed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import trio

import harness
from bench.logs import RECORDED_AT, long_log
from harness.log import encode
from store import NewRecord, SqliteStore

AT = (1_000, 10_000, 100_000)
TIMES = 3


class Resumed(msgspec.Struct, frozen=True):
    """The least of some tries: seconds, and megabytes that stay and that were needed on the way."""

    events: int
    seconds: float
    stays_mb: float
    peak_mb: float


def measure(at: Sequence[int]) -> list[Resumed]:
    """A row a length."""
    log = long_log(max(at))
    found = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:  # a disk: the usual temporary folder may be in memory
        for events in at:
            path = Path(folder, f"{events}.db")
            trio.run(_written, path, [encode(logged.event, RECORDED_AT) for logged in log[:events]])
            tries = [_in_a_process(path) for _ in range(TIMES)]
            found.append(Resumed(events, *(min(values) for values in zip(*tries, strict=True))))
    return found


async def _written(path: Path, records: list[NewRecord]) -> None:
    async with SqliteStore.open(path) as store:
        await store.create("s", records, created_at=RECORDED_AT, title="")


def _in_a_process(path: Path) -> tuple[float, float, float]:
    done = subprocess.run([sys.executable, "-m", "bench.resume", "--child", path], capture_output=True, check=True)
    seconds, stays_mb, peak_mb = json.loads(done.stdout)
    return seconds, stays_mb, peak_mb


async def _resumed(path: str) -> tuple[float, float, float]:
    before_mb = _mb("VmRSS")
    started = time.perf_counter()
    async with harness.open_session(path, session_id="s", resume="must"):
        seconds = time.perf_counter() - started
        return seconds, _mb("VmRSS") - before_mb, _mb("VmHWM") - before_mb


def _mb(what: str) -> float:
    """From the system's own account of this process: getrusage's maximum is also of what started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{what}:")) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, with more noise")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--child", metavar="STORE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(trio.run(_resumed, options.child)))
        return
    found = measure(AT[:-1] if options.quick else AT)
    print(f"{'events':>10} {'seconds':>9} {'us/event':>9} {'stays MB':>9} {'peak MB':>9}")
    for one in found:
        each_us = one.seconds / one.events * 1e6
        print(f"{one.events:>10,} {one.seconds:>9.3f} {each_us:>9.1f} {one.stays_mb:>9.1f} {one.peak_mb:>9.1f}")
    if options.json is not None:
        options.json.write_text(json.dumps(msgspec.to_builtins(found), indent=2) + "\n")


if __name__ == "__main__":
    main()
