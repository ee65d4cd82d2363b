"""The command line as a user has it: a real process, a real store, a terminal where one is needed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import logging
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from harness.cli.app import run

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0

T = TypeVar("T")


class Done(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def block(*commands: str) -> str:
    """Fenced blocks, one for each command."""
    return "\n".join(f"```sh\n{command}\n```" for command in commands)


class Cli:
    """Runs `turnlog` in a workspace, with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.state, self.temporary = folder / "work", folder / "state", folder / "tmp"
        self.workspace.mkdir(parents=True)
        self.temporary.mkdir()
        self._started: list[subprocess.Popen[bytes]] = []
        self.store = self.state / "turnlog" / "sessions.db"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNLOG_", "XDG_"))}
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PYTHONPATH"):
            kept.pop(name, None)
        ours = {"XDG_STATE_HOME": str(self.state), "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}
        self.env = {**kept, **ours, "TERM": "xterm-256color"}

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", *arguments],
            cwd=self.workspace,
            env={**self.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End what a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait()

    def __call__(self, *arguments: str, stdin: bytes = b"", **env: str) -> Done:
        return finish(self.start(*arguments, **env), stdin)

    def here(self, *arguments: str, stdin: bytes = b"") -> Done:
        """The same without a new process, which costs ten times what most verbs do."""
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8")
        with (
            mock.patch.dict(os.environ, self.env, clear=True),
            mock.patch.multiple(sys, stdin=given, stdout=out, stderr=err),
            mock.patch.object(logging, "lastResort", logging.lastResort),
            contextlib.chdir(self.workspace),
        ):
            status = run(arguments)
        said = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        assert "Traceback" not in "".join(said), said
        return Done(status, *said)

    def ok(self, *arguments: str, stdin: bytes = b"") -> str:
        """stdout of a command that has to succeed, without a new process."""
        done = self.here(*arguments, stdin=stdin)
        assert (done.status, done.err) == (0, ""), done
        return done.out

    def session_ids(self) -> list[str]:
        return [each["id"] for each in json.loads(self.ok("sessions", "--json"))]

    def events(self, session_id: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ok("log", session_id, "--json").splitlines()]

    def terminal(self, *arguments: str, columns: int = 100, **env: str) -> Terminal:
        return Terminal([sys.executable, "-m", "harness", *arguments], self.workspace, {**self.env, **env}, columns)


def finish(process: subprocess.Popen[bytes], stdin: bytes = b"") -> Done:
    """Wait for a process; whatever happened, no user saw a traceback."""
    try:
        out, err = process.communicate(stdin, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end within {DEADLINE_S} s: {out!r} {err!r}") from None
    done = Done(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
    assert "Traceback" not in done.out + done.err, done
    return done


def eventually(look: Callable[[], T], what: str) -> T:
    """The first answer that is true, asked for until the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if found := look():
            return found
        select.select([], [], [], 0.05)
    raise AssertionError(f"not within {DEADLINE_S} s: {what}")


class Terminal:
    """A process with a pseudo-terminal for its input and output, as a person has it."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str], columns: int) -> None:
        self._fd, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        # A session of its own, with this terminal: only then does ^C mean SIGINT.
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(other)
        self.shown = ""

    def _read(self, timeout_s: float) -> bool:
        """Take what the process wrote. False at its end."""
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # what Linux says when the other end is closed
            data = b""
        self.shown += data.decode("utf-8", "replace")
        return bool(data)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.shown[-3000:]!r}"
            assert self._read(0.1) or text in self.shown, f"ended without {text!r}: {self.shown[-3000:]!r}"

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def end(self) -> int:
        """Read to the end; the exit status."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read(0.1):
            assert time.monotonic() < deadline, f"no end: {self.shown[-3000:]!r}"
        status = self.process.wait(DEADLINE_S)
        os.close(self._fd)
        assert "Traceback" not in self.shown, self.shown
        return status

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(DEADLINE_S)
