"""Anthropic's Messages API: a request to its JSON body.  Pure.

Belongs here: the order of messages and blocks that the API asks for, and where the cache breakpoints are.
Must not know: HTTP, streaming, responses (messages_response.py).

Source: Anthropic's API reference, "Create a Message", and its guides on tool use, extended thinking and prompt caching.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.llm import wire
from harness.llm.memo import Memo
from harness.llm.model import (
    AssistantItem,
    Image,
    Item,
    ModelRequest,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)

PROVIDER: Final = "anthropic"
MAX_TOKENS: Final = 32_000
"""Asked for when the caller sets no bound, since the API demands one."""
OPENING: Final = "(the conversation goes on)"
"""What a user's message says that stands first only because the API wants one there."""

_CACHE: Final = {"type": "ephemeral"}
_THINKING: Final[Mapping[str, tuple[str, ...]]] = {
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
"""The blocks that hold thinking, and the texts without which the API refuses them."""


Written = tuple[str, tuple[dict[str, Any], ...]]
"""The role and the blocks of one item of the history."""


def encode(
    request: ModelRequest,
    model: str,
    *,
    stream: bool = True,
    max_tokens: int = MAX_TOKENS,
    adaptive: bool = True,
    memo: Memo[Written | None] | None = None,
) -> dict[str, Any]:
    """The body of a request.

    memo: that of this model's earlier requests. max_tokens: the bound where the caller set none. adaptive: whether the
    model decides itself how long to think when an effort is set; older models take a budget instead.
    The request's temperature is left out: the API no longer takes one.
    """
    settings = request.settings
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": settings.max_output_tokens or max_tokens,
        "messages": messages(request, memo),
    }
    if request.instructions.strip():
        text = wire.clean(request.instructions)
        body["system"] = [{"type": "text", "text": text, "cache_control": _CACHE}]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": wire.clean(tool.description), "input_schema": tool.parameters}
            for tool in request.tools
        ]
        if not request.allow_tools:
            body["tool_choice"] = {"type": "none"}
    if stream:
        body["stream"] = True
    if settings.reasoning_effort is not None:
        body |= _thinking(settings.reasoning_effort, body["max_tokens"], adaptive=adaptive)
    return body


_BUDGETS: Final = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16384}


def _thinking(effort: str, max_tokens: int, *, adaptive: bool) -> dict[str, Any]:
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if adaptive:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low" if effort == "minimal" else effort}}
    budget = min(_BUDGETS.get(effort, 24576), max_tokens - 1)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= 1024 else {}


def messages(request: ModelRequest, memo: Memo[Written | None] | None = None) -> list[dict[str, Any]]:
    """The messages, users' and assistants' by turns, each result in the message right after its call."""
    out: list[dict[str, Any]] = []
    made = (memo or Memo()).made(request, _remembered)
    for item, written in zip(request.items, made, strict=True):
        role, blocks = written or _written(item, request.blobs)
        if not blocks:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"] += blocks
        else:  # a list of its own: blocks are shared with other requests, and the last one of a message may be replaced
            out.append({"role": role, "content": list(blocks)})
    if not out or out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    if out[-1]["role"] == "assistant":
        _trim(out[-1])
    _mark(out)
    return out


def _remembered(item: Item) -> Written | None:
    return None if wire.has_image(item) else _written(item, {})


def _written(item: Item, blobs: Mapping[str, bytes]) -> Written:
    match item:
        case UserItem():
            return "user", tuple(_content(item.parts, blobs))
        case AssistantItem():
            return "assistant", tuple(_assistant(item))
        case ToolResultItem():
            return "user", (_result(item, blobs),)


def _content(parts: Sequence[Part], blobs: Mapping[str, bytes]) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text.strip():
                content.append({"type": "text", "text": wire.clean(part.text)})
        elif (data := wire.base64_of(part, blobs)) is not None:
            source = {"type": "base64", "media_type": part.media_type, "data": data}
            content.append({"type": "image", "source": source})
        else:
            content.append({"type": "text", "text": wire.MISSING_IMAGE})
    return content


def _result(item: ToolResultItem, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    content = _content(item.parts, blobs) or [{"type": "text", "text": "(no output)"}]
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": item.call_id, "content": content}
    # The API takes nothing but text in an error.
    if item.failed and not any(isinstance(part, Image) for part in item.parts):
        block["is_error"] = True
    return block


def _assistant(item: AssistantItem) -> list[dict[str, Any]]:
    """A response's blocks in their order. Thinking at the end is left out: no message may end in it."""
    blocks: list[dict[str, Any]] = []
    for part in item.output:
        match part:
            case Text():
                if part.text.strip():
                    blocks.append({"type": "text", "text": wire.clean(part.text)})
            case Reasoning():
                if _is_whole(kept := wire.opaque_of(part, PROVIDER)):
                    blocks.append(kept)
            case ToolCall():
                name, arguments = wire.safe_name(part.name), wire.safe_arguments(part.arguments)
                blocks.append({"type": "tool_use", "id": part.call_id, "name": name, "input": arguments})
    while blocks and blocks[-1]["type"] in _THINKING:
        blocks.pop()
    return blocks


def _is_whole(block: dict[str, Any]) -> bool:
    """Whether the API takes the block back: one that lacks its kind or its signature would fail every later turn."""
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        return False
    return all(isinstance(block.get(field), str) for field in _THINKING.get(kind, ()))


def _trim(message: dict[str, Any]) -> None:
    """The API refuses a last message of the assistant that ends in white space."""
    last = message["content"][-1]
    if last["type"] == "text":
        message["content"][-1] = {**last, "text": last["text"].rstrip()}


def _mark(out: list[dict[str, Any]]) -> None:
    """Cache breakpoints on the last two users' messages: what was sent before is read, what is new is written.

    Two, because the API looks back 20 blocks at most for what an earlier request has written, and one step may have
    more results than that. With the one on the system text these are three of the four that it allows.
    """
    users = [message for message in out if message["role"] == "user"]
    for message in users[-2:]:
        message["content"][-1] = {**message["content"][-1], "cache_control": _CACHE}
