"""Commands that outlive whoever started them: real processes, really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from operations import ShellHandler, Status, Update, process
from operations.boot import boot_id
from operations.process_table import Process, look_up
from tests.operations.helpers import ends, gone, group_of, read, shell, statuses, until

ROOT = Path(__file__).parents[2]
WAITS_FOR_GO = "echo x >> n.txt; while [ ! -e go ]; do sleep 0.02; done; echo y >> n.txt; echo out; exit 3"


@contextmanager
def parent(folder: Path, commands: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own that has started these commands, by the ids of their operations."""
    words = [word for pair in commands.items() for word in pair]
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.operations.parent", str(folder), *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    with started:
        try:
            assert started.stdout is not None
            assert {started.stdout.readline() for _ in commands} == {f"running {id_}\n" for id_ in commands}
            yield started
        finally:
            kill(started)


def kill(started: subprocess.Popen[str]) -> None:
    """SIGKILL to the process and its whole group."""
    if started.poll() is None:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def started_and_killed(folder: Path, command: str, ready: str = "n.txt") -> process.Traces:
    """The command runs, was begun by a process that is dead, and has written its first file."""
    with parent(folder, {"op": command}) as started:
        while not (folder / ready).exists():
            assert started.poll() is None
        kill(started)
    return traces(folder)


def traces(folder: Path) -> process.Traces:
    return process.Traces(folder / "operations" / "op")


async def recovered(folder: Path, command: str, status: Status = Status.RUNNING) -> Update:
    """The end of the operation as a new owner learns it."""
    async with group_of(folder / "operations") as group:
        group.recover([shell("op", command, folder, status=status)])
        return (await ends(group, "op"))["op"]


def result(update: Update) -> dict[str, Any]:
    assert update.result is not None
    return update.result


@pytest.mark.parametrize("status", [Status.READY, Status.RUNNING])
async def test_a_command_that_still_runs_is_taken_up_again(tmp_path: Path, status: Status) -> None:
    started_and_killed(tmp_path, WAITS_FOR_GO)
    async with group_of(tmp_path / "operations") as group:
        group.recover([shell("op", WAITS_FOR_GO, tmp_path, status=status)])
        assert (await group.updates.receive()).status is Status.RUNNING
        (tmp_path / "go").touch()
        end = (await ends(group, "op"))["op"]
    assert (end.status, result(end)["exit_status"], result(end)["output"]) == (Status.COMPLETED, 3, "out\n")
    assert read(tmp_path / "n.txt") == "x\ny\n"


async def test_fifty_commands_are_all_taken_up_again(tmp_path: Path) -> None:
    commands = {f"op{number}": WAITS_FOR_GO.replace("echo out", f"echo out {number}") for number in range(50)}
    with parent(tmp_path, commands) as started:
        await until(lambda: read(tmp_path / "n.txt").count("x\n") == len(commands))
        kill(started)
    async with group_of(tmp_path / "operations") as group:
        group.recover([shell(id_, command, tmp_path, status=Status.RUNNING) for id_, command in commands.items()])
        for _ in commands:
            taken_up = await group.updates.receive()
            claim = process.Traces(tmp_path / "operations" / taken_up.operation_id).claim()
            assert claim is not None and not gone(claim.supervisor.pid)
            assert taken_up.checkpoint == {"pid": claim.supervisor.pid, "began": claim.supervisor.began}
        (tmp_path / "go").touch()
        found = await ends(group, *commands)
    for number in range(50):
        end = found[f"op{number}"]
        assert (end.status, result(end)["exit_status"]) == (Status.COMPLETED, 3)
        assert result(end)["output"] == f"out {number}\n"
    assert sorted(read(tmp_path / "n.txt").split()) == ["x"] * 50 + ["y"] * 50


@pytest.mark.parametrize("status", [Status.READY, Status.RUNNING, Status.CANCELLING])
async def test_a_command_that_ended_meanwhile_is_collected(tmp_path: Path, status: Status) -> None:
    (tmp_path / "go").touch()
    left = started_and_killed(tmp_path, WAITS_FOR_GO)
    await until(left.exit)
    end = await recovered(tmp_path, WAITS_FOR_GO, status)
    assert (end.status, result(end)["exit_status"], result(end)["output"]) == (Status.COMPLETED, 3, "out\n")
    assert end.seconds is not None
    assert end.seconds < 10
    assert read(tmp_path / "n.txt") == "x\ny\n"


