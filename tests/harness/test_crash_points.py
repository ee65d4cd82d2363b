"""A real process stopped before and after everything it writes or starts, one point after the other, and resumed."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio
from PIL import Image

import harness
from harness import events as ev
from store import SqliteStore
from tests.harness.crashing import LINES, SESSION

ROOT = Path(__file__).parents[2]
WHOLE = "completed said a; said b; said c; noted; dot.png: image/png, 1 x 1\n"
WITHOUT_NOTE = WHOLE.replace("noted", "unknown")
MANY = 80
"""More points than there are: those that a run does not reach let it finish."""


def run(folder: Path, at: int = 0, how: str = "exit") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.harness.crashing", str(folder / "s.db"), str(folder), str(at), how]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def crash(folder: Path, at: int, how: str = "exit") -> bool:
    """Whether the process was stopped at this point; False when it finished before there was such a point."""
    done = run(folder, at, how)
    if done.returncode == 0:
        return False
    assert done.returncode == (77 if how == "exit" else -9), done.stderr
    return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Image.new("RGB", (1, 1)).save(tmp_path / "dot.png")
    return tmp_path


def finishes_well(folder: Path) -> None:
    """A new process comes to the end, and every promise holds."""
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout in (WHOLE, WITHOUT_NOTE)
    assert Counter((folder / "lines.txt").read_text().split()) == Counter(LINES)
    notes = folder / "notes.txt"
    written = notes.read_text().split() if notes.exists() else []
    assert written == ["noted"] or (written == [] and done.stdout == WITHOUT_NOTE)
    trio.run(log_is_whole, folder)


async def log_is_whole(folder: Path) -> None:
    async with SqliteStore.open(folder / "s.db", create=False) as store:
        assert await store.verify() == []
        log = await harness.read_events(store, SESSION)
        assert harness.check(log) == []
        assert harness.Replay(SESSION, log).check() == []
        accepted = [e.event.input_id for e in log if isinstance(e.event, ev.InputAccepted)]
        assert accepted == [entry.input_id for entry in await store.inputs(SESSION)] == ["the-run"]


def test_the_session_itself_says_how_each_call_ended(folder: Path) -> None:
    done = run(folder)
    assert done.stdout == WHOLE, done.stderr
    points = (folder / "points.txt").read_text().splitlines()
    kinds = {
        "before append",
        "after append",
        "before COMMIT",
        "running shell",
        "before start function",
        "after start image",
        "before put_blobs",
        "after put_blobs",
        "before the model call",
        "after the model call",
        "the function has done its work",
        "before submit",
        "after create",
    }
    assert kinds <= set(points)
    assert 40 <= len(points) < MANY, len(points)


@pytest.mark.parametrize("at", range(4, 56, 5))
def test_a_process_stopped_at_one_of_its_points_is_resumed_to_the_same_answer(folder: Path, at: int) -> None:
    crash(folder, at)
    finishes_well(folder)


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, MANY))
def test_every_point(folder: Path, at: int) -> None:
    crash(folder, at, "kill")
    finishes_well(folder)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_process_that_is_stopped_again_and_again(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(4):
        if not crash(folder, chance.randint(1, 40), chance.choice(["exit", "kill"])):
            break
    finishes_well(folder)
