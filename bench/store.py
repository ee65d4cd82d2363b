"""What the store costs beside raw sqlite3, as ratios measured side by side in one run.

`python -m bench.store [--quick] [--json FILE]`. Raw means: the same rows, the same settings (WAL, synchronous=FULL),
one commit an append. Rounds of both alternate, so that a busy machine slows both alike.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import trio

from store import NewRecord, SqliteStore

WHEN = "2026-01-02T03:04:05.678Z"
ROWS = ("durable append, 1 writer", "durable append, 50 sessions", "fork of a long session", "verified read")


class Figure(msgspec.Struct):
    """One line of the table. `better` says on which side of the goal is good."""

    name: str
    ratio: float
    goal: float | None
    better: str
    detail: str

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ratio <= self.goal if self.better == "low" else self.ratio >= self.goal


def record(number: int) -> NewRecord:
    """An event of a usual size: about 400 bytes of JSON."""
    return NewRecord("turn_finished", 1, WHEN, msgspec.json.encode({"number": number, "text": "word " * 75}))


def raw_store(path: Path) -> sqlite3.Connection:
    """A database as a careful program would make it by hand."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(
        "CREATE TABLE events (session_id TEXT, seq INTEGER, kind TEXT, version INTEGER, recorded_at TEXT, data TEXT,"
        " hash BLOB, PRIMARY KEY (session_id, seq))"
    )
    return connection


def raw_appends(connection: sqlite3.Connection, first: int, count: int) -> list[float]:
    """Seconds of each of `count` appends, one commit each."""
    seconds = []
    for seq in range(first, first + count):
        new = record(seq)
        row = ("s", seq, new.kind, new.version, new.recorded_at, new.data.decode(), b"0" * 16)
        started = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
        seconds.append(time.perf_counter() - started)
    return seconds


async def one_writer(folder: Path, rounds: int, appends: int) -> Figure:
    raw_s: list[float] = []
    ours_s: list[float] = []
    async with SqliteStore.open(folder / "one.db") as store:
        await store.create("s", [record(1)], created_at=WHEN, title="")
        lease = await store.acquire("s")
        seq = 1
        with closing(raw_store(folder / "one-raw.db")) as raw:
            for number in range(rounds):
                raw_s += raw_appends(raw, number * appends, appends)
                for _ in range(appends):
                    new = record(seq + 1)
                    started = time.perf_counter()
                    await store.append(lease, [new], expected_seq=seq)
                    ours_s.append(time.perf_counter() - started)
                    seq += 1
    raw_ms, ours_ms = (statistics.median(seconds) * 1000 for seconds in (raw_s, ours_s))
    detail = f"median {ours_ms:.2f} ms against {raw_ms:.2f} ms"
    return Figure(ROWS[0], ours_ms / raw_ms, 2.0, "low", detail)


