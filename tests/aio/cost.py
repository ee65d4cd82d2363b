"""What asyncio pays for the session API: `python -m tests.aio.cost` prints microseconds, native trio beside it.

Belongs here: the measurement behind the table in docs/asyncio.md. Not a test.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import trio

import harness
import harness.aio
from tests.aio.programs import HELLO

ROUNDS = 200


async def _median_us(action: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        await action()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1e6


async def _measure(api: Any, folder: Path) -> dict[str, float]:
    """The same lines for both: `api` is harness or harness.aio."""
    store = folder / "s.db"
    found: dict[str, float] = {}
    async with api.open_session(store, model="runbook", workspace=folder) as session:
        cross = getattr(session, "cross", None)
        one_call = (lambda: cross(trio.lowlevel.checkpoint)) if cross is not None else trio.lowlevel.checkpoint
        found["an empty call"] = await _median_us(one_call)
        await session.run(HELLO, "k")
        found["session.run, known key"] = await _median_us(lambda: session.run(HELLO, "k"))
        found["session.run, one command"] = await _median_us(lambda: session.run(HELLO), 20)

        async def read() -> None:
            async for _ in session.events():
                pass

        found["session.events, an event"] = await _median_us(read, 20) / session.state.seq

    async def reopen() -> None:
        async with api.open_session(store, session_id=session.id):
            pass

    found["open_session and leave it"] = await _median_us(reopen, 50)
    found["harness.sessions"] = await _median_us(lambda: api.sessions(store), 50)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        native = trio.run(_measure, harness, Path(one))
        guest = asyncio.run(_measure(harness.aio, Path(two)))
    for name, us in native.items():
        print(f"{name:28}  trio {us:9.0f}  asyncio {guest[name]:9.0f}")


if __name__ == "__main__":
    main()
