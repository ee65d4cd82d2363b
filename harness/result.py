"""What a run came to, read back from the log.

Belongs here: `RunResult` and how it is made from the events of a run.
Must not know: how to wait for a run, or anything that is not in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from harness import events as ev
from harness.llm.model import Text, ToolCall, Usage
from harness.tools.registry import Rejection, read_arguments


class ToolCallResult(msgspec.Struct, frozen=True):
    """One tool call of a run.

    arguments: empty when the model wrote none that can be read. outcome None: it was still running when the run ended.
    seconds: how long it took.
    """

    call_id: str
    name: str
    arguments: dict[str, Any]
    outcome: ev.CallOutcome | None
    seconds: float | None
    text: str


class RunResult(msgspec.Struct, frozen=True):
    """How a run ended. text: the answer. turns: model requests. seconds: elapsed. error: why it did not complete."""

    run_id: str
    outcome: ev.Outcome
    text: str
    turns: int
    usage: Usage
    tool_calls: tuple[ToolCallResult, ...]
    seconds: float
    error: str


def run_result(logged: Iterable[ev.Logged], run_id: str) -> RunResult:
    """The result of run `run_id` from its events, which end with its run_finished. Each call makes a copy of its own.

    Raises LookupError when they do not.
    """
    calls: dict[str, ToolCallResult] = {}
    written: dict[str, str] = {}
    for entry in logged:
        match entry.event:
            case ev.TurnFinished() as event:
                written.update((item.call_id, item.arguments) for item in event.output if isinstance(item, ToolCall))
            case ev.ToolCallPending() as event:
                calls[event.call_id] = ToolCallResult(event.call_id, event.tool, event.arguments, None, None, "")
            case ev.ToolCallRejected() as event:
                arguments = read_arguments(written.get(event.call_id, ""))
                readable = {} if isinstance(arguments, Rejection) else arguments
                calls[event.call_id] = ToolCallResult(
                    event.call_id, event.tool, readable, ev.CallOutcome.FAILED, None, event.error
                )
            case ev.ToolCallFinished() as event if event.call_id in calls:
                text = "\n".join(part.text for part in event.parts if isinstance(part, Text))
                calls[event.call_id] = msgspec.structs.replace(
                    calls[event.call_id], outcome=event.outcome, seconds=event.seconds, text=text
                )
            case ev.RunFinished() as event if event.run_id == run_id:
                return RunResult(
                    run_id=run_id,
                    outcome=event.outcome,
                    text=event.text,
                    turns=event.turns,
                    usage=event.usage,
                    tool_calls=tuple(calls.values()),
                    seconds=event.seconds,
                    error=event.error,
                )
            case _:
                pass
    raise LookupError(f"the events hold no end of run {run_id!r}")
