"""How events and figures read on one line.  Pure.

Belongs here: every short text that a person reads about an event, whatever shows it.
Must not know: terminals, colours, where the line goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from harness import events as ev
from harness.llm.model import Part, Text, ToolCall, Usage

LABEL_CHARS: Final = 80
TAIL_CHARS: Final = 100


def one_line(text: str, limit: int = TAIL_CHARS) -> str:
    """Printable characters on one line, cut to `limit` and the cut marked.

    What a command prints stays data here: no escape sequence of it ever reaches a terminal.
    """
    head = text[: limit * 8]
    line = " ".join("".join(c if c.isprintable() else " " for c in head).split())
    if len(line) > limit:
        return line[: limit - 1].rstrip() + "…"
    return line + "…" if len(text) > len(head) else line


def tame(text: str) -> str:
    """The text without control characters that a terminal would obey; line ends and tabs stay."""
    return "".join(c for c in text if c in "\n\t" or not (ord(c) < 32 or 127 <= ord(c) < 160))


def counted(number: int, noun: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def seconds(value: float | None) -> str:
    """`0.4 s`, `75.0 s`; `-` for unknown."""
    return "-" if value is None else f"{value:.1f} s"


def tokens(value: int | None) -> str:
    """A number of tokens; `-` for unknown, which is not zero."""
    return "-" if value is None else f"{value:,}"


def usage_text(usage: Usage) -> str:
    """`12,000 tokens in (9,000 cached), 800 out`; empty when nothing is known."""
    if usage.input is None and usage.output is None:
        return ""
    cached = f" ({usage.cached:,} cached)" if usage.cached else ""
    return f"{tokens(usage.input)} tokens in{cached}, {tokens(usage.output)} out"


def label_of(arguments: Mapping[str, Any], limit: int = LABEL_CHARS) -> str:
    """What a call is about: its command, path or name if it has one, else its arguments."""
    for name in ("command", "path", "name"):
        if isinstance(value := arguments.get(name), str):
            first, *more = value.strip().splitlines() or [""]
            return one_line(first, limit).rstrip("…") + "…" if more else one_line(first, limit)
    shown = {name: value for name, value in arguments.items() if name != "wake"}
    return one_line(msgspec.json.encode(shown).decode(), limit) if shown else ""


class Ending(NamedTuple):
    """How a call ended: its first line of status, and the last line that it printed."""

    status: str
    tail: str


def ending_of(parts: tuple[Part, ...]) -> Ending:
    """Read from the model-facing result, whose first paragraph says how it ended and whose rest is output."""
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    status, _, output = text.partition("\n\n")
    # Notes of the harness in square brackets come after the output.
    lines = [line for line in output.splitlines() if line.strip() and not (line[0] == "[" and line[-1] == "]")]
    tail = lines[-1] if lines and lines[-1] != "(no output)" else ""
    return Ending(one_line(status), one_line(tail))


def summary(event: ev.Event) -> str:
    """One line for an event, without its kind."""
    match event:
        case ev.SessionOpened():
            tools = ", ".join(tool.schema.name for tool in event.tools)
            return f"model {event.model}, workspace {event.workspace}, tools {tools or 'none'}"
        case ev.SessionForked():
            return f"from {event.parent_id} at event {event.parent_seq}"
        case ev.InputAccepted():
            return f"{event.source}: {content(event.content)}"
        case ev.TurnStarted():
            limit = f", the limit of {event.limit} is reached" if event.limit else ""
            return f"{event.turn_id} for {event.reason.value}, {counted(event.items, 'item')}{limit}"
        case ev.TurnFinished() | ev.TurnInterrupted() | ev.TurnFailed():
            return f"{event.turn_id} {turn_end(event)}, {seconds(event.seconds)}"
        case _:
            return _of_work(event)


def _of_work(event: ev.Event) -> str:
    match event:
        case ev.ToolCallPending():
            return f"{event.call_id} {event.tool} {label_of(event.arguments)}"
        case ev.ToolCallRejected():
            return f"{event.call_id} {event.tool}: {one_line(event.error)}"
        case ev.OperationUpdated():
            took = "" if event.seconds is None else f", {seconds(event.seconds)}"
            return f"{event.operation_id} {event.status.value}{took}"
        case ev.ToolCallFinished():
            ending = ending_of(event.parts)
            said = f", last line: {ending.tail}" if ending.tail else ""
            return f"{event.call_id} {event.outcome.value}: {ending.status}{said}"
        case ev.ContextCompacted():
            return f"up to event {event.upto_seq}: {one_line(event.summary)}"
        case ev.RunFinished():
            why = f" ({one_line(event.error)})" if event.error not in ("", event.outcome.value) else ""
            return (
                f"{event.run_id} {event.outcome.value}{why}, {counted(event.turns, 'turn')}, {seconds(event.seconds)}"
            )
        case _:
            return ""


def content(value: ev.Content) -> str:
    """What an input says or asks for."""
    match value:
        case ev.Message():
            lines = [line for line in value.text.splitlines() if line.strip()]
            more = f" (and {counted(len(lines) - 1, 'more line')})" if len(lines) > 1 else ""
            images = f" [{counted(len(value.images), 'image')}]" if value.images else ""
            return one_line(lines[0] if lines else "") + more + images
        case ev.Interrupt() | ev.Cancel():
            verb = "interrupt" if isinstance(value, ev.Interrupt) else "cancel"
            return f"{verb} ({one_line(value.reason)})" if value.reason else verb
        case ev.Heartbeat():
            return f"nothing for {value.idle_s:g} s, {counted(len(value.running), 'call')} running"
        case ev.Settings():
            changed = [name for name in value.__struct_fields__ if getattr(value, name) is not None]
            return f"changed {', '.join(changed)}"


def turn_end(event: ev.TurnFinished | ev.TurnInterrupted | ev.TurnFailed) -> str:
    """How a turn ended, and with what."""
    match event:
        case ev.TurnFinished():
            calls = sum(isinstance(item, ToolCall) for item in event.output)
            text = "".join(item.text for item in event.output if isinstance(item, Text))
            made = [counted(calls, "call")] if calls else []
            said = [one_line(text)] if text.strip() else []
            used = [usage_text(event.usage)] if usage_text(event.usage) else []
            return ", ".join([f"({event.stop.value})", *made, *said, *used])
        case ev.TurnInterrupted():
            return f"was cut off ({event.cause.value})"
        case ev.TurnFailed():
            tries = f", {counted(event.attempts, 'attempt')}" if event.attempts > 1 else ""
            return f"failed: {event.error.value}: {one_line(event.message, 300)}{tries}"
