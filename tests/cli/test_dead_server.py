"""`turnlog run` against a server that takes connections and never says anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server whose system accepts for it, and that never reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_limit_of_seconds_ends_the_run_also_when_nobody_answers(silent: str, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")}
    began = time.monotonic()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "harness", "run", "--store", str(tmp_path / "s.db"), "--workspace", str(tmp_path)),
            *("--model", "openai-chat:m", "--limit", "seconds=2", "-p", "Are you there?"),
        ],
        env={**kept, "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": silent},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    took_s = time.monotonic() - began
    assert done.returncode == 1 and "outcome  limit_reached" in done.stdout, done
    assert done.stderr == (
        "turnlog: the run ended as limit_reached: the limit of 2 seconds is reached; the final answer did not come in "
        "time.\n"
    )
    assert 3 <= took_s < 20, "a second for the final answer on top, and room for a slow machine"
