"""How what happened reads to the model: events to request items.  Pure.

Belongs here: every sentence the harness itself says to a model, cutting long results, the order within one step.
Must not know: the session's state, when a request is made, or any provider.

What is rendered once is never rendered again: the items of a request stay the prefix of the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from harness.events import CallOutcome, Cause, Heartbeat, Message, Policy, TurnInterrupted
from harness.llm.model import (
    AssistantItem,
    Image,
    Item,
    OutputItem,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)

NO_OUTPUT: Final = "(no output)"

STEP_CHARS_A_TOKEN: Final = 2
"""Of the window: what the new results of one request may take. Half of it for prose, and never more for denser text."""

LEAST_STEP_CHARS: Final = 4_000
"""What they may take however small the window is said to be."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Text that every encoder takes: half characters (lone surrogates) become U+FFFD."""
    return _SURROGATES.sub("\ufffd", text) if _SURROGATES.search(text) else text


class Omission(msgspec.Struct, frozen=True, gc=False):
    """Something that a request does not show in full. what: for people. chars: how many were left out."""

    what: str
    chars: int = 0


# --- what is waiting to be rendered


class Result(msgspec.Struct, frozen=True, gc=False):
    """The result of a call: as the answer to it, or (`late`) after a placeholder had answered it."""

    call_id: str
    tool: str
    parts: tuple[Part, ...]
    outcome: CallOutcome
    late: bool = False


class Running(msgspec.Struct, frozen=True, gc=False):
    """A call that has no result yet when a request has to answer it."""

    call_id: str
    tool: str


class Said(msgspec.Struct, frozen=True, gc=False):
    """An input of a user."""

    message: Message


