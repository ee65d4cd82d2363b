"""The model `scripted`: it says what a list of replies tells it to, for tests, demonstrations and bug reports.

Belongs here: choosing the reply, and playing it with its thinking time.
Must not know: the file format of replies beyond their types (script_file.py), tools, sessions.

The rule of choice, which needs no state, so that a session resumes in another process and a branch plays on by itself:
the first reply that is unused and whose conditions hold. A reply is used when the history in the request has a response
of this model that equals it (text and calls). Replies that leave nothing in a history, such as errors, are remembered
by this object instead. A reply that repeats is never used.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final

import trio

from harness.llm.model import (
    AssistantItem,
    Delta,
    Emit,
    ErrorKind,
    Item,
    ModelError,
    ModelRequest,
    ModelResponse,
    OutputItem,
    Reasoning,
    ReasoningDelta,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from harness.llm.script_file import Reply, read_replies, read_script

PROVIDER: Final = "scripted"
PIECE_CHARS: Final = 24
"""Characters of a streamed piece."""

Key = tuple[object, ...] | None
Answer = ModelResponse | None
Playable = Reply | Mapping[str, Any] | Callable[[ModelRequest], Answer | Awaitable[Answer]]


class Scripted:
    """The model object. name: `scripted`, or `scripted:FILE` when it was read from a file."""

    def __init__(self, replies: Sequence[Playable], *, name: str = PROVIDER) -> None:
        """replies: each a Reply, a mapping of the same shape as in a file, or a function.

        A function takes the request and returns (or awaits) a ModelResponse, or None when the reply is not for this
        request; it may raise ModelError. Raises BadScript for a mapping that is not a reply.
        """
        self.name = name
        self._replies = [reply if callable(reply) else _read(reply) for reply in replies]
        self._invisible: set[int] = set()
        self._said: dict[int, set[Key]] = {}

    @classmethod
    def from_file(cls, path: str) -> Scripted:
        """The replies of a JSON file. Raises BadScript with one line when it cannot be read or used."""
        return cls(read_script(path), name=f"{PROVIDER}:{path}")

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        """Play the first fitting reply. Raises the ModelError that it holds, or BAD_REQUEST when none fits."""
        used = used_replies(self._replies, request.items, said=self._said, gone=self._invisible)
        for index, reply in enumerate(self._replies):
            if isinstance(reply, Reply):
                if index in used or not fits(reply, request.items):
                    continue
                if _key_of(reply) is None and not reply.repeat:
                    self._invisible.add(index)
                return await play(reply, emit)
            if index not in used and (response := await self._call(index, reply, request, emit)) is not None:
                return response
        raise ModelError(ErrorKind.BAD_REQUEST, self._no_reply(request))

    async def aclose(self) -> None:
        """Nothing to close."""

    async def _call(
        self,
        index: int,
        function: Callable[[ModelRequest], Answer | Awaitable[Answer]],
        request: ModelRequest,
        emit: Emit,
    ) -> Answer:
        await trio.lowlevel.checkpoint()
        try:
            made = function(request)
            response = await made if inspect.isawaitable(made) else made
        except ModelError:
            self._invisible.add(index)
            raise
        if response is None:
            return None
        key = _key(response.output)
        if key is None:
            self._invisible.add(index)
        self._said.setdefault(index, set()).add(key)
        emit_output(response.output, emit)
        return ModelResponse(
            response.output,
            response.stop,
            response.usage,
            response.response_id,
            response.provider or PROVIDER,
            response.attempts,
        )

    def _no_reply(self, request: ModelRequest) -> str:
        last = " ".join(_new_text(request.items).split())
        shown = last if len(last) <= 120 else last[:120] + "..."
        return f"{self.name} has no reply left for turn {turn_of(request.items)}, which came after: {shown!r}"


def _read(reply: Reply | Mapping[str, Any]) -> Reply:
    return reply if isinstance(reply, Reply) else read_replies([dict(reply)], "a reply")[0]


# --- which reply


def turn_of(items: Sequence[Item]) -> int:
    """The number of this turn, from 1: the responses in the history and one."""
    return 1 + sum(isinstance(item, AssistantItem) for item in items)


def fits(reply: Reply, items: Sequence[Item]) -> bool:
    """Whether every condition of a reply holds for a request with these items."""
    when = reply.when
    if when.turn is not None and when.turn != turn_of(items):
        return False
    if when.last_contains is not None and when.last_contains not in _new_text(items):
        return False
    if when.contains is None and when.pattern is None:
        return True
    text = _texts(items)
    return (when.contains is None or when.contains in text) and (
        when.pattern is None or bool(when.pattern.search(text))
    )


def used_replies(
    replies: Sequence[Reply | Callable[..., Any]],
    items: Sequence[Item],
    *,
    said: Mapping[int, set[Key]] = {},  # never changed
    gone: Collection[int] = (),
) -> set[int]:
    """Indices of the replies that are used: those in `gone`, and those that the history shows.

    said: what the functions among the replies have said before, by index. A response of this model that equals nothing
    known was made by a function in another process: by the first one that is not used yet.
    """
    keys = [said.get(i, set()) if callable(reply) else {_key_of(reply)} for i, reply in enumerate(replies)]
    repeated = {_key_of(reply) for reply in replies if isinstance(reply, Reply) and reply.repeat}
    used = set(gone)
    free = [i for i, reply in enumerate(replies) if i not in used and not (isinstance(reply, Reply) and reply.repeat)]
    for item in items:
        if not isinstance(item, AssistantItem):
            continue
        key = _key(item.output)
        found = next((index for index in free if key in keys[index]), None)
        if found is None and key not in repeated and item.provider == PROVIDER:
            found = next((index for index in free if callable(replies[index])), None)
        if found is not None:
            free.remove(found)
            used.add(found)
    return used


def _key_of(reply: Reply) -> Key:
    return None if reply.error is not None else _key(output_of(reply))


def _key(output: Sequence[OutputItem]) -> Key:
    """What has to be equal for a response to be a reply; None when a history shows nothing of it."""
    parts: list[object] = []
    for item in output:
        match item:
            case ToolCall():
                parts.append((item.name, item.arguments))
            case Text() if item.text.strip():
                parts.append(item.text)
            case Reasoning() if item.text.strip() or item.opaque:
                parts.append(("reasoning", item.text))
            case _:
                pass
    return tuple(parts) or None


def _new_text(items: Sequence[Item]) -> str:
    """The texts of what came after the last response: what this turn is about."""
    start = next((i for i in range(len(items), 0, -1) if isinstance(items[i - 1], AssistantItem)), 0)
    return _texts(items[start:])


def _texts(items: Sequence[Item]) -> str:
    texts: list[str] = []
    for item in items:
        if isinstance(item, AssistantItem):
            for part in item.output:
                texts.extend((part.name, part.arguments) if isinstance(part, ToolCall) else (part.text,))
        else:
            texts.extend(part.text for part in item.parts if isinstance(part, Text))
    return "\n".join(texts)


# --- saying it


def output_of(reply: Reply) -> tuple[OutputItem, ...]:
    """The output items of a reply: reasoning, then text, then calls."""
    output: list[OutputItem] = []
    if reply.reasoning:
        output.append(Reasoning(reply.reasoning, provider=PROVIDER))
    if reply.text:
        output.append(Text(reply.text))
    output.extend(ToolCall(call.name, call.raw_arguments, provider=PROVIDER) for call in reply.calls)
    return tuple(output)


async def play(reply: Reply, emit: Emit) -> ModelResponse:
    """Think for `think_s`, stream the pieces over `stream_s`, then return the response or raise the reply's error."""
    await trio.sleep(reply.think_s)
    streamed: list[Delta] = [ReasoningDelta(piece) for piece in _pieces(reply.reasoning)]
    streamed.extend(TextDelta(piece) for piece in _pieces(reply.text))
    for delta in streamed:
        emit(delta)
        await trio.sleep(reply.stream_s / len(streamed))
    if reply.error is not None:
        error = reply.error
        raise ModelError(error.kind, error.message, status=error.status, retry_after_s=error.retry_after_s)
    output = output_of(reply)
    emit_output([item for item in output if isinstance(item, ToolCall)], emit)
    stop = reply.stop or (StopReason.TOOL_CALLS if reply.calls else StopReason.END)
    return ModelResponse(output, stop, reply.usage, provider=PROVIDER)


def emit_output(output: Sequence[OutputItem], emit: Emit) -> None:
    """Emit the deltas of a response that is known as a whole."""
    calls = 0
    for item in output:
        match item:
            case Text():
                emit(TextDelta(item.text))
            case Reasoning():
                emit(ReasoningDelta(item.text))
            case ToolCall():
                for number, piece in enumerate(_pieces(item.arguments) or [""]):
                    emit(ToolCallDelta(calls, item.name if number == 0 else "", piece))
                calls += 1


def _pieces(text: str) -> list[str]:
    return [text[start : start + PIECE_CHARS] for start in range(0, len(text), PIECE_CHARS)]
