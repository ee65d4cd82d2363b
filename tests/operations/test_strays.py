"""What commands left running when they ended: it goes on, until its owner has it ended. Real processes."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

import pytest
import trio
import trio.testing

from operations import OperationGroup, Status
from operations.process_table import look_up
from tests.operations.helpers import Held, drain, ends, gone, group_of, held, run, shell, until

settled = trio.testing.wait_all_tasks_blocked

STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"
LEFT = {
    "in the background": "sleep 300 &",
    "own session": "setsid sleep 300 &",
    "daemon": "(setsid setsid sleep 300 >/dev/null 2>&1 </dev/null &); sleep 0.2",
    "empty environment": "env -i sleep 300 >/dev/null 2>&1 &",
    "stopped": "sh -c 'kill -STOP $$' & sleep 0.1",
    "ignores SIGTERM": f"({STUBBORN}) &",
}


async def left_running(group: OperationGroup, id_: str, command: str, folder: Path) -> list[int]:
    """The processes that the command leaves behind."""
    end = await run(group, shell(id_, command, folder))
    strays: list[int] = (end.result or {})["strays"]
    assert end.status is Status.COMPLETED and strays and not any(map(gone, strays))
    return strays


async def all_gone(pids: list[int]) -> None:
    try:
        await until(lambda: all(map(gone, pids)), within_s=5)
    finally:
        for pid in pids:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("left", LEFT.values(), ids=LEFT)
async def test_what_a_command_left_running_can_be_ended_later(tmp_path: Path, left: str) -> None:
    async with group_of(tmp_path / "operations") as group:
        strays = await left_running(group, "op", left, tmp_path)
        group.end_strays()
        await all_gone(strays)


async def test_it_can_be_ended_by_a_later_owner(tmp_path: Path) -> None:
    async with group_of(tmp_path / "operations") as group:
        strays = await left_running(group, "op", LEFT["own session"], tmp_path)
    assert not any(map(gone, strays)), "closing ended what was left running"
    async with group_of(tmp_path / "operations") as group:
        group.recover([])
        group.end_strays()
        await all_gone(strays)


async def test_leaving_does_not_cut_it_short(tmp_path: Path) -> None:
    async with group_of(tmp_path / "operations") as group:
        strays = await left_running(group, "op", LEFT["ignores SIGTERM"], tmp_path)
        group.end_strays()
    await all_gone(strays)


async def test_what_still_runs_and_what_belongs_to_others_is_left_alone(tmp_path: Path) -> None:
    async with group_of(tmp_path / "a") as ours, group_of(tmp_path / "b") as theirs:
        strays = await left_running(ours, "op", LEFT["in the background"], tmp_path)
        others = await left_running(theirs, "op", LEFT["in the background"], tmp_path)
        ours.start([shell("runs", "sleep 300 & echo $$ $! > pids; wait", tmp_path)])
        running = [int(word) for word in (await until(lambda: _words(tmp_path / "pids")))]
        ours.end_strays()
        await all_gone(strays)
        assert not any(map(gone, [*others, *running]))
        ours.cancel(["runs"], "enough")
        theirs.end_strays()
        await all_gone([*others, *running])


def _words(path: Path) -> list[str]:
    text = path.read_text() if path.exists() else ""
    return text.split() if text.endswith("\n") else []


async def test_a_process_id_that_came_again_is_left_alone(tmp_path: Path) -> None:
    stranger = await trio.lowlevel.open_process(["sleep", "1000"], start_new_session=True)
    try:
        row = look_up(stranger.pid)
        assert row is not None
        async with group_of(tmp_path / "operations") as group:
            strays = await left_running(group, "op", LEFT["own session"], tmp_path)
            command = tmp_path / "operations" / "op" / "command"
            command.write_text(f"{stranger.pid} {row.process.began - 1}\n")
            group.end_strays()
            await all_gone(strays)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        await stranger.wait()


async def test_only_folders_of_what_has_ended_are_swept(tmp_path: Path) -> None:
    swept: list[list[Path]] = []

    class Sweeping(Held):
        async def end_strays(self, folders: list[Path]) -> None:
            swept.append(folders)

    handler = Sweeping()
    for name in ("a", "b", "of a predecessor"):
        (tmp_path / name).mkdir()
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.start(held("a", "b"))
        await settled()
        handler.finish("a")
        await ends(group, "a")
        group.end_strays()
        await until(lambda: swept)
        assert sorted(path.name for path in swept[0]) == ["a", "of a predecessor"]


async def test_a_sweep_that_fails_or_never_ends_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Held):
        async def end_strays(self, folders: list[Path]) -> None:
            if folders:
                await trio.sleep_forever()
            raise OSError("no process table")

    with trio.fail_after(10), caplog.at_level(logging.WARNING, "turnlog.operations"):
        async with group_of(tmp_path / "none", handlers=[Failing()], cancel_grace_s=0.1) as group:
            group.end_strays()
            group.start(held("a"))
            await until(lambda: caplog.records)
            await settled()
            assert drain(group) == [("a", Status.RUNNING)]
        (tmp_path / "some" / "op").mkdir(parents=True)
        async with group_of(tmp_path / "some", handlers=[Failing()], cancel_grace_s=0.1) as group:
            group.end_strays()
    assert "no process table" in caplog.text