async def fifty_sessions(folder: Path, rounds: int, appends: int, sessions: int = 50) -> Figure:
    raw_s = ours_s = 0.0
    each = max(1, appends // 10)

    async def write(name: str, start: int) -> None:
        for seq in range(start, start + each):
            await store.append(leases[name], [record(seq + 1)], expected_seq=seq)

    async with SqliteStore.open(folder / "fifty.db") as store:
        names = [f"s{number}" for number in range(sessions)]
        for name in names:
            await store.create(name, [record(1)], created_at=WHEN, title="")
        leases = {name: await store.acquire(name) for name in names}
        with closing(raw_store(folder / "fifty-raw.db")) as raw:
            for number in range(rounds):
                raw_s += sum(raw_appends(raw, number * appends, appends)) / appends
                started = time.perf_counter()
                async with trio.open_nursery() as nursery:
                    for name in names:
                        nursery.start_soon(write, name, 1 + number * each)
                ours_s += (time.perf_counter() - started) / (sessions * each)
    detail = f"{rounds / ours_s:,.0f} against {rounds / raw_s:,.0f} appends/s"
    return Figure(ROWS[1], raw_s / ours_s, 2.5, "high", detail)


async def forks(folder: Path, count: int, long: int) -> Figure:
    lengths = {"short": 10, "long": long}
    seconds = dict.fromkeys(lengths, 0.0)
    async with SqliteStore.open(folder / "forks.db") as store:
        for name, length in lengths.items():
            await store.create(name, [record(seq) for seq in range(1, length + 1)], created_at=WHEN, title="")
        for number in range(count):
            for name, length in lengths.items():
                started = time.perf_counter()
                await store.fork(name, f"{name}-{number}", [record(0)], at=length, created_at=WHEN, title="")
                seconds[name] += time.perf_counter() - started
    short_ms, long_ms = (seconds[name] / count * 1000 for name in lengths)
    detail = f"{long_ms:.2f} ms at {long:,} events against {short_ms:.2f} ms at 10"
    return Figure(ROWS[2], seconds["long"] / seconds["short"], 1.5, "low", detail)


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def read_and_decode(path: Path) -> None:
    """The least that reading a log can cost: every row and its JSON."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT seq, kind, version, recorded_at, data, hash FROM events ORDER BY seq"
        ).fetchall()
    for row in rows:
        msgspec.json.decode(row[4])


async def reads(folder: Path, rows: int) -> list[Figure]:
    path = folder / "reads.db"
    plain_s, ours_s = [], []
    async with SqliteStore.open(path) as store:
        await store.create("s", [record(seq) for seq in range(1, rows + 1)], created_at=WHEN, title="")
        for _ in range(3):
            plain_s.append(timed(lambda: read_and_decode(path)))
            started = time.perf_counter()
            for found in await store.read("s"):
                msgspec.json.decode(found.data)
            ours_s.append(time.perf_counter() - started)
    detail = f"{rows:,} rows: {min(ours_s):.2f} s with hashes checked against {min(plain_s):.2f} s"
    figures = [Figure(ROWS[3], min(plain_s) / min(ours_s), None, "high", detail)]
    return figures + await folding(folder, rows)


def real_events(rows: int) -> list[NewRecord]:
    """The log of a session with as many events: runs of two turns with two calls each."""
    from bench.logs import long_log
    from harness.log import encode

    return [encode(logged.event, logged.recorded_at) for logged in long_log(rows)]


async def folding(folder: Path, rows: int) -> list[Figure]:
    """Read, decode and fold a log of real events, against read and decode alone; and a resume of it.

    The goal is against the same read (hashes checked) and typed decode without the fold; beside it, against sqlite3's
    own rows and untyped JSON.
    """
    import harness
    from harness.history import fold
    from harness.log import decode_all

    path = folder / "fold.db"
    records = real_events(rows)
    raw_s, plain_s, ours_s, resume_s = [], [], [], []
    async with SqliteStore.open(path) as store:
        await store.create("s", records, created_at=WHEN, title="")
        for _ in range(3):
            raw_s.append(timed(lambda: read_and_decode(path)))
            started = time.perf_counter()
            decode_all(await store.read("s"))
            plain_s.append(time.perf_counter() - started)
            started = time.perf_counter()
            await fold(store, "s")
            ours_s.append(time.perf_counter() - started)
            started = time.perf_counter()
            async with harness.open_session(store, session_id="s", model="runbook"):
                resume_s.append(time.perf_counter() - started)
    ours, plain, raw = min(ours_s), min(plain_s), min(raw_s)
    return [
        Figure(
            "read, decode, apply", plain / ours, 0.5, "high", f"{rows:,} events: {ours:.2f} s against {plain:.2f} s"
        ),
        Figure("the same, against raw", raw / ours, None, "high", f"{ours:.2f} s against {raw:.2f} s"),
        Figure("resume, against raw", raw / min(resume_s), None, "high", f"open_session: {min(resume_s):.2f} s"),
    ]


async def measure(*, quick: bool) -> list[Figure]:
    rounds, appends, long = (4, 50, 10_000) if quick else (20, 100, 100_000)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:  # a disk: the usual temporary folder may be in memory
        folder = Path(name)
        figures = [
            await one_writer(folder, rounds, appends),
            await fifty_sessions(folder, rounds, appends),
            await forks(folder, 100 if quick else 1000, long),
        ]
        return figures + await reads(folder, long)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, with more noise")
    options = parser.parse_args()
    figures = trio.run(lambda: measure(quick=options.quick))
    print(f"{'':<30} {'ratio':>6} {'goal':>8}  {'met':<4} detail")
    for figure in figures:
        goal = "" if figure.goal is None else f"{'<=' if figure.better == 'low' else '>='} {figure.goal}"
        met = {None: "", True: "yes", False: "NO"}[figure.met]
        print(f"{figure.name:<30} {figure.ratio:>6.2f} {goal:>8}  {met:<4} {figure.detail}")
    if options.json is not None:
        options.json.write_text(
            json.dumps([{**msgspec.to_builtins(f), "met": f.met} for f in figures], indent=2) + "\n"
        )


if __name__ == "__main__":
    main()
