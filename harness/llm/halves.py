"""What came in halves: characters are joined or replaced, and calls that a filter broke off are dropped.  Pure.

Belongs here: making deltas and responses fit for every encoder and for the log. A server that escapes JSON in ASCII
writes an emoji as two halves, and one that cuts its pieces anywhere cuts between them.
Must not know: any protocol.
"""

from __future__ import annotations

import msgspec

from harness.llm.jsontext import clean
from harness.llm.model import (
    AttemptDropped,
    Delta,
    Emit,
    ModelResponse,
    OutputItem,
    Reasoning,
    StopReason,
    Text,
    ToolCall,
    ToolCallDelta,
)


class Halves:
    """Passes deltas on to `emit`, keeping back a first half until the next piece of the same text."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._kept: dict[tuple[type, int], str] = {}

    def __call__(self, delta: Delta) -> None:
        match delta:
            case AttemptDropped():
                self._emit(delta)
            case ToolCallDelta():
                arguments = self._joined((ToolCallDelta, delta.index), delta.arguments)
                if arguments is delta.arguments and delta.name.isascii():
                    self._emit(delta)
                else:
                    self._emit(ToolCallDelta(delta.index, clean(delta.name), arguments))
            case _:
                text = self._joined((type(delta), 0), delta.text)
                self._emit(delta if text is delta.text else type(delta)(text))

    def _joined(self, place: tuple[type, int], text: str) -> str:
        text = self._kept.pop(place, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._kept[place], text = text[-1], text[:-1]
        return clean(text)


def whole(response: ModelResponse) -> ModelResponse:
    """The response with text that every encoder takes, and without the calls of one that was broken off as refused."""
    refused = response.stop is StopReason.REFUSAL
    output = tuple(_whole(item) for item in response.output if not (refused and isinstance(item, ToolCall)))
    return msgspec.structs.replace(response, output=output, response_id=clean(response.response_id))


def _whole(item: OutputItem) -> OutputItem:
    match item:
        case Text():
            return Text(clean(item.text))
        case Reasoning():
            return Reasoning(clean(item.text), item.provider, clean(item.opaque))
        case ToolCall():
            return msgspec.structs.replace(
                item,
                name=clean(item.name),
                arguments=clean(item.arguments),
                provider_id=clean(item.provider_id),
                opaque=clean(item.opaque),
            )
