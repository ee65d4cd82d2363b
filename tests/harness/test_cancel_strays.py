"""Cancelling a session ends what its commands left running, also when their calls ended long ago. Real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from tests.operations.helpers import gone, read, until

LEAVES = "setsid sleep 300 & echo $! > left"


def running(*commands: str) -> harness.Scripted:
    """A model that runs these commands in one turn, and then has nothing more to do."""
    calls = [{"name": "bash", "arguments": {"command": command}} for command in commands]
    return harness.Scripted([{"calls": calls}, {"text": "done", "repeat": True}])


@pytest.mark.parametrize("reopened", [False, True], ids=["at once", "by a later owner"])
async def test_a_cancel_ends_what_commands_of_earlier_runs_left_running(tmp_path: Path, reopened: bool) -> None:
    store, model = tmp_path / "s.db", running(LEAVES)
    async with harness.open_session(store, session_id="s", model=model, workspace=tmp_path) as session:
        assert (await session.run("go")).outcome == "completed"
        pid = int(read(tmp_path / "left"))
        if not reopened:
            assert not gone(pid)
            await session.cancel()
    if reopened:
        assert not gone(pid), "closing ended it"
        async with harness.open_session(store, session_id="s", model=model, workspace=tmp_path) as session:
            await session.cancel()
    await until(lambda: gone(pid), within_s=5)


async def test_a_cancel_ends_both_what_runs_and_what_was_left_running(tmp_path: Path) -> None:
    model = running(LEAVES, "echo $$ > runs; sleep 300")
    async with harness.open_session(tmp_path / "s.db", model=model, workspace=tmp_path) as session:
        run = await session.start_run("go")
        await until(lambda: len(session.state.pending) == 1 and read(tmp_path / "runs"))
        pids = [int(read(tmp_path / name)) for name in ("left", "runs")]
        assert not any(map(gone, pids))
        await session.cancel()
        assert (await run.result()).outcome == "cancelled"
    await until(lambda: all(map(gone, pids)), within_s=5)