async def test_recovering_twice_at_once_runs_it_once(tmp_path: Path) -> None:
    command = "echo x >> n.txt; sleep 0.2; echo y >> n.txt"
    found: list[Update] = []

    async def one() -> None:
        found.append(await recovered(tmp_path, command, Status.READY))

    process_mark(tmp_path)
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(one)
    assert read(tmp_path / "n.txt") == "x\ny\n"
    assert {(end.status, result(end)["exit_status"]) for end in found} == {(Status.COMPLETED, 0)}


def process_mark(folder: Path, boot: str | None = None) -> None:
    """The folder as it was left by an owner of this boot, or of another."""
    (folder / "operations").mkdir(exist_ok=True)
    (folder / "operations" / "boot").write_text(boot_id() if boot is None else boot)


async def test_a_ready_one_that_never_began_is_started(tmp_path: Path) -> None:
    process_mark(tmp_path)
    end = await recovered(tmp_path, "echo x >> n.txt", Status.READY)
    assert (end.status, read(tmp_path / "n.txt")) == (Status.COMPLETED, "x\n")


@pytest.mark.parametrize("boot", ["another", None], ids=["restarted", "other machine"])
async def test_a_ready_one_of_another_boot_is_in_doubt_and_stays_so(tmp_path: Path, boot: str | None) -> None:
    if boot is not None:
        process_mark(tmp_path, boot)
    for _ in range(2):  # the first answer may be lost in a second crash
        end = await recovered(tmp_path, "echo x >> n.txt", Status.READY)
        assert end.status is Status.UNKNOWN
        assert result(end)["error"].endswith("It may have run in part.")
    assert read(tmp_path / "n.txt") == ""
    assert read(tmp_path / "operations" / "boot") == boot_id()


async def test_a_ready_one_that_was_cancelled_before_recovery_began_never_runs(tmp_path: Path) -> None:
    process_mark(tmp_path)
    async with group_of(tmp_path / "operations", limits={"shell": 1}) as group:
        group.recover([shell("op", "echo x >> n.txt", tmp_path)])
        group.cancel(["op"], "enough")
        assert (await statuses(group, "op"))[-1] is Status.CANCELLED
    end = await recovered(tmp_path, "echo x >> n.txt", Status.READY)
    assert end.status is Status.UNKNOWN
    assert read(tmp_path / "n.txt") == ""


async def test_a_command_whose_supervisor_was_killed_is_unknown_with_its_output(tmp_path: Path) -> None:
    command = "echo so far; echo x > n.txt; exec sleep 1000"
    left = started_and_killed(tmp_path, command)
    claim = await until(left.claim)
    os.kill(claim.supervisor.pid, signal.SIGKILL)
    await until(lambda: gone(claim.supervisor.pid))
    end = await recovered(tmp_path, command)
    assert end.status is Status.UNKNOWN
    assert result(end)["output"] == "so far\n"
    assert "supervisor is gone" in result(end)["error"]
    (stray,) = result(end)["strays"]
    assert await recovered(tmp_path, command, Status.CANCELLING)
    assert gone(stray), "cancelling ends what an orphaned command left"


async def test_a_command_that_was_itself_killed_is_collected(tmp_path: Path) -> None:
    left = started_and_killed(tmp_path, "echo x > n.txt; exec sleep 1000")
    command = await until(lambda: left.process("command"))
    os.kill(command.pid, signal.SIGKILL)
    end = await recovered(tmp_path, "")
    assert (end.status, result(end)["exit_status"], result(end)["signal"]) == (Status.COMPLETED, 137, "SIGKILL")


@pytest.mark.parametrize("field", ["began", "boot"])
async def test_a_process_id_that_came_again_is_not_taken_for_ours(tmp_path: Path, field: str) -> None:
    folder = tmp_path / "operations" / "op"
    folder.mkdir(parents=True)
    stranger = await trio.lowlevel.open_process(["sleep", "1000"], start_new_session=True)
    try:
        row = look_up(stranger.pid)
        assert row is not None
        began = row.process.began - 1 if field == "began" else row.process.began
        boot = "another" if field == "boot" else boot_id()
        (folder / "claim").write_text(f"{stranger.pid} {began} 1.0 {boot}\n")
        (folder / "command").write_text(f"{stranger.pid} {began}\n")
        (folder / "status").write_text("running\n")
        for status in (Status.RUNNING, Status.CANCELLING):
            end = await recovered(tmp_path, "", status)
            assert end.status is Status.UNKNOWN
            assert result(end)["strays"] == []
        assert stranger.poll() is None, "a stranger was killed"
    finally:
        stranger.kill()
        await stranger.wait()


