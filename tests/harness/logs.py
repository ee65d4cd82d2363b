"""Making logs and states by hand, for tests of the pure core."""

from __future__ import annotations

from collections.abc import Sequence

from harness import events as ev
from harness.context import build
from harness.events import Logged
from harness.folding import apply
from harness.llm.model import StopReason, Text, ToolCall, Usage
from harness.state import SessionState
from operations import Operation, OperationSpec, Status

NO_USAGE = Usage()
RECORDED_AT = "2026-01-01T00:00:00.000Z"


class LogWriter:
    """Appends events to a log in memory, folding as it goes, with shorthands for what tests say often."""

    def __init__(self, policy: ev.Policy | None = None) -> None:
        self.events: list[Logged] = []
        self.state = SessionState()
        self.add(
            ev.SessionOpened(
                instructions="Be brief.", model="test", tools=(), workspace="/w", policy=policy or ev.Policy()
            )
        )

    def add(self, *events: ev.Event) -> LogWriter:
        for event in events:
            logged = Logged(self.state.seq + 1, RECORDED_AT, event)
            self.state = apply(self.state, logged)
            self.events.append(logged)
        return self

    def says(self, text: str, input_id: str | None = None, limits: ev.Limits | None = None) -> LogWriter:
        input_id = input_id or f"in{self.state.seq}"
        return self.add(ev.InputAccepted(input_id, "user", ev.Message(text, limits=limits or ev.Limits())))

    def control(self, content: ev.Content) -> LogWriter:
        return self.add(ev.InputAccepted(f"in{self.state.seq}", "user", content))

    def start(self, reason: ev.Reason = ev.Reason.INPUT, *, limit: str = "", run_s: float = 0.0) -> LogWriter:
        built = build(self.state, limit=limit)
        run = self.state.run
        return self.add(
            ev.TurnStarted(
                f"t{self.state.turns + 1}",
                run.run_id if run else "",
                "test",
                reason,
                built.digest,
                built.new_items,
                len(built.request.items),
                built.chars,
                run_s=run_s,
                limit=limit,
            )
        )

    def finish(
        self,
        text: str = "",
        calls: Sequence[str] = (),
        *,
        stop: StopReason | None = None,
        usage: Usage = NO_USAGE,
        seconds: float = 0.0,
    ) -> LogWriter:
        """End the turn in flight with a text and calls of these ids to the tool `bash`."""
        turn = self.state.turn
        assert turn is not None
        output = [Text(text)] if text else []
        items = (*output, *(ToolCall("bash", "{}", call_id=call_id) for call_id in calls))
        chosen = stop or (StopReason.TOOL_CALLS if calls else StopReason.END)
        return self.add(ev.TurnFinished(turn.turn_id, items, chosen, usage, seconds=seconds))

    def pend(self, call_id: str, wake: ev.Wake = ev.Wake.EACH) -> LogWriter:
        call = self.state.calls[call_id]
        operation = Operation(f"op-{call_id}", OperationSpec("shell", 1, {"command": "true"}))
        return self.add(ev.ToolCallPending(call.turn_id, call_id, call.tool, {}, (operation,), wake))

    def reject(self, call_id: str, limit: str = "") -> LogWriter:
        call = self.state.calls[call_id]
        return self.add(ev.ToolCallRejected(call.turn_id, call_id, call.tool, "no such thing", limit))

    def end(
        self,
        call_id: str,
        outcome: ev.CallOutcome = ev.CallOutcome.OK,
        text: str = "done",
        *,
        seconds: float = 1.0,
    ) -> LogWriter:
        """The call's operation runs and ends, and so does the call."""
        statuses = {
            ev.CallOutcome.OK: Status.COMPLETED,
            ev.CallOutcome.FAILED: Status.FAILED,
            ev.CallOutcome.CANCELLED: Status.CANCELLED,
            ev.CallOutcome.UNKNOWN: Status.UNKNOWN,
        }
        operation = f"op-{call_id}"
        if self.state.operations[operation].status is Status.READY:
            self.add(ev.OperationUpdated(operation, Status.RUNNING))
        self.add(ev.OperationUpdated(operation, statuses[outcome], result={"output": text}, seconds=seconds))
        return self.add(ev.ToolCallFinished(call_id, outcome, (Text(text),), seconds=seconds))

    def run_finished(self, outcome: ev.Outcome = ev.Outcome.COMPLETED) -> LogWriter:
        run = self.state.run
        assert run is not None
        return self.add(ev.RunFinished(run.run_id, outcome, run.turns, run.usage, text=run.last_text))


def with_pending(*calls: str, wake: ev.Wake = ev.Wake.EACH, policy: ev.Policy | None = None) -> LogWriter:
    """A run whose first turn made these calls, all of them pending."""
    log = LogWriter(policy).says("go", "r1").start().finish(calls=calls)
    for call_id in calls:
        log.pend(call_id, wake)
    return log
