"""Logs of real events in any length, for benchmarks.

Belongs here: making a log by the rules without running anything.
Must not know: what is measured on it.
"""

from __future__ import annotations

import tempfile

from harness import events as ev
from harness.context import build
from harness.folding import apply
from harness.ids import call_id, turn_id
from harness.llm.model import StopReason, Text, ToolCall, Usage
from harness.state import SessionState
from harness.tools.bash import Bash
from harness.tools.registry import Registry
from operations import Operation, OperationSpec, Status

RECORDED_AT = "2026-01-02T03:04:05.678Z"
USAGE = Usage(input=1000, cached=900, output=50)


class _Log:
    def __init__(self) -> None:
        self.events: list[ev.Logged] = []
        self.state = SessionState()

    def add(self, event: ev.Event) -> None:
        logged = ev.Logged(self.state.seq + 1, RECORDED_AT, event)
        self.state = apply(self.state, logged)
        self.events.append(logged)

    def turn(self, reason: ev.Reason, text: str, calls: int = 0) -> None:
        number = self.state.turns + 1
        built = build(self.state)
        run_id = self.state.run.run_id if self.state.run else ""
        self.add(
            ev.TurnStarted(
                turn_id(number), run_id, "runbook", reason, built.digest, built.new_items,
                len(built.request.items), built.chars,
            )
        )  # fmt: skip
        made = tuple(ToolCall("bash", '{"command": "make test"}', call_id(number, index)) for index in range(calls))
        stop = StopReason.TOOL_CALLS if calls else StopReason.END
        self.add(ev.TurnFinished(turn_id(number), (Text(text), *made), stop, USAGE))
        for call in made:
            spec = OperationSpec("shell", 1, {"command": "make test", "cwd": "/w", "max_output": 50_000})
            operation = Operation(f"op-{call.call_id}", spec)
            self.add(ev.ToolCallPending(turn_id(number), call.call_id, "bash", {"command": "make test"}, (operation,)))

    def end(self, call: str, output: str) -> None:
        self.add(ev.OperationUpdated(f"op-{call}", Status.RUNNING, {"supervisor": 4711, "began": 123456}))
        result = {"exit_status": 0, "output": output, "truncated": False}
        self.add(ev.OperationUpdated(f"op-{call}", Status.COMPLETED, result=result, seconds=1.0))
        text = f"exit status 0 (1.00 s)\n\n{output}"
        self.add(ev.ToolCallFinished(call, ev.CallOutcome.OK, (Text(text),), 1.0))


def long_log(events: int) -> list[ev.Logged]:
    """A log of about `events` events (never fewer): runs of two turns, the first of which makes two calls."""
    log = _Log()
    log.add(ev.SessionOpened("You fix failing tests.", "runbook", Registry([Bash()]).records(), tempfile.gettempdir()))
    while len(log.events) < events:
        log.add(ev.InputAccepted(f"in-{log.state.seq}", "user", ev.Message("Make the test suite pass.")))
        log.turn(ev.Reason.INPUT, "I run the tests.", calls=2)
        for call in list(log.state.calls):
            log.end(call, "42 passed\n" * 10)
        log.turn(ev.Reason.RESULTS, "All tests pass.")
        run = log.state.run
        if run is not None:
            log.add(ev.RunFinished(run.run_id, ev.Outcome.COMPLETED, run.turns, run.usage, "All tests pass."))
    return log.events
