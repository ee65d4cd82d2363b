"""OpenAI's Responses API: events, or one whole body, to a response.  Pure, sans-I/O.

Belongs here: what each event adds, and which one ends a response.
Must not know: HTTP, how a stream is cut into events, requests.

Source: OpenAI's API reference, "Streaming events" of the Responses API. Unknown events are ignored, as it asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from harness.llm import wire
from harness.llm.errors import stream_error
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
from harness.llm.responses_wire import PHASE
from harness.llm.stream import State, ended_early, ended_oddly

INCOMPLETE: Final[Mapping[str, StopReason]] = {
    "max_output_tokens": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "content_filter": StopReason.REFUSAL,
}
"""What the reason of an incomplete response means."""


class _Part(msgspec.Struct):
    """One output item so far. item: as it was announced, then as it was finished. text, arguments: from the deltas."""

    item: dict[str, Any]
    finished: bool = False
    text: str = ""
    arguments: str = ""
    call: int = -1


class ResponsesAssembler:
    """Puts one response together. See `stream.Assembler`."""

    def __init__(self, provider: str) -> None:
        self.state = State.OPEN
        self._provider = provider
        self._parts: dict[int, _Part] = {}
        self._calls = 0
        self._response: dict[str, Any] = {}

    def event(self, data: dict[str, Any]) -> list[Delta]:
        """Take an event. Raises ModelError for the error events."""
        kind = wire.string(data.get("type"))
        if kind in ("error", "response.error") or (not kind and data.get("error")):
            raise stream_error(data)
        if kind == "response.failed":
            raise self._failed(wire.mapping(data.get("response")))
        if kind in ("response.completed", "response.incomplete", "response.done"):
            self._response = wire.mapping(data.get("response"))
            self.state = State.DONE
            return []
        return self._piece(kind, data)

    def end_marker(self) -> None:
        """Some gateways add `[DONE]`; it ends nothing that was not ended."""

    def body(self, data: dict[str, Any]) -> list[Delta]:
        """Take a whole response."""
        if data.get("status") == "failed" or (data.get("error") and not data.get("output")):
            raise self._failed(data)
        if not isinstance(data.get("output"), list):
            raise ModelError(ErrorKind.PROTOCOL, "the response is JSON but has no output")
        self._response, self.state = data, State.DONE
        deltas: list[Delta] = []
        for item in self._output():
            if isinstance(item, Text):
                deltas.append(TextDelta(item.text))
            elif isinstance(item, ToolCall):
                deltas.append(ToolCallDelta(self._calls, item.name, item.arguments))
                self._calls += 1
        return deltas

    def result(self) -> ModelResponse:
        """The response. Raises ModelError when it did not end properly."""
        if self.state is State.OPEN:
            raise ended_early()
        response, output = self._response, self._output()
        usage = usage_of(response.get("usage"))
        return ModelResponse(output, self._stop(output, usage), usage, wire.string(response.get("id")), self._provider)

    def _stop(self, output: tuple[OutputItem, ...], usage: Usage) -> StopReason:
        if self._response.get("status") == "incomplete":
            reason = wire.string(wire.mapping(self._response.get("incomplete_details")).get("reason"))
            if reason not in INCOMPLETE:
                raise ended_oddly("reason", reason, usage)
            return INCOMPLETE[reason]
        if (status := self._response.get("status")) not in ("completed", None):
            raise ended_oddly("status", status, usage)
        if any(isinstance(item, ToolCall) for item in output):
            return StopReason.TOOL_CALLS
        return StopReason.REFUSAL if self._refused() else StopReason.END

    def _failed(self, response: dict[str, Any]) -> ModelError:
        return stream_error({"error": response.get("error") or {}}, usage=usage_of(response.get("usage")))

    # --- pieces

    def _piece(self, kind: str, data: dict[str, Any]) -> list[Delta]:
        index = data.get("output_index")
        if not isinstance(index, int) or isinstance(index, bool):
            return []
        if kind in ("response.output_item.added", "response.output_item.done"):
            return self._item(index, wire.mapping(data.get("item")), finished=kind.endswith("done"))
        delta = wire.string(data.get("delta"))
        part = self._parts.setdefault(index, _Part({}))
        match kind:
            case "response.output_text.delta" | "response.refusal.delta":
                part.text += delta
                return [TextDelta(delta)]
            case "response.output_text.done" | "response.refusal.done" if not part.text:  # a server without deltas
                part.text = wire.string(data.get("text")) or wire.string(data.get("refusal"))
                return [TextDelta(part.text)] if part.text else []
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [ReasoningDelta(delta)]
            case "response.function_call_arguments.delta":
                part.arguments += delta
                return self._call_delta(part, delta)
            case "response.function_call_arguments.done":
                part.arguments = wire.as_text(data.get("arguments")) or part.arguments
        return []

    def _item(self, index: int, item: dict[str, Any], *, finished: bool) -> list[Delta]:
        part = self._parts.setdefault(index, _Part({}))
        part.item = item or part.item
        part.finished = part.finished or finished
        new = item.get("type") == "function_call" and part.call < 0
        return self._call_delta(part, wire.as_text(item.get("arguments"))) if new else []

    def _call_delta(self, part: _Part, arguments: str) -> list[Delta]:
        first = part.call < 0
        if first:
            part.call, self._calls = self._calls, self._calls + 1
        return [ToolCallDelta(part.call, wire.string(part.item.get("name")) if first else "", arguments)]

    # --- the whole

    def _items(self) -> list[_Part]:
        """The output items: those of the final event, or, where a server leaves them out there, those of the stream."""
        final = [item for item in wire.listed(self._response.get("output")) if isinstance(item, dict)]
        if final:
            return [_Part(item, finished=True) for item in final]
        return [self._parts[index] for index in sorted(self._parts)]

    def _refused(self) -> bool:
        return any(
            wire.mapping(content).get("type") == "refusal"
            for part in self._items()
            for content in wire.listed(part.item.get("content"))
        )

    def _output(self) -> tuple[OutputItem, ...]:
        return tuple(item for part in self._items() for item in self._translated(part))

    def _translated(self, part: _Part) -> list[OutputItem]:
        item, provider = part.item, self._provider
        match item.get("type"):
            case "message":
                text = _message_text(item) or part.text
                said: list[OutputItem] = [Text(text)] if text else []
                if said and (phase := wire.string(item.get("phase"))):
                    said.insert(0, Reasoning("", provider, wire.dumped({"type": PHASE, "phase": phase})))
                return said
            case "function_call":
                arguments = wire.as_text(item.get("arguments")) or part.arguments
                name, identity = wire.string(item.get("name")), wire.string(item.get("call_id"))
                return [ToolCall(name, arguments, provider_id=identity, provider=provider)]
            case "reasoning":
                return [Reasoning(_thoughts(item), provider, wire.dumped(item) if part.finished else "")]
            case None:
                return [Text(part.text)] if part.text else []
            case _:  # a hosted tool's item, which we did not ask for: kept in its place
                return [Reasoning("", provider, wire.dumped(item))] if part.finished else []


def _message_text(item: dict[str, Any]) -> str:
    contents = [wire.mapping(content) for content in wire.listed(item.get("content"))]
    return "".join(wire.string(content.get("text")) or wire.string(content.get("refusal")) for content in contents)


def _thoughts(item: dict[str, Any]) -> str:
    pieces = [*wire.listed(item.get("summary")), *wire.listed(item.get("content"))]
    return "\n\n".join(filter(None, (wire.string(wire.mapping(piece).get("text")) for piece in pieces)))


def usage_of(data: Any) -> Usage:
    """Counts. The input includes what was read from the cache."""
    usage = wire.mapping(data)
    read, made = wire.mapping(usage.get("input_tokens_details")), wire.mapping(usage.get("output_tokens_details"))
    return Usage(
        input=wire.count(usage.get("input_tokens")),
        cached=wire.count(read.get("cached_tokens")),
        cache_write=wire.count(read.get("cache_write_tokens")),
        output=wire.count(usage.get("output_tokens")),
        reasoning=wire.count(made.get("reasoning_tokens")),
    )
