"""What a person who watches a run has in front of them.  Pure: time comes in as an argument.

Belongs here: which calls are pending and since when, the turn counter, the text that streams in, and the lines that
each event leaves behind.
Must not know: terminals; whether the picture is drawn at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from harness import events as ev
from harness.cli import words
from harness.deltas import Dropped, ModelDelta, OperationOutput, Piece
from harness.llm.model import AttemptDropped, ReasoningDelta, Text, TextDelta, ToolCall, ToolCallDelta, Usage
from harness.state import SessionState
from operations import Status

KEPT_CHARS: Final = 4000
"""Characters of streamed text that can be shown; the whole text comes with the event that ends the turn."""


class Line(NamedTuple):
    """Something that stays on the screen. kind: said, turn, started, ok, bad, note, or text (may have many lines).

    detail: the less important rest of it.
    """

    kind: str
    text: str
    detail: str = ""


class Row(msgspec.Struct):
    """A pending call. since_s: when its work began, None while it waits for a free slot. output: its last live line."""

    tool: str
    label: str
    since_s: float | None = None
    output: str = ""
    cancelling: bool = False


class Timeline:
    """The picture of one run, kept up to date by `event` and `piece`."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.turns = 0
        self.usage = Usage()
        self.model_since_s: float | None = None
        self.thinking = False
        self.summarising = False
        self.writing = ""
        self._call_of: dict[str, str] = {}
        self._held = ""

    def resume(self, state: SessionState, now_s: float) -> None:
        """Start from a session that is under way. Its calls' clocks start now: the log has no clock to compare with."""
        for call in state.pending:
            self._add(call.call_id, call.tool, _label_of_text(call.arguments), call.operations)
            self.rows[call.call_id].since_s = now_s
        if state.run is not None:
            self.turns, self.usage = state.run.turns, state.run.usage

    # --- events

    def event(self, logged: ev.Logged, now_s: float) -> list[Line]:
        """Take up a committed event; the lines are what it leaves behind."""
        match logged.event:
            case ev.SessionOpened() | ev.SessionForked() | ev.ContextCompacted():
                return [Line("note", words.summary(logged.event))]
            case ev.InputAccepted() as event:
                return self._input(event)
            case ev.TurnStarted() as event:
                self.turns += 1
                self.model_since_s, self.thinking, self.writing = now_s, False, ""
                self.summarising = event.reason is ev.Reason.COMPACTION
                limit = f": the limit of {event.limit} is reached" if event.limit else ""
                return [*self._release(), Line("turn", f"turn {event.turn_id} ({event.reason.value}{limit})")]
            case ev.TurnFinished() | ev.TurnInterrupted() | ev.TurnFailed() as event:
                self.model_since_s, self.writing = None, ""
                return self._turn_ended(event)
            case ev.RunFinished():
                self._held = ""  # it is the answer, which is printed in full
                return []
            case _:
                return self._work(logged.event, now_s)

    def _input(self, event: ev.InputAccepted) -> list[Line]:
        said = isinstance(event.content, ev.Message)
        return [*self._release(), Line("said" if said else "note", words.content(event.content))]

    def _turn_ended(self, event: ev.TurnFinished | ev.TurnInterrupted | ev.TurnFailed) -> list[Line]:
        if not isinstance(event, ev.TurnFinished):
            return [Line("bad", f"turn {event.turn_id} {words.turn_end(event)}")]
        self.usage += event.cost
        if self.summarising:  # the summary is for the model, and comes with context_compacted
            return []
        text = words.tame("\n\n".join(item.text for item in event.output if isinstance(item, Text))).strip()
        if any(isinstance(item, ToolCall) for item in event.output):
            return [Line("text", text)] if text else []
        self._held = text  # whether it was the answer is known with the next event
        return []

    def _release(self) -> list[Line]:
        held, self._held = self._held, ""
        return [Line("text", held)] if held else []

    def _work(self, event: ev.Event, now_s: float) -> list[Line]:
        match event:
            case ev.ToolCallPending():
                label = words.label_of(event.arguments)
                self._add(event.call_id, event.tool, label, tuple(operation.id for operation in event.operations))
                return [Line("started", f"{event.tool} {label}")]
            case ev.ToolCallRejected():
                return [Line("bad", f"{event.tool} was not run", words.one_line(event.error, 300))]
            case ev.OperationUpdated():
                self._operation(event, now_s)
                return []
            case ev.ToolCallFinished():
                return [self._finished(event)]
            case _:
                return []

    def _add(self, call_id: str, tool: str, label: str, operations: tuple[str, ...]) -> None:
        self.rows[call_id] = Row(tool, label)
        self._call_of.update(dict.fromkeys(operations, call_id))

    def _operation(self, event: ev.OperationUpdated, now_s: float) -> None:
        row = self.rows.get(self._call_of.get(event.operation_id, ""))
        if row is None:
            return
        if row.since_s is None and event.status is Status.RUNNING:
            row.since_s = now_s
        row.cancelling = event.status is Status.CANCELLING

    def _finished(self, event: ev.ToolCallFinished) -> Line:
        row = self.rows.pop(event.call_id, Row("call", event.call_id))
        ending = words.ending_of(event.parts)
        status = ending.status
        if event.seconds is not None and not status.endswith(" s)"):
            status = f"{status} ({event.seconds:.2f} s)"
        detail = f"{status}: {ending.tail}" if ending.tail else status
        return Line("ok" if event.outcome is ev.CallOutcome.OK else "bad", f"{row.tool} {row.label}", detail)

    # --- live pieces

    def piece(self, piece: Piece) -> list[Line]:
        """Take up a live piece."""
        match piece:
            case OperationOutput():
                row = self.rows.get(self._call_of.get(piece.operation_id, ""))
                lines = [line for line in piece.text.splitlines() if line.strip()]
                if row is not None and lines:
                    row.output = words.one_line(lines[-1])
            case ModelDelta(delta=AttemptDropped() as dropped):
                self.writing, self.thinking = "", False
                wait = f"again in {dropped.retry_in_s:.1f} s"
                return [Line("note", f"the model did not answer, {wait}: {words.one_line(dropped.reason, 200)}")]
            case ModelDelta(delta=delta):
                self._model(delta)
            case Dropped():
                pass  # only the picture in between is lost: every event comes all the same
        return []

    def _model(self, delta: TextDelta | ReasoningDelta | ToolCallDelta | AttemptDropped) -> None:
        if self.model_since_s is None or self.summarising:  # a piece may be overtaken by the end of its turn
            return
        self.thinking = isinstance(delta, ReasoningDelta)
        if isinstance(delta, TextDelta):
            self.writing = (self.writing + words.tame(delta.text))[-KEPT_CHARS:]


def _label_of_text(arguments: str) -> str:
    try:
        decoded = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeDecodeError):
        decoded = None
    return words.label_of(decoded) if isinstance(decoded, dict) else words.one_line(arguments, words.LABEL_CHARS)
