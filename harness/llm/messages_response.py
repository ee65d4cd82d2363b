"""Anthropic's Messages API: events, or one whole body, to a response.  Pure, sans-I/O.

Belongs here: what each event adds to its block, and which one ends a response.
Must not know: HTTP, how a stream is cut into events, requests.

Source: Anthropic's API reference, "Streaming messages". Unknown events are ignored, as it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.llm import wire
from harness.llm.errors import stream_error
from harness.llm.jsontext import decoded
from harness.llm.model import (
    Delta,
    ErrorKind,
    ModelError,
    ModelResponse,
    OutputItem,
    Reasoning,
    ReasoningDelta,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from harness.llm.stream import State, ended_early, ended_oddly

STOP: Final[Mapping[str, StopReason]] = {
    "end_turn": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.LENGTH,
    "model_context_window_exceeded": StopReason.LENGTH,
    "pause_turn": StopReason.PAUSED,
    "refusal": StopReason.REFUSAL,
}
"""What each stop reason means. One that is not here fails the turn: an unknown reason is not a success."""


class _Block(msgspec.Struct):
    """One content block so far. call: its number among the calls, or -1."""

    block: dict[str, Any]
    json: str = ""
    call: int = -1


class MessagesAssembler:
    """Puts one response together. See `stream.Assembler`."""

    def __init__(self, provider: str) -> None:
        self.state = State.OPEN
        self._provider = provider
        self._blocks: dict[int, _Block] = {}
        self._calls = 0
        self._stop = ""
        self._usage: dict[str, Any] = {}
        self._id = ""

    def event(self, data: dict[str, Any]) -> list[Delta]:
        """Take an event. Raises ModelError when it is an error."""
        match data.get("type"):
            case "error":
                raise stream_error(data, usage=self._counted())
            case "message_start":
                message = wire.mapping(data.get("message"))
                self._id = wire.string(message.get("id"))
                self._count(message.get("usage"))
            case "content_block_start":
                return self._start(data)
            case "content_block_delta":
                return self._delta(data)
            case "message_delta":
                self._stop = wire.string(wire.mapping(data.get("delta")).get("stop_reason")) or self._stop
                self._count(data.get("usage"))
                if self._stop:
                    self.state = State.CLOSING
                return self._explained(wire.mapping(data.get("delta")))
            case "message_stop":
                self.state = State.DONE
            case _:
                pass
        return []

    def end_marker(self) -> None:
        """Some gateways add `[DONE]`; it ends nothing that was not ended."""

    def body(self, data: dict[str, Any]) -> list[Delta]:
        """Take a whole response."""
        if data.get("type") == "error" or data.get("error"):
            raise stream_error(data)
        if not isinstance(data.get("content"), list):
            raise ModelError(ErrorKind.PROTOCOL, "the response is JSON but has no content")
        self._id, self._stop = wire.string(data.get("id")), wire.string(data.get("stop_reason"))
        self._count(data.get("usage"))
        self.state = State.DONE
        deltas: list[Delta] = []
        for index, block in enumerate(data["content"]):
            deltas += self._start({"index": index, "content_block": block})
            kept = self._blocks.get(index)
            if kept is not None and kept.call >= 0:
                kept.json = wire.as_text(kept.block.get("input")) or "{}"
                deltas.append(ToolCallDelta(kept.call, "", kept.json))
        return deltas + self._explained(data)

    def result(self) -> ModelResponse:
        """The response. Raises ModelError when it did not end properly or contradicts itself."""
        usage = self._counted()
        if self.state is State.OPEN:
            error = ended_early()
            error.usage = usage
            raise error
        stop = STOP.get(self._stop)
        if stop is None:
            raise ended_oddly("reason", self._stop, usage)
        output = self._output()
        calls = [item for item in output if isinstance(item, ToolCall)]
        if stop is StopReason.TOOL_CALLS and not calls:
            if not any(isinstance(item, Text) and item.text.strip() for item in output):
                raise ModelError(ErrorKind.PROTOCOL, "the response announces tool calls but has none", usage=usage)
            stop = StopReason.END
        if calls and stop in (StopReason.END, StopReason.TOOL_CALLS):
            cut = all(wire.is_cut(call.arguments) for call in calls)
            stop = StopReason.LENGTH if cut else StopReason.TOOL_CALLS
        return ModelResponse(output, stop, usage, self._id, self._provider)

    # --- blocks

    def _start(self, data: dict[str, Any]) -> list[Delta]:
        index, block = data.get("index"), wire.mapping(data.get("content_block"))
        if not isinstance(index, int) or not block:
            return []
        kept = self._blocks[index] = _Block(dict(block))
        if block.get("type") == "tool_use":
            kept.call, self._calls = self._calls, self._calls + 1
            return [ToolCallDelta(kept.call, wire.string(block.get("name")), "")]
        text, thought = wire.string(block.get("text")), wire.string(block.get("thinking"))
        return [TextDelta(text)] if text else [ReasoningDelta(thought)] if thought else []

    def _delta(self, data: dict[str, Any]) -> list[Delta]:
        index, delta = data.get("index"), wire.mapping(data.get("delta"))
        kept = self._blocks.get(index) if isinstance(index, int) else None
        if kept is None:
            raise ModelError(ErrorKind.PROTOCOL, "the stream goes on with a block that it did not begin")
        match delta.get("type"):
            case "text_delta":
                return [TextDelta(_grown(kept.block, "text", delta))]
            case "thinking_delta":
                return [ReasoningDelta(_grown(kept.block, "thinking", delta))]
            case "signature_delta":
                _grown(kept.block, "signature", delta)
            case "input_json_delta":
                piece = wire.string(delta.get("partial_json"))
                kept.json += piece
                return [ToolCallDelta(kept.call, "", piece)] if kept.call >= 0 else []
            case _:
                pass
        return []

    def _explained(self, end: dict[str, Any]) -> list[Delta]:
        """Why the request was declined, as the last text: what was said before it does not tell."""
        why = wire.string(wire.mapping(end.get("stop_details")).get("explanation"))
        if self._stop != "refusal" or not why:
            return []
        block = {"type": "text", "text": why}
        return self._start({"index": max(self._blocks, default=-1) + 1, "content_block": block})

    def _output(self) -> tuple[OutputItem, ...]:
        output: list[OutputItem] = []
        for index in sorted(self._blocks):
            kept = self._blocks[index]
            block = kept.block
            match block.get("type"):
                case "text":
                    if text := wire.string(block.get("text")):
                        output.append(Text(text))
                case "tool_use":
                    arguments = kept.json or _given(block.get("input"))
                    name, identity = wire.string(block.get("name")), wire.string(block.get("id"))
                    output.append(ToolCall(name, arguments, provider_id=identity, provider=self._provider))
                case _:  # thinking with its signature, and whatever else has to go back as it came
                    if kept.json:
                        block = {**block, "input": decoded(wire.clean(kept.json).encode()) or {}}
                    output.append(Reasoning(wire.string(block.get("thinking")), self._provider, wire.dumped(block)))
        return tuple(output)

    # --- usage

    def _count(self, usage: Any) -> None:
        """Counts are running totals, and a later event leaves out what has not changed."""
        self._usage |= {key: value for key, value in wire.mapping(usage).items() if value is not None}

    def _counted(self) -> Usage:
        """Here `input_tokens` is what was neither read from the cache nor written to it; ours is all of them."""
        fresh, read, written, output = (
            wire.count(self._usage.get(name))
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
        )
        details = wire.mapping(self._usage.get("output_tokens_details"))
        return Usage(
            input=wire.plus(fresh, read, written),
            cached=read,
            cache_write=written,
            output=output,
            reasoning=wire.count(details.get("thinking_tokens")),
        )


def _given(value: Any) -> str:
    """Arguments that came with the start of the block; a stream begins with an empty object that means nothing yet."""
    return "" if value == {} else wire.as_text(value)


def _grown(block: dict[str, Any], field: str, delta: dict[str, Any]) -> str:
    piece = wire.string(delta.get(field))
    block[field] = wire.string(block.get(field)) + piece
    return piece
