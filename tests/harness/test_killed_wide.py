"""A session that is killed with many commands running: the next process takes up every one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import trio

import harness
from operations import Status
from tests.harness.test_killed import kill, start, whole
from tests.operations.helpers import read, until

COUNT = 50


def prompt() -> str:
    """Commands that all run at once and wait for a file."""
    blocks = [
        f"```sh\necho {number}a >> out.txt; while [ ! -e go ]; do sleep 0.05; done; echo {number}b >> out.txt\n```\n"
        for number in range(COUNT)
    ]
    return "# All at once\n" + "\n".join(blocks)


async def test_fifty_running_commands_are_all_taken_up_by_the_next_process(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "prompt.md").write_text(prompt())
    written = tmp_path / "work" / "out.txt"
    first = start(tmp_path)
    try:
        await until(lambda: read(written).count("\n") == COUNT)
    finally:
        kill(first)
    last = start(tmp_path)
    try:
        (tmp_path / "work" / "go").touch()
        output, errors = await trio.to_thread.run_sync(lambda: last.communicate(timeout=60))
    finally:
        if last.poll() is None:
            kill(last)
    assert last.returncode == 0, errors
    assert f"{COUNT} commands, none failed" in output, output
    assert Counter(read(written).split()) == {f"{number}{end}": 1 for number in range(COUNT) for end in "ab"}
    log = [entry.event for entry in await whole(tmp_path)]
    assert sum(isinstance(event, harness.RunFinished) for event in log) == 1
    ended = [event for event in log if isinstance(event, harness.OperationUpdated) and event.result is not None]
    assert Counter(event.status for event in ended) == {Status.COMPLETED: COUNT}
