"""The ways to show a run: as lines, as JSON, or (in live.py) as a picture that moves.

Belongs here: what a view is asked to do, the two that only print, and which one fits where stdout goes.
Must not know: sessions, signals, exit statuses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

import msgspec
import trio

from harness import events as ev
from harness.cli.faults import say
from harness.cli.timeline import Line, Timeline
from harness.deltas import Piece
from harness.result import RunResult
from harness.state import SessionState

MARKS: Final = {"said": "»", "turn": "·", "started": "▸", "ok": "✓", "bad": "✗", "note": "·", "text": " "}
ASCII_MARKS: Final = {"said": ">", "turn": "-", "started": "+", "ok": "ok", "bad": "FAILED", "note": "-", "text": " "}


class FooterLine(NamedTuple):
    """One line below an answer."""

    name: str
    text: str


class View:
    """What drives a run tells its view; the base shows nothing. Entered before the first event, left after the last."""

    def __enter__(self) -> View:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the terminal as it was, however the run ended."""

    def begin(self, session_id: str, state: SessionState | None) -> None:
        """The session is open. state: where it stands, when it was resumed."""

    def event(self, logged: ev.Logged) -> None:
        """An event is on disk."""

    def piece(self, piece: Piece) -> None:
        """A piece of live output."""

    def note(self, text: str) -> None:
        """Something about the command itself, such as what Ctrl-C does now."""

    async def refresh(self) -> None:
        """Keep what is shown up to date, for ever."""
        await trio.sleep_forever()

    def end(self, session_id: str, result: RunResult, footer: Sequence[FooterLine]) -> None:
        """The run is over."""


class TimelineView(View):
    """A view for people: what a timeline makes of events and pieces is shown line by line."""

    def __init__(self, encoding: str | None) -> None:
        self._timeline = Timeline()
        self._marks = marks(encoding)

    def event(self, logged: ev.Logged) -> None:
        for line in self._timeline.event(logged, time.monotonic()):
            self._show(line)

    def piece(self, piece: Piece) -> None:
        for line in self._timeline.piece(piece):
            self._show(line)

    def _show(self, line: Line) -> None:
        raise NotImplementedError


class PlainView(TimelineView):
    """A line for each event that a person cares about, out at once; then the answer as it is, and the footer."""

    def __init__(self) -> None:
        super().__init__(sys.stdout.encoding)

    def begin(self, session_id: str, state: SessionState | None) -> None:
        print(f"{self._marks['note']} session {session_id}", flush=True)
        if state is not None:
            self._timeline.resume(state, time.monotonic())
            for row in self._timeline.rows.values():
                self._show(Line("started", f"{row.tool} {row.label}", "still running"))

    def note(self, text: str) -> None:
        say(text)

    def _show(self, line: Line) -> None:
        first, *more = f"{line.text}  {line.detail}".rstrip().splitlines() or [""]
        print("\n".join([f"{self._marks[line.kind]} {first}", *(f"  {each}" for each in more)]), flush=True)

    def end(self, session_id: str, result: RunResult, footer: Sequence[FooterLine]) -> None:
        print()
        if result.text.strip():
            print(result.text.rstrip("\n") + "\n")
        width = max((len(line.name) for line in footer), default=0)
        for line in footer:
            print(f"{line.name:<{width}}  {line.text}")
        sys.stdout.flush()


class JsonView(View):
    """Every committed event as a line of JSON, then the result as one more. Nothing else is on stdout."""

    def event(self, logged: ev.Logged) -> None:
        print_json_line(event_json(logged))

    def note(self, text: str) -> None:
        say(text)

    def end(self, session_id: str, result: RunResult, footer: Sequence[FooterLine]) -> None:
        print_json_line({"kind": "result", "session_id": session_id, **msgspec.to_builtins(result)})


def event_json(logged: ev.Logged) -> dict[str, Any]:
    """An event with its place in the log, as `--json` shows it."""
    return {"seq": logged.seq, "recorded_at": logged.recorded_at, **msgspec.to_builtins(logged.event)}


def print_json_line(value: Any) -> None:
    """One line of JSON, out at once. UTF-8 whatever the terminal's encoding is: that is what JSON is read as."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def marks(encoding: str | None) -> dict[str, str]:
    """The marks that an encoding can write."""
    try:
        "".join(MARKS.values()).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return dict(ASCII_MARKS)
    return dict(MARKS)
