"""The model `runbook`: it needs no network, because what it is to do stands in the prompt as Markdown.

Belongs here: finding out from a request how far its runbook has come, and saying the next thing.
Must not know: how commands are executed. It keeps no state: two processes given one request answer alike.

The rule for what it works on: the last message of a user that has shell blocks. Messages without any are acknowledged
in the answer while that runbook is under way, and answered with how to use this model when it is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from harness.llm import runbook_answer as say
from harness.llm.model import (
    AssistantItem,
    Emit,
    Item,
    ModelRequest,
    ModelResponse,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultItem,
    UserItem,
)
from harness.llm.runbook_answer import Outcome, read_result
from harness.llm.runbook_markdown import Group, groups

PROVIDER: Final = "runbook"
TOOL: Final = "bash"

_LATE_RESULT: Final = re.compile(r"Result of call (\S+) \([^)\n]*\):\n")
# What the harness itself says in a user's place. None of it is a user's message, also when it quotes shell blocks.
_NOTES: Final = (
    "Result of call ",
    "(Your reply was cut off here ",
    "Nothing has happened for ",
    "The limit of ",
    "Summary of the conversation so far:",
)


class Runbook:
    """The model object. name: as the user gave it."""

    name = PROVIDER

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        """The next heading's commands as bash calls, or a text when there is nothing to start. Never fails."""
        await trio.lowlevel.checkpoint()
        output = reply(request)
        calls = [part for part in output if isinstance(part, ToolCall)]
        for part in output:
            if isinstance(part, Text):
                emit(TextDelta(part.text))
        for index, call in enumerate(calls):
            emit(ToolCallDelta(index, call.name, call.arguments))
        return ModelResponse(output, StopReason.TOOL_CALLS if calls else StopReason.END, provider=PROVIDER)

    async def aclose(self) -> None:
        """Nothing to close."""


def reply(request: ModelRequest) -> tuple[Text | ToolCall, ...]:
    """What the model says to a request. Pure."""
    progress = read_progress(request.items)
    if not progress.groups or progress.answered:
        return (Text(say.USAGE),)
    if request.allow_tools and not progress.ended:
        if progress.running:
            return (Text(_waiting(progress)),)
        schema = next((tool for tool in request.tools if tool.name == TOOL), None)
        if schema is None:
            return (Text(f"This runbook was not run: it needs the tool `{TOOL}`, which this session does not have."),)
        # quiet: this model has nothing to say before all of the heading's commands have ended.
        wake = {"wake": "quiet"} if "wake" in schema.parameters.get("properties", {}) else {}
        group = progress.groups[len(progress.issued)]
        return tuple(
            ToolCall(TOOL, msgspec.json.encode({"command": command, **wake}).decode()) for command in group.commands
        )
    return (Text(_answer(progress)),)


# --- how far it has come


class Progress(msgspec.Struct):
    """A runbook and what a request shows of it. issued: the call ids of each heading that has gone out."""

    groups: tuple[Group, ...] = ()
    issued: list[tuple[str, ...]] = msgspec.field(default_factory=list)
    outcomes: dict[str, Outcome] = msgspec.field(default_factory=dict)
    messages: list[str] = msgspec.field(default_factory=list)
    answered: bool = False

    @property
    def running(self) -> bool:
        """Whether a command that has gone out has not ended."""
        return any(outcome.running for outcome in self._all())

    @property
    def ended_by(self) -> Group | None:
        """The heading whose failure ended the runbook, if one did."""
        for group, call_ids in zip(self.groups, self.issued, strict=False):
            failed = any(not o.ok and not o.running for o in map(self.outcome, call_ids))
            if failed and not group.goes_on:
                return group
        return None

    @property
    def ended(self) -> bool:
        """Whether only the answer is left to give."""
        return not self.running and (self.ended_by is not None or len(self.issued) >= len(self.groups))

    def outcome(self, call_id: str) -> Outcome:
        """How a call stands; a request that lacks its result shows it as running."""
        return self.outcomes.get(call_id, Outcome("still running", running=True))

    def rows(self) -> list[tuple[str, Outcome]]:
        """Each command that has gone out, and how it stands."""
        return [
            (command, self.outcome(call_id))
            for group, call_ids in zip(self.groups, self.issued, strict=False)
            for command, call_id in zip(group.commands, call_ids, strict=False)
        ]

    def _all(self) -> list[Outcome]:
        return [self.outcome(call_id) for call_ids in self.issued for call_id in call_ids]


def read_progress(items: Sequence[Item]) -> Progress:
    """What the items of a request say about the last runbook among them."""
    progress = Progress()
    for item in items:
        match item:
            case UserItem():
                progress = _heard(progress, _text(item))
            case ToolResultItem():
                progress.outcomes[item.call_id] = _checked(read_result(_text(item)), failed=item.failed)
            case AssistantItem(provider=provider) if provider in (PROVIDER, ""):
                calls = tuple(part.call_id for part in item.output if isinstance(part, ToolCall))
                if calls:
                    progress.issued.append(calls)
                elif provider and progress.ended:  # without a provider it is a reply that was cut off
                    progress.answered = True
    return progress


def _heard(progress: Progress, text: str) -> Progress:
    if match := _LATE_RESULT.match(text):
        progress.outcomes[match[1]] = read_result(text[match.end() :])
        return progress
    if text.startswith(_NOTES):
        return progress
    if found := groups(text):
        return Progress(groups=found)
    if not progress.answered:
        progress.messages.append(text)
    return progress


def _checked(outcome: Outcome, *, failed: bool) -> Outcome:
    return msgspec.structs.replace(outcome, ok=False) if failed else outcome


def _text(item: UserItem | ToolResultItem) -> str:
    return "\n".join(part.text for part in item.parts if isinstance(part, Text))


# --- what it says


def _waiting(progress: Progress) -> str:
    group = progress.groups[len(progress.issued) - 1]
    outcomes = [progress.outcome(call_id) for call_id in progress.issued[-1]]
    running = say.counted(sum(outcome.running for outcome in outcomes), "command")
    text = f'Waiting: {running} of "{group.label}" still running.'
    return "\n\n".join(filter(None, (text, say.noted(progress.messages))))


def _answer(progress: Progress) -> str:
    """The table, the tally, and what was not reached and why."""
    rows = progress.rows()
    text = say.table(rows) + "\n\n" + say.tally([outcome for _, outcome in rows])
    left = progress.groups[len(progress.issued) :]
    if (group := progress.ended_by) is not None:
        text += f' The heading "{group.label}" ended the runbook.'
    elif not progress.ended:
        text += " The runbook was stopped before its end."
    if left:
        names = ", ".join(f'"{group.label}"' for group in left)
        text += f" Not reached: {names} ({say.counted(sum(len(group.commands) for group in left), 'command')})."
    return "\n\n".join(filter(None, (text, say.noted(progress.messages))))
