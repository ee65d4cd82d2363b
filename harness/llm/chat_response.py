"""Chat Completions: chunks, or one whole body, to a response.  Pure, sans-I/O.

Belongs here: what the fields of a chunk mean under all their names, and when a response is whole.
Must not know: HTTP, how a stream is cut into events, requests.

Source: OpenAI's API reference, "Chat completion chunk object", and the providers' references for their own fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from harness.llm import wire
from harness.llm.chat_calls import CallFragments
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
    Usage,
)
from harness.llm.stream import State, ended_early, ended_oddly

FINISH: Final[Mapping[str, StopReason | ErrorKind]] = {
    "stop": StopReason.END,
    "end_turn": StopReason.END,
    "eos": StopReason.END,
    "stop_sequence": StopReason.END,
    "tool_calls": StopReason.TOOL_CALLS,
    "tool_use": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,  # Mistral: the model's window is full
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
    "safety": StopReason.REFUSAL,
    "error": ErrorKind.SERVER_ERROR,  # OpenRouter and Mistral: the model failed on the way
    "abort": ErrorKind.SERVER_ERROR,  # vLLM
    "insufficient_system_resource": ErrorKind.OVERLOADED,
}
"""What each finish reason means. One that is not here fails the turn: an unknown reason is not a success."""

_THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")
"""Names of the reasoning text. Some servers send it under two of them at once, so the first that is there counts."""


class ChatAssembler:
    """Puts one response together. See `stream.Assembler`."""

    def __init__(self, provider: str, *, back: tuple[str, ...] = ()) -> None:
        """back: fields that the provider wants to be sent back, which are therefore kept as they came."""
        self.state = State.OPEN
        self._provider, self._back = provider, back
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._kept: dict[str, Any] = {}
        self._calls = CallFragments()
        self._finish = ""
        self._refused = False
        self._usage: dict[str, Any] = {}
        self._id = ""
        self._chunks = 0

    def event(self, data: dict[str, Any]) -> list[Delta]:
        """Take a chunk. Raises ModelError when it is an error."""
        if data.get("error") or data.get("object") == "error":
            raise stream_error(data, usage=self._counted())
        self._chunks += 1
        self._id = self._id or wire.string(data.get("id"))
        self._usage |= _present(data.get("usage"))
        deltas: list[Delta] = []
        for choice in wire.listed(data.get("choices"))[:1]:
            if not isinstance(choice, dict) or choice.get("index") not in (0, None):
                continue
            self._usage |= _present(choice.get("usage"))
            if choice.get("error"):  # OpenRouter, beside the finish reason "error"
                raise stream_error(choice, usage=self._counted())
            deltas = self._delta(wire.mapping(choice.get("delta") or choice.get("message")))
            if finish := wire.as_text(choice.get("finish_reason")):
                self._finish = finish.lower()
                self.state = State.CLOSING
        return deltas

    def end_marker(self) -> None:
        """Take `[DONE]`."""
        self.state = State.DONE

    def body(self, data: dict[str, Any]) -> list[Delta]:
        """Take a whole response."""
        deltas = self.event(data)
        if not wire.listed(data.get("choices")):
            raise ModelError(ErrorKind.PROTOCOL, "the response is JSON but has no choices")
        self.state = State.DONE
        return deltas

    def result(self) -> ModelResponse:
        """The response. Raises ModelError when it did not end properly or contradicts itself."""
        usage = self._counted()
        if self.state is State.OPEN:
            error = ended_early()
            error.usage = usage
            raise error
        stop = FINISH.get(self._finish) if self._finish else StopReason.END
        if stop is None or isinstance(stop, ErrorKind):
            raise ended_oddly("reason", self._finish, usage, stop or ErrorKind.PROTOCOL)
        stop = self._agreed(stop, usage)
        return ModelResponse(self._output(), stop, usage, self._id, self._provider)

    def _agreed(self, stop: StopReason, usage: Usage) -> StopReason:
        """The stop reason, where it and the content contradict each other."""
        slots, text = self._calls.slots, "".join(self._text)
        if self._refused and stop is StopReason.END and not slots:
            return StopReason.REFUSAL
        if slots and stop in (StopReason.END, StopReason.TOOL_CALLS):
            # Every call cut in the middle: the output ran into a limit that the server does not admit.
            return StopReason.LENGTH if all(wire.is_cut(slot.arguments) for slot in slots) else StopReason.TOOL_CALLS
        if slots or stop is StopReason.LENGTH or stop is StopReason.REFUSAL:
            return stop
        if stop is StopReason.TOOL_CALLS and not text.strip():
            raise ModelError(ErrorKind.PROTOCOL, "the response announces tool calls but has none", usage=usage)
        if not self._finish and not text.strip():
            raise ModelError(ErrorKind.PROTOCOL, "the response ended without any content", usage=usage)
        return StopReason.END

    def _output(self) -> tuple[OutputItem, ...]:
        output: list[OutputItem] = []
        thoughts, kept = "".join(self._thoughts), self._kept
        if thoughts or kept:
            output.append(Reasoning(thoughts, self._provider, wire.dumped(kept) if kept else ""))
        if text := "".join(self._text):
            output.append(Text(text))
        for slot in self._calls.slots:
            opaque = wire.dumped(slot.extra) if slot.extra else ""
            output.append(
                ToolCall(slot.name, slot.arguments, provider_id=slot.id, provider=self._provider, opaque=opaque)
            )
        return tuple(output)

    # --- one delta

    def _delta(self, delta: dict[str, Any]) -> list[Delta]:
        deltas: list[Delta] = []
        for name in _THOUGHTS:
            if thought := wire.string(delta.get(name)):
                self._think(thought, deltas)
                if name in self._back:
                    self._kept[name] = self._kept.get(name, "") + thought
                break
        if details := wire.listed(delta.get("reasoning_details")):
            self._details(details)
        self._content(delta.get("content"), deltas)
        if refusal := wire.string(delta.get("refusal")):
            self._refused = True
            self._say(refusal, deltas)
        calls = wire.listed(delta.get("tool_calls"))
        if not calls and isinstance(delta.get("function_call"), dict):  # the form before tool calls
            calls = [{"index": 0, "function": delta["function_call"]}]
        deltas.extend(self._calls.take(calls))
        return deltas

    def _content(self, content: Any, deltas: list[Delta]) -> None:
        if isinstance(content, str):
            self._say(content, deltas)
            return
        for part in wire.listed(content):
            if isinstance(part, str):
                self._say(part, deltas)
            elif isinstance(part, dict) and part.get("type") == "thinking":
                thinking = part.get("thinking")
                pieces = (
                    [thinking]
                    if isinstance(thinking, str)
                    else [wire.string(wire.mapping(piece).get("text")) for piece in wire.listed(thinking)]
                )
                self._think("".join(pieces), deltas)
                if "content" in self._back:
                    self._keep_thinking(part, "".join(pieces))
            elif isinstance(part, dict):
                self._say(wire.string(part.get("text")), deltas)

    def _say(self, text: str, deltas: list[Delta]) -> None:
        if text:
            self._text.append(text)
            deltas.append(TextDelta(text))

    def _think(self, thought: str, deltas: list[Delta]) -> None:
        if thought:
            self._thoughts.append(thought)
            deltas.append(ReasoningDelta(thought))

    def _keep_thinking(self, part: dict[str, Any], text: str) -> None:
        """Mistral's thinking part in its own shape, the fragments of the stream joined to one."""
        kept = self._kept.setdefault("content", [{"type": "thinking", "thinking": [{"type": "text", "text": ""}]}])
        kept[0]["thinking"][0]["text"] += text
        kept[0] |= {key: value for key, value in part.items() if key not in ("type", "thinking")}

    def _details(self, details: list[Any]) -> None:
        """OpenRouter's details: fragments of one detail follow each other and are joined, everything else is kept."""
        if "reasoning_details" not in self._back:
            return
        kept: list[dict[str, Any]] = self._kept.setdefault("reasoning_details", [])
        for detail in details:
            if not isinstance(detail, dict):
                continue
            last = kept[-1] if kept else {}
            if last and (last.get("type"), last.get("index")) == (detail.get("type"), detail.get("index")):
                for key, value in detail.items():
                    if key in ("text", "summary", "data") and isinstance(value, str):
                        last[key] = wire.string(last.get(key)) + value
                    elif value is not None:
                        last[key] = value
            else:
                kept.append(dict(detail))

    def _counted(self) -> Usage:
        """Counts in a stream are running totals: the last one of each field is the right one."""
        usage = self._usage
        read = wire.mapping(usage.get("prompt_tokens_details"))
        made = wire.mapping(usage.get("completion_tokens_details"))
        cached = wire.count(read.get("cached_tokens"))
        return Usage(
            input=wire.count(usage.get("prompt_tokens")),
            cached=cached if cached is not None else wire.count(usage.get("prompt_cache_hit_tokens")),
            cache_write=wire.count(read.get("cache_write_tokens")),
            output=wire.count(usage.get("completion_tokens")),
            reasoning=wire.count(made.get("reasoning_tokens")),
        )


def _present(usage: Any) -> dict[str, Any]:
    return {key: value for key, value in wire.mapping(usage).items() if value is not None}
