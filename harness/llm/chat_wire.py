"""Chat Completions: a request to its JSON body.  Pure.

Belongs here: the message order that the protocol and its stricter servers want, and where each part of an item goes.
Must not know: HTTP, streaming, responses (chat_response.py).

Source: OpenAI's API reference, "Chat completions", and where a provider differs, the row in providers.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

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
from harness.llm.providers import Provider

BRIDGE: Final = "(continuing)"
"""What an assistant message says that stands between a tool's and a user's only because a server wants one there."""


class Encoding(msgspec.Struct, frozen=True):
    """How a request is written: the row's habits, less what this server has been found to refuse."""

    row: Provider
    model: str
    stream: bool = True
    stream_usage: bool = True
    bridge: bool = False


class Written(msgspec.Struct, frozen=True):
    """What is the same in every request of an item: its message, and the images that follow in a user's message."""

    message: dict[str, Any] | None = None
    images: tuple[Image, ...] = ()


def encode(request: ModelRequest, encoding: Encoding, memo: Memo[Written] | None = None) -> dict[str, Any]:
    """The body of a request. Every call is followed by its one result, and no text part is blank.

    memo: that of this model's earlier requests; its row must be the same.
    """
    row, settings = encoding.row, request.settings
    body: dict[str, Any] = {"model": encoding.model, "messages": messages(request, encoding, memo)}
    if request.tools and (request.allow_tools or row.tool_choice):
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": wire.clean(tool.description),
                    "parameters": tool.parameters,
                },
            }
            for tool in request.tools
        ]
        if not request.allow_tools:
            body["tool_choice"] = "none"
    if encoding.stream:
        body["stream"] = True
        if encoding.stream_usage:
            body["stream_options"] = {"include_usage": True}
    if settings.max_output_tokens is not None:
        body[row.max_tokens_field] = settings.max_output_tokens
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.reasoning_effort is not None and row.effort_field:
        effort = settings.reasoning_effort
        body[row.effort_field] = {"effort": effort} if row.effort_field == "reasoning" else effort
    if settings.cache_key is not None and row.cache_key:
        body["prompt_cache_key"] = settings.cache_key
    return body


def messages(request: ModelRequest, encoding: Encoding, memo: Memo[Written] | None = None) -> list[dict[str, Any]]:
    """The messages: neighbouring users' messages joined, since many chat templates want the roles to alternate."""
    out: list[dict[str, Any]] = []
    shown: list[Part] = []  # images of tool results, which wait until the last result of their response is written
    if request.instructions.strip():
        out.append({"role": "system", "content": wire.clean(request.instructions)})
    made = (memo or Memo()).made(request, lambda item: _written(item, encoding.row))
    for item, written in zip(request.items, made, strict=True):
        if not isinstance(item, ToolResultItem) and shown:
            _user(out, shown, request, encoding)
            shown = []
        match item:
            case UserItem():
                _user(out, item.parts, request, encoding)
            case AssistantItem():
                if written.message is not None:
                    out.append(written.message)
            case ToolResultItem():
                assert written.message is not None
                out.append(written.message)
                if written.images:
                    shown += [Text(f"Image from the result of call {item.call_id} ({item.tool}):"), *written.images]
    if shown:
        _user(out, shown, request, encoding)
    return out


def _written(item: Item, row: Provider) -> Written:
    match item:
        case UserItem():
            return Written()  # joined to its neighbours, and its images may come to hand later
        case AssistantItem():
            return Written(_assistant(item, row))
        case ToolResultItem():
            return Written(_tool(item), tuple(part for part in item.parts if isinstance(part, Image)))


def _user(out: list[dict[str, Any]], parts: Sequence[Part], request: ModelRequest, encoding: Encoding) -> None:
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text.strip():
                content.append({"type": "text", "text": wire.clean(part.text)})
        elif (url := wire.data_url(part, request.blobs)) is not None:
            content.append({"type": "image_url", "image_url": {"url": url}})
        else:
            content.append({"type": "text", "text": wire.MISSING_IMAGE})
    if not content:
        content = [{"type": "text", "text": wire.EMPTY}]
    before = out[-1] if out else {}
    if before.get("role") == "tool" and (encoding.bridge or not encoding.row.user_after_tool):
        out.append({"role": "assistant", "content": BRIDGE})
    if before.get("role") == "user":
        content = [*_as_parts(before["content"]), *content]
        out.pop()
    out.append({"role": "user", "content": _as_text(content)})


def _as_parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _as_text(content: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Plain text where there are no images: servers without image support take nothing else."""
    if all(part["type"] == "text" for part in content):
        return "\n\n".join(part["text"] for part in content)
    return content


def _assistant(item: AssistantItem, row: Provider) -> dict[str, Any] | None:
    text = "\n\n".join(wire.clean(part.text) for part in item.output if isinstance(part, Text) and part.text.strip())
    calls = [_call(part, row) for part in item.output if isinstance(part, ToolCall)]
    if not text and not calls:
        return None  # reasoning alone: no server takes a message without content
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = calls
    for part in item.output:
        if isinstance(part, Reasoning):
            for name, value in wire.opaque_of(part, row.name).items():
                if name not in row.reasoning_back:
                    continue
                if name == "content":  # thinking as parts of the content, in front of the text
                    rest = [{"type": "text", "text": text}] if text else []
                    message["content"] = [*wire.listed(value), *rest]
                else:
                    message[name] = value
    return message


def _call(call: ToolCall, row: Provider) -> dict[str, Any]:
    return {
        **wire.opaque_of(call, row.name),
        "id": call.call_id,
        "type": "function",
        "function": {"name": wire.safe_name(call.name), "arguments": wire.dumped(wire.safe_arguments(call.arguments))},
    }


def _tool(item: ToolResultItem) -> dict[str, Any]:
    """Tool messages take text only; images follow in a user's message."""
    text = "\n\n".join(wire.texts(item.parts))
    has_image = any(isinstance(part, Image) for part in item.parts)
    return {
        "role": "tool",
        "tool_call_id": item.call_id,
        "content": text or ("(the image follows)" if has_image else "(no output)"),
    }