@pytest.mark.parametrize("words", ["", "12", "a b c d\n", "1 2 3.0 boot", "\udcff"])
async def test_a_damaged_claim_is_unknown_and_starts_nothing(tmp_path: Path, words: str) -> None:
    folder = tmp_path / "operations" / "op"
    folder.mkdir(parents=True)
    (folder / "claim").write_bytes(os.fsencode(words))
    end = await recovered(tmp_path, "echo x >> n.txt", Status.READY)
    assert end.status is Status.UNKNOWN
    assert read(tmp_path / "n.txt") == ""


async def test_one_whose_folder_is_gone_is_unknown(tmp_path: Path) -> None:
    end = await recovered(tmp_path, "echo x >> n.txt", Status.RUNNING)
    assert end.status is Status.UNKNOWN
    assert result(end)["error"].startswith("its traces are not beside the store")  # and not: the machine was restarted
    assert read(tmp_path / "n.txt") == ""


async def test_the_time_limit_goes_on_over_a_restart(tmp_path: Path) -> None:
    command = "echo x > n.txt; exec sleep 1000"
    left = started_and_killed(tmp_path, command)
    claim = await until(left.claim)
    # As if it had begun an hour ago, without waiting for that.
    (left.folder / "claim").write_text(
        f"{claim.supervisor.pid} {claim.supervisor.began} {claim.uptime_s - 3600} {claim.boot}\n"
    )
    async with group_of(tmp_path / "operations") as group:
        group.recover([shell("op", command, tmp_path, status=Status.RUNNING, timeout_s=1800)])
        end = (await ends(group, "op", within_s=5))["op"]
    assert (end.status, result(end)["timed_out"]) == (Status.FAILED, True)
    assert gone(claim.supervisor.pid)


async def test_a_cancel_that_a_crash_cut_short_is_carried_out(tmp_path: Path) -> None:
    command = "echo x > n.txt; exec sleep 1000"
    left = started_and_killed(tmp_path, command)
    end = await recovered(tmp_path, command, Status.CANCELLING)
    assert end.status is Status.CANCELLED
    leader = left.process("command")
    assert isinstance(leader, Process)
    assert gone(leader.pid)


async def test_closing_and_reopening_in_one_process_loses_nothing_and_leaves_no_zombie(tmp_path: Path) -> None:
    async with group_of(tmp_path / "operations") as group:
        group.recover([])
        group.start([shell("op", WAITS_FOR_GO, tmp_path)])
        await until(lambda: read(tmp_path / "n.txt"))
    claim = await until(traces(tmp_path).claim)
    assert not gone(claim.supervisor.pid), "closing ended the command"
    (tmp_path / "go").touch()
    await until(lambda: look_up(claim.supervisor.pid) is None)
    end = await recovered(tmp_path, WAITS_FOR_GO)
    assert (end.status, result(end)["exit_status"]) == (Status.COMPLETED, 3)


async def test_starting_what_was_claimed_attaches_to_it(tmp_path: Path) -> None:
    left = started_and_killed(tmp_path, WAITS_FOR_GO)
    claim = left.claim()
    assert claim is not None
    async with group_of(tmp_path / "operations", handlers=[ShellHandler()]) as group:
        group.start([shell("op", WAITS_FOR_GO, tmp_path)])
        ours, theirs = [(await group.updates.receive()).checkpoint for _ in range(2)]
        assert ours != theirs == {"pid": claim.supervisor.pid, "began": claim.supervisor.began}
        (tmp_path / "go").touch()
        end = (await ends(group, "op"))["op"]
    assert (end.status, result(end)["exit_status"]) == (Status.COMPLETED, 3)
    assert read(tmp_path / "n.txt") == "x\ny\n"


def test_the_supervisor_is_in_nobody_elses_session_or_group(tmp_path: Path) -> None:
    left = started_and_killed(tmp_path, "echo x > n.txt; exec sleep 1000")
    claim, command = left.claim(), left.process("command")
    assert claim is not None
    assert command is not None
    try:
        above, below = look_up(claim.supervisor.pid), look_up(command.pid)
        assert above is not None
        assert below is not None
        assert (above.session, above.group) == (claim.supervisor.pid, claim.supervisor.pid)
        assert (below.session, below.group) == (command.pid, command.pid)
    finally:
        os.killpg(command.pid, signal.SIGKILL)
