"""Commands: how they end, what they leave behind, what they cannot wait for."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from operations import Progress, Status, Update
from operations.process_table import look_up
from tests.operations.helpers import ends, gone, group_of, read, run, shell, until


async def finished(folder: Path, command: str, **more: Any) -> Update:
    """The end of one command."""
    async with group_of(folder / "operations") as group:
        return await run(group, shell("op", command, folder, **more))


async def result_of(folder: Path, command: str, **more: Any) -> dict[str, Any]:
    end = await finished(folder, command, **more)
    assert end.result is not None
    return end.result


def end_strays(strays: list[int]) -> None:
    for stray in strays:
        os.kill(stray, signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "exit_status", "signal_name", "output"),
    [
        ("echo hi", 0, None, "hi\n"),
        ("false", 1, None, ""),
        ("exit 42", 42, None, ""),
        ("echo out; echo err >&2; echo out", 0, None, "out\nerr\nout\n"),
        ("kill -9 $$", 137, "SIGKILL", ""),
        ("nonsense-command-x 2>/dev/null", 127, None, ""),
        ("printf 'no end of line'", 0, None, "no end of line"),
        ("[[ a == a ]] && echo bash", 0, None, "bash\n"),
        ("pwd -P | grep -c op; cat; echo after", 0, None, None),
        ("umask", 0, None, None),
        ("-x --help; echo after", 0, None, None),
    ],
)
async def test_the_exit_status_is_a_result_whatever_it_is(
    tmp_path: Path, command: str, exit_status: int, signal_name: str | None, output: str | None
) -> None:
    end = await finished(tmp_path, command)
    assert end.status is Status.COMPLETED
    assert end.result is not None
    assert (end.result["exit_status"], end.result["signal"]) == (exit_status, signal_name)
    assert output is None or end.result["output"] == output
    assert (end.result["strays"], end.result["lost_output"], end.result["timed_out"]) == ([], False, False)


async def test_a_command_finds_its_folder_and_its_environment(tmp_path: Path) -> None:
    result = await result_of(tmp_path, 'pwd; echo "$WORD"', env={"WORD": "given 'as' is\n$HOME"})
    assert result["output"] == f"{tmp_path}\ngiven 'as' is\n$HOME\n"


async def test_the_file_mode_mask_and_signals_are_as_usual(tmp_path: Path) -> None:
    result = await result_of(tmp_path, "umask; grep -i sigign /proc/self/status")
    mask, ignored = result["output"].splitlines()
    assert mask == f"{_umask():04o}"
    # Those above 31 are the C library's own, which ignores two of them in what it spawns.
    assert int(ignored.split()[1], 16) & 0x7FFFFFFF & ~_ignored_before_python() == 0


def _ignored_before_python() -> int:
    """What this process was started with ignored, as by nohup, which commands inherit; Python ignores two more."""
    own = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn:"))
    pythons = (1 << signal.SIGPIPE - 1) | (1 << signal.SIGXFSZ - 1)
    return int(own.split()[1], 16) & ~pythons


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_a_very_long_command_runs(tmp_path: Path) -> None:
    command = f"echo {'x' * 300_000} | wc -c; echo \u00e9"
    assert (await result_of(tmp_path, command))["output"] == "300001\n\u00e9\n"


@pytest.mark.parametrize("cwd", ["missing", "file"])
async def test_a_command_without_a_folder_to_run_in_fails_with_its_name(tmp_path: Path, cwd: str) -> None:
    (tmp_path / "file").touch()
    async with group_of(tmp_path / "operations") as group:
        end = await run(group, shell("op", "echo hi", tmp_path / cwd))
    assert end.status is Status.FAILED
    assert cwd in (end.result or {})["error"]


@pytest.mark.parametrize("args", [{}, {"command": 3, "cwd": "/"}, {"command": "x", "cwd": "/", "no": 1}])
async def test_arguments_that_are_not_right_fail_with_a_reason(tmp_path: Path, args: dict[str, Any]) -> None:
    operation = shell("op", "")
    operation.spec.args.clear()
    operation.spec.args.update(args)
    async with group_of(tmp_path / "operations") as group:
        end = await run(group, operation)
    assert end.status is Status.FAILED
    assert "arguments" in (end.result or {})["error"]


async def test_a_folder_that_takes_no_files_is_a_failure_to_start(tmp_path: Path) -> None:
    (tmp_path / "operations").touch()
    end = await finished(tmp_path, "echo x > ran")
    assert end.status is Status.FAILED
    assert not (tmp_path / "ran").exists()


# --- faults, entry 13: children that keep the call open


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("(while :; do echo tick; sleep 0.05; done) & sleep 0.2; echo done", "done"),
        ("sleep 300 & echo started", "started"),
        ("setsid sleep 300 & echo started", "started"),
        ("setsid sleep 300 >/dev/null 2>&1 </dev/null & echo started", "started"),
        ("env -i sleep 300 >/dev/null 2>&1 & echo started", "started"),
    ],
    ids=["ticking", "silent", "own session", "daemon", "empty environment"],
)
async def test_a_call_ends_with_its_shell_and_names_what_was_left_running(
    tmp_path: Path, command: str, output: str
) -> None:
    async with group_of(tmp_path / "operations") as group:
        end = await run(group, shell("op", command, tmp_path), within_s=5)
    assert end.result is not None
    strays = end.result["strays"]
    try:
        assert end.status is Status.COMPLETED
        assert output in end.result["output"]
        assert strays
        assert not any(gone(stray) for stray in strays), "what was left running was ended"
    finally:
        end_strays(strays)


async def test_a_time_limit_ends_the_whole_group_and_keeps_the_output(tmp_path: Path) -> None:
    command = "mkfifo p; (while :; do echo c; sleep 0.05; done) > p & echo $! > pid; cat p"
    async with group_of(tmp_path / "operations") as group:
        end = await run(group, shell("op", command, tmp_path, timeout_s=0.5), within_s=5)
    assert end.result is not None
    assert (end.status, end.result["timed_out"], end.result["strays"]) == (Status.FAILED, True, [])
    assert end.result["output"].startswith("c\nc\n")
    assert gone(int(read(tmp_path / "pid")))


@pytest.mark.parametrize(
    "command",
    [
        "echo $$ > pid; exec sleep 1000",
        "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done",
        "(trap '' TERM; while :; do sleep 0.05; done) & echo $! > pid; wait",
        "setsid -w sh -c 'echo $$ > pid; exec sleep 1000'; true",
        "(setsid setsid sh -c 'trap \"\" TERM; echo $$ > pid; while :; do sleep 0.05; done' &) & sleep 1000",
        "set -m; sleep 1000 & echo $! > pid; wait",
        "sh -c 'kill -STOP $$' & echo $! > pid; wait",
    ],
    ids=["plain", "ignores SIGTERM", "child ignores it", "own session", "daemon", "own group", "stopped"],
)
async def test_cancelling_leaves_nothing_of_the_command(tmp_path: Path, command: str) -> None:
    async with group_of(tmp_path / "operations") as group:
        group.start([shell("op", command, tmp_path)])
        pid = int(await until(lambda: read(tmp_path / "pid").strip()))
        assert not gone(pid)
        group.cancel(["op"], "enough")
        end = (await ends(group, "op", within_s=8))["op"]
        assert end.status is Status.CANCELLED
        assert (end.result or {})["strays"] == []
        assert gone(pid)


@pytest.mark.slow
async def test_two_hundred_stubborn_commands_are_cancelled_within_the_grace(tmp_path: Path) -> None:
    names = [f"op{number}" for number in range(200)]
    command = "(trap '' TERM; while :; do sleep 0.2; done) & setsid sleep 1000 & echo >> begun; wait"
    async with group_of(tmp_path / "operations", limits={"shell": 200}) as group:
        group.start([shell(name, command, tmp_path) for name in names])
        await until(lambda: read(tmp_path / "begun").count("\n") == len(names))
        group.cancel(names, "enough")
        assert {end.status for end in (await ends(group, *names)).values()} == {Status.CANCELLED}


@pytest.mark.parametrize("more", [{}, {"timeout_s": 0.0001}], ids=["cancelled", "timed out"])
async def test_a_command_that_is_ended_as_it_begins_does_not_run_through_the_grace(
    tmp_path: Path, more: dict[str, float]
) -> None:
    async with group_of(tmp_path / "operations") as group:
        group.start([shell("op", "sleep 0.5; echo x > ran; sleep 1000", tmp_path, **more)])
        if not more:
            await group.updates.receive()
            group.cancel(["op"], "enough")
        await ends(group, "op")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("more", [{}, {"timeout_s": 0.5}], ids=["cancelled", "timed out"])
async def test_a_command_that_has_stopped_its_supervisor_is_ended_all_the_same(
    tmp_path: Path, more: dict[str, float]
) -> None:
    async with group_of(tmp_path / "operations") as group:
        group.start([shell("op", "kill -STOP $PPID; echo $$ $PPID > pids; exec sleep 1000", tmp_path, **more)])
        pids = [int(word) for word in (await until(lambda: read(tmp_path / "pids"))).split()]
        if not more:
            group.cancel(["op"], "enough")
        end = (await ends(group, "op", within_s=4))["op"]
    assert end.status is (Status.FAILED if more else Status.CANCELLED)
    assert (end.result or {})["signal"] == "SIGTERM"
    assert all(map(gone, pids))


async def test_cancelling_a_command_does_not_touch_another(tmp_path: Path) -> None:
    async with group_of(tmp_path / "operations") as group:
        group.start([shell("a", "exec sleep 1000", tmp_path), shell("b", "echo $$ > b; exec sleep 1000", tmp_path)])
        pid = int(await until(lambda: read(tmp_path / "b").strip()))
        group.cancel(["a"], "enough")
        await ends(group, "a")
        assert not gone(pid)
        group.cancel(["b"], "enough")
        await ends(group, "b")


async def test_a_hundred_commands_at_once(tmp_path: Path) -> None:
    await many(tmp_path, 100)


@pytest.mark.slow
async def test_five_hundred_commands_at_once(tmp_path: Path) -> None:
    await many(tmp_path, 500)


async def many(folder: Path, count: int) -> None:
    names = [f"op{number}" for number in range(count)]
    async with group_of(folder / "operations", limits={"shell": count}) as group:
        group.start([shell(name, f"sleep 0.2; echo {name}; exit 7", folder) for name in names])
        for name, end in (await ends(group, *names, within_s=100)).items():
            assert end.result is not None
            assert (end.result["exit_status"], end.result["output"]) == (7, f"{name}\n")
    assert not [pid for pid in _children() if (row := look_up(pid)) is not None and row.state == "Z"]


def _children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


# --- faults, entry 15: a keyboard that nobody has


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git -c core.editor=vi commit --allow-empty; echo status $?", "status 1"),
        ("read -p 'Ok? ' x < /dev/tty; echo got:$x", "got:"),
        (f"{sys.executable} -c 'input()'; echo status $?", "EOFError"),
        ("git -c core.pager=less log; echo status $?", "second"),
        ("git rebase -i HEAD~1; echo status $?", "status 1"),
        ("read line; echo status $?", "status 1"),
    ],
    ids=["editor", "terminal", "input", "pager", "rebase", "stdin"],
)
async def test_nothing_waits_for_a_keyboard(tmp_path: Path, command: str, expected: str) -> None:
    for words in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "first"],
        ["commit", "-q", "--allow-empty", "-m", "second"],
    ):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        await trio.run_process(["git", "-C", str(tmp_path), *identity, *words])
    env = {
        "GIT_AUTHOR_NAME": "n",
        "GIT_AUTHOR_EMAIL": "e@e.org",
        "GIT_COMMITTER_NAME": "n",
        "GIT_COMMITTER_EMAIL": "e@e.org",
    }
    async with group_of(tmp_path / "operations") as group:
        end = await run(group, shell("op", command, tmp_path, env=env), within_s=10)
    assert expected in (end.result or {})["output"]
    log = await trio.run_process(["git", "-C", str(tmp_path), "log", "--format=%s"], capture_stdout=True)
    assert log.stdout == b"second\nfirst\n", "history was rewritten"


async def test_live_output_is_shown_while_the_command_runs(tmp_path: Path) -> None:
    seen: list[str] = []

    def show(progress: Progress) -> None:
        seen.append(progress.text)

    async with group_of(tmp_path / "operations", on_progress=show) as group:
        group.start([shell("op", "echo early; while [ ! -e go ]; do sleep 0.02; done; echo late", tmp_path)])
        await until(lambda: seen)
        assert seen == ["early\n"]
        (tmp_path / "go").touch()
        end = (await ends(group, "op"))["op"]
    assert (end.result or {})["output"] == "early\nlate\n"


async def test_closing_takes_no_notice_of_a_running_command(tmp_path: Path) -> None:
    with trio.fail_after(2):
        async with group_of(tmp_path / "operations") as group:
            group.start([shell("op", "echo $$ > pid; exec sleep 1000", tmp_path)])
            pid = int(await until(lambda: read(tmp_path / "pid").strip()))
    assert not gone(pid)
    os.killpg(pid, signal.SIGKILL)
