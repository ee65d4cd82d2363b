"""OpenAI's Responses API: a request to its JSON body.  Pure.

Belongs here: which input item each part of the history becomes.
Must not know: HTTP, streaming, responses (responses_response.py).

Source: OpenAI's API reference, "Create a model response", and its guides on reasoning and on conversation state.
Nothing is stored there (`store` false): each request sends the whole input, and reasoning items go back encrypted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.llm import wire
from harness.llm.memo import Memo
from harness.llm.model import (
    AssistantItem,
    Item,
    ModelRequest,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)

PROVIDER: Final = "openai"
PHASE: Final = "message_phase"
"""Type of the opaque item that stands before a text and holds the `phase` of its message, which is to be sent back."""
LEAST_OUTPUT: Final = 16
"""The API refuses a smaller `max_output_tokens`."""

ENCRYPTED: Final = "reasoning.encrypted_content"


Written = tuple[dict[str, Any], ...]
"""The input items of one item of the history."""


def encode(
    request: ModelRequest,
    model: str,
    *,
    stream: bool = True,
    encrypted: bool = True,
    memo: Memo[Written | None] | None = None,
) -> dict[str, Any]:
    """The body of a request.

    encrypted: whether to ask for reasoning that can be sent back. memo: that of this model's earlier requests.
    """
    settings = request.settings
    body: dict[str, Any] = {"model": model, "store": False, "input": input_items(request, memo)}
    if encrypted:
        body["include"] = [ENCRYPTED]
    if request.instructions.strip():
        body["instructions"] = wire.clean(request.instructions)
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": wire.clean(tool.description),
                "parameters": tool.parameters,
                "strict": False,  # the default is true, and refuses schemas with optional arguments
            }
            for tool in request.tools
        ]
        if not request.allow_tools:
            body["tool_choice"] = "none"
    if stream:
        body["stream"] = True
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = max(LEAST_OUTPUT, settings.max_output_tokens)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.reasoning_effort is not None:
        body["reasoning"] = {"effort": settings.reasoning_effort}
    if settings.cache_key is not None:
        body["prompt_cache_key"] = settings.cache_key
    return body


def input_items(request: ModelRequest, memo: Memo[Written | None] | None = None) -> list[dict[str, Any]]:
    """The history as input items. Each call is followed by its one output; the API does not mind what is between."""
    out: list[dict[str, Any]] = []
    made = (memo or Memo()).made(request, _remembered)
    for item, written in zip(request.items, made, strict=True):
        out.extend(_written(item, request.blobs) if written is None else written)
    return out


def _remembered(item: Item) -> Written | None:
    return None if wire.has_image(item) else _written(item, {})


def _written(item: Item, blobs: Mapping[str, bytes]) -> Written:
    match item:
        case UserItem():
            content = _content(item.parts, blobs) or [{"type": "input_text", "text": wire.EMPTY}]
            return ({"type": "message", "role": "user", "content": content},)
        case AssistantItem():
            return _assistant(item)
        case ToolResultItem():
            content = _content(item.parts, blobs)
            plain = all(part["type"] == "input_text" for part in content)
            text = "\n\n".join(part["text"] for part in content) if plain else ""
            output = (text or "(no output)") if plain else content
            return ({"type": "function_call_output", "call_id": item.call_id, "output": output},)


def _content(parts: Sequence[Part], blobs: Mapping[str, bytes]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text.strip():
                content.append({"type": "input_text", "text": wire.clean(part.text)})
        elif (url := wire.data_url(part, blobs)) is not None:
            content.append({"type": "input_image", "image_url": url, "detail": "auto"})
        else:
            content.append({"type": "input_text", "text": wire.MISSING_IMAGE})
    return content


def _assistant(item: AssistantItem) -> Written:
    """A response's items in their order. Reasoning is left out where nothing follows it: the API refuses it alone."""
    out: list[dict[str, Any]] = []
    phase: dict[str, Any] = {}
    for part in item.output:
        match part:
            case Text():
                if part.text.strip():
                    out.append({"type": "message", "role": "assistant", "content": wire.clean(part.text), **phase})
                phase = {}
            case Reasoning():
                kept = wire.opaque_of(part, PROVIDER)
                if kept.get("type") == PHASE:
                    phase = {"phase": kept.get("phase")}
                elif _is_whole(kept):
                    out.append(kept)
            case ToolCall():
                arguments = wire.dumped(wire.safe_arguments(part.arguments))
                call = {"type": "function_call", "call_id": part.call_id, "name": wire.safe_name(part.name)}
                out.append({**call, "arguments": arguments})
    while out and out[-1].get("type") == "reasoning":
        out.pop()
    return tuple(out)


def _is_whole(item: dict[str, Any]) -> bool:
    """Whether the API takes the item back. Nothing is stored there: reasoning that is not all here cannot be found."""
    kind = item.get("type")
    if kind == "reasoning":
        return bool(wire.string(item.get("encrypted_content")) or wire.listed(item.get("content")))
    return isinstance(kind, str) and bool(kind)