class Silence(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat."""

    heartbeat: Heartbeat
    tools: tuple[str, ...]


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A turn that was cut off, with what it had said."""

    turn: TurnInterrupted


class LastCall(msgspec.Struct, frozen=True, gc=False):
    """A limit is reached and this is the final answer."""

    limit: str


class Summary(msgspec.Struct, frozen=True, gc=False):
    """What a compaction left of the earlier items, and the calls among them that still run."""

    text: str
    running: tuple[Running, ...] = ()


Entry = Result | Running | Said | Silence | Cut | LastCall | Summary


# --- rendering


def render(entries: Sequence[Entry], policy: Policy) -> tuple[list[Item], list[Omission]]:
    """The items of one step, in order, and what they leave out.

    Results share the step's room: the longest ones are cut first, each keeping its head and tail.
    """
    allowed = _shares(entries, policy)
    items: list[Item] = []
    omissions: list[Omission] = []
    for entry in entries:
        match entry:
            case Result():
                items.append(_result(entry, allowed, omissions))
            case Running():
                items.append(ToolResultItem(entry.call_id, entry.tool, (Text(_running_text(entry)),)))
            case Said():
                items.append(_said(entry.message))
            case Silence():
                items.append(UserItem((Text(_silence_text(entry)),)))
            case Cut():
                items.extend(_cut(entry.turn))
            case LastCall():
                items.append(UserItem((Text(_last_call_text(entry)),)))
            case Summary():
                items.append(UserItem((Text(_summary_text(entry)),)))
    return items, omissions


def spoken(output: tuple[OutputItem, ...], provider: str) -> AssistantItem | None:
    """A response as the history shows it: blank text is left out, and None stands for a response with nothing in it."""
    kept = [item for item in output if isinstance(item, ToolCall) or item.text.strip() or _is_opaque(item)]
    return AssistantItem(tuple(kept), provider) if kept else None


def _is_opaque(item: OutputItem) -> bool:
    return isinstance(item, Reasoning) and bool(item.opaque)


def answer(output: Sequence[OutputItem]) -> str:
    """The text of a response, for people."""
    return "".join(item.text for item in output if isinstance(item, Text)).strip()


def size(item: Item) -> int:
    """Characters of an item, an image counted as one."""
    match item:
        case AssistantItem():
            return sum(_output_size(part) for part in item.output)
        case UserItem() | ToolResultItem():
            return sum(len(part.text) if isinstance(part, Text) else 1 for part in item.parts)


def images(items: Sequence[Item]) -> list[Image]:
    """The images in these items."""
    return [
        part for item in items if not isinstance(item, AssistantItem) for part in item.parts if isinstance(part, Image)
    ]


def _output_size(item: OutputItem) -> int:
    return len(item.name) + len(item.arguments) if isinstance(item, ToolCall) else len(item.text)


def _text_size(entry: Result) -> int:
    return sum([len(part.text) for part in entry.parts if isinstance(part, Text)])


def result_chars(entries: Sequence[Entry], policy: Policy) -> int:
    """Characters of text that the results among these entries come to when they are rendered as one step."""
    allowed = _shares(entries, policy)
    return sum(min(_text_size(entry), allowed) for entry in entries if isinstance(entry, Result))


def _shares(entries: Sequence[Entry], policy: Policy) -> int:
    """Characters that each result may have so that all of them fit in the step; short ones leave room to long ones."""
    sizes = [min(_text_size(entry), policy.result_max_chars) for entry in entries if isinstance(entry, Result)]
    room = policy.step_max_chars
    if policy.window_tokens is not None:
        room = min(room, max(LEAST_STEP_CHARS, policy.window_tokens * STEP_CHARS_A_TOKEN))
    if sum(sizes) <= room:
        return policy.result_max_chars
    sizes.sort()
    for position, needed in enumerate(sizes):
        share = room // (len(sizes) - position)
        if needed > share:
            return share
        room -= needed
    return policy.result_max_chars


def _result(entry: Result, allowed: int, omissions: list[Omission]) -> Item:
    parts: list[Part] = []
    room = allowed
    for part in entry.parts:
        if isinstance(part, Image):
            parts.append(part)
            continue
        text = cut_middle(part.text, room)
        if len(text) < len(part.text):
            gone = len(part.text) - room
            omissions.append(Omission(f"middle of the result of call {entry.call_id} ({entry.tool})", gone))
        room = max(0, room - len(part.text))
        if text and not text.isspace():
            parts.append(Text(text))
    if not parts:
        parts.append(Text(NO_OUTPUT))
    if not entry.late:
        failed = entry.outcome is not CallOutcome.OK
        return ToolResultItem(entry.call_id, entry.tool, tuple(parts), failed)
    label = f"Result of call {entry.call_id} ({entry.tool}):\n"
    first = parts[0]
    if isinstance(first, Text):
        return UserItem((Text(label + first.text), *parts[1:]))
    return UserItem((Text(label.rstrip()), *parts))


def cut_middle(text: str, most: int) -> str:
    """`text` in at most about `most` characters: its head and tail, and a line between them that says what is gone."""
    if len(text) <= most:
        return text
    head = most * 2 // 5
    tail = most - head
    gone = len(text) - most
    return f"{text[:head]}\n[... {gone} characters left out ...]\n{text[len(text) - tail :]}"


def _running_text(entry: Running) -> str:
    return f'still running: its result will come in a later message that begins "Result of call {entry.call_id}".'


def _said(message: Message) -> UserItem:
    parts: list[Part] = [Text(message.text)] if message.text.strip() else []
    parts.extend(message.images)
    return UserItem(tuple(parts) or (Text("(an empty message)"),))


def _silence_text(entry: Silence) -> str:
    running = ", ".join(
        f"{call_id} ({tool})" for call_id, tool in zip(entry.heartbeat.running, entry.tools, strict=True)
    )
    return (
        f"Nothing has happened for {entry.heartbeat.idle_s:.0f} s. Still running: {running}. "
        "You will be called when one of them ends; act now only if there is something to do meanwhile."
    )


_CAUSES: Final = {
    Cause.INPUT: "by a new message",
    Cause.INTERRUPT: "by the user",
    Cause.CANCEL: "by the user, who cancelled the work",
    Cause.LIMIT: "because a limit was reached",
    Cause.LOST: "because the connection to you was lost",
}


def _cut(turn: TurnInterrupted) -> list[Item]:
    if not turn.text.strip() and not turn.calls:
        return []
    said: list[Item] = [AssistantItem((Text(turn.text),))] if turn.text.strip() else []
    note = f"(Your reply was cut off here {_CAUSES[turn.cause]}."
    if turn.calls:
        note += f" The tool calls that it had begun were not run: {', '.join(turn.calls)}."
    return [*said, UserItem((Text(note + ")"),))]


def _last_call_text(entry: LastCall) -> str:
    return (
        f"The limit of {entry.limit} is reached: no more work can be done. "
        "Answer now, without tools, and name what was not reached."
    )


def _summary_text(entry: Summary) -> str:
    text = f"Summary of the conversation so far:\n{entry.text}"
    if entry.running:
        running = ", ".join(f"{call.call_id} ({call.tool})" for call in entry.running)
        text += f"\n\nStill running, with results to come in later messages: {running}."
    return text
