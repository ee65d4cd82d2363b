"""A real session in a real process, killed with SIGKILL again and again, and what is left of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import trio

import harness
from store import SqliteStore

ROOT = Path(__file__).parents[2]
HEADINGS, COMMANDS = 6, 4


def prompt(pause_s: float) -> str:
    """Each command appends its own line before and after a pause; the last ones' lasts until `kill_and_resume` says so.

    So the run cannot be over before it was killed often enough, however slow the machine is at starting processes.
    """
    parts = []
    for heading in range(HEADINGS):
        parts.append(f"# Part {heading}\n")
        pause = f"sleep {pause_s}" if heading < HEADINGS - 1 else "until [ -e ../killed ]; do sleep 0.05; done"
        for command in range(COMMANDS):
            name = f"{heading}.{command}"
            parts.append(f"```sh\necho {name}a >> out.txt; {pause}; echo {name}b >> out.txt; echo said {name}\n```\n")
    return "\n".join(parts)


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.harness.child", "s.db", "killed", "prompt.md", "work"]
    paths = {
        key: str(folder / value) for key, value in {"s.db": "s.db", "prompt.md": "prompt.md", "work": "work"}.items()
    }
    return subprocess.Popen(
        [paths.get(word, word) for word in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    """As hard as it gets: the whole process group at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


async def whole(folder: Path) -> list[harness.Logged]:
    async with SqliteStore.open(folder / "s.db") as store:
        assert await store.verify() == []
        log = await harness.read_events(store, "killed")
    assert harness.check(log) == []
    assert harness.Replay("killed", log).check() == []
    return log


def expect_each_line_once(folder: Path) -> None:
    lines = Counter((folder / "work" / "out.txt").read_text().split())
    expected = {
        f"{heading}.{command}{end}" for heading in range(HEADINGS) for command in range(COMMANDS) for end in "ab"
    }
    assert lines == Counter(dict.fromkeys(expected, 1))


def kill_and_resume(folder: Path, kills: int, seed: int, pause_s: float, longest_s: float) -> str:
    """Kill the session at random moments, then let it finish. Returns what the last process printed."""
    (folder / "work").mkdir()
    (folder / "prompt.md").write_text(prompt(pause_s))
    chance = random.Random(seed)
    done = 0
    while done < kills:
        process = start(folder)
        try:
            output, errors = process.communicate(timeout=chance.uniform(0.0, longest_s))
            raise AssertionError(f"the run ended by itself after {done} kills: {output}{errors}")
        except subprocess.TimeoutExpired:
            kill(process)
            done += 1
    (folder / "killed").touch()
    last = start(folder)
    output, errors = last.communicate(timeout=60)
    assert last.returncode == 0, errors
    return output


def test_a_session_killed_at_random_moments_loses_nothing_and_runs_nothing_twice(tmp_path: Path) -> None:
    output = kill_and_resume(tmp_path, kills=8, seed=1, pause_s=0.6, longest_s=0.8)
    assert "completed" in output and f"{HEADINGS * COMMANDS} commands, none failed" in output, output
    expect_each_line_once(tmp_path)
    trio.run(whole, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_kills(tmp_path: Path, seed: int) -> None:
    started = time.monotonic()
    output = kill_and_resume(tmp_path, kills=20, seed=seed, pause_s=1.6, longest_s=0.9)
    assert "completed" in output, output
    expect_each_line_once(tmp_path)
    log = trio.run(whole, tmp_path)
    lost = sum(isinstance(entry.event, harness.TurnInterrupted) for entry in log)
    print(f"seed {seed}: {time.monotonic() - started:.0f} s, {len(log)} events, {lost} turns lost")
