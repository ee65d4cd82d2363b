"""What providers send, and requests as the harness makes them: the raw material of the tests in this folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from harness.llm.chat_response import ChatAssembler
from harness.llm.messages_response import MessagesAssembler
from harness.llm.model import (
    AssistantItem,
    Delta,
    ModelRequest,
    ModelResponse,
    ReasoningDelta,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResultItem,
    ToolSchema,
    UserItem,
)
from harness.llm.responses_response import ResponsesAssembler
from harness.llm.stream import Assembler, BodyReader

DONE = b"data: [DONE]\n\n"

ASSEMBLERS: dict[str, Callable[[], Assembler]] = {
    "chat": lambda: ChatAssembler("openai-chat"),
    "responses": lambda: ResponsesAssembler("openai"),
    "messages": lambda: MessagesAssembler("anthropic"),
}


def chat(delta: dict[str, Any], fin: str | None = None, **top: Any) -> bytes:
    """One Chat Completions chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": fin}
    o = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **top}
    return b"data: " + json.dumps(o, ensure_ascii=False).encode() + b"\n\n"


def call(index: int | None, identity: str | None, command: str, **more: Any) -> bytes:
    """A chunk with one whole call."""
    c: dict[str, Any] = {
        "type": "function",
        "function": {"name": "bash", "arguments": json.dumps({"command": command})},
    }
    c |= {"id": identity} if identity is not None else {}
    c |= {"index": index} if index is not None else {}
    return chat({"tool_calls": [{**c, **more}]})


def ev(o: dict[str, Any]) -> bytes:
    """One Messages or Responses event."""
    return b"event: " + o["type"].encode() + b"\ndata: " + json.dumps(o, ensure_ascii=False).encode() + b"\n\n"


# --- whole answers in each protocol: a text, then optionally calls


def wanted(command: str) -> tuple[str, str]:
    """The tool and the arguments of a call: `bash`, or `view_image` for what begins with "image:"."""
    if command.startswith("image:"):
        return "view_image", json.dumps({"path": command.removeprefix("image:")})
    return "bash", json.dumps({"command": command})


def chat_answer(text: str, *commands: str, usage: dict[str, Any] | None = None, fin: str | None = None) -> bytes:
    out = chat({"role": "assistant", "content": ""})
    out += b"".join(chat({"content": piece}) for piece in pieces(text))
    for index, command in enumerate(commands):
        name, arguments = wanted(command)
        head = {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        out += chat({"tool_calls": [head]})
        for piece in pieces(arguments):
            out += chat({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    out += chat({}, fin or ("tool_calls" if commands else "stop"))
    counts = usage or {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    o = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": counts}
    return out + b"data: " + json.dumps(o).encode() + b"\n\n" + DONE


def responses_answer(text: str, *commands: str, usage: dict[str, Any] | None = None) -> bytes:
    sequence = iter(range(1000))
    counts = usage or {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 7,
    }
    base = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "parallel_tool_calls": True,
        "tools": [],
        "tool_choice": "auto",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
    }

    def event(kind: str, **fields: Any) -> bytes:
        return ev({"type": kind, "sequence_number": next(sequence), **fields})

    output: list[dict[str, Any]] = []
    out = event("response.created", response={**base, "status": "in_progress", "output": []})
    if text:
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        out += event("response.output_item.added", output_index=0, item=message)
        part = {"type": "output_text", "text": "", "annotations": []}
        where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        out += event("response.content_part.added", **where, part=part)
        for piece in pieces(text):
            out += event("response.output_text.delta", **where, delta=piece, logprobs=[])
        out += event("response.output_text.done", **where, text=text, logprobs=[])
        message = {**message, "status": "completed", "content": [{**part, "text": text}]}
        out += event("response.output_item.done", output_index=0, item=message)
        output.append(message)
    for number, command in enumerate(commands):
        index, (name, arguments) = len(output), wanted(command)
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number}", "name": name}
        out += event(
            "response.output_item.added", output_index=index, item={**item, "arguments": "", "status": "in_progress"}
        )
        for piece in pieces(arguments):
            out += event("response.function_call_arguments.delta", item_id=item["id"], output_index=index, delta=piece)
        out += event(
            "response.function_call_arguments.done",
            item_id=item["id"],
            output_index=index,
            arguments=arguments,
            name=name,
        )
        item |= {"arguments": arguments, "status": "completed"}
        out += event("response.output_item.done", output_index=index, item=item)
        output.append(item)
    return out + event(
        "response.completed", response={**base, "status": "completed", "output": output, "usage": counts}
    )


def messages_answer(text: str, *commands: str, usage: dict[str, Any] | None = None, stop: str = "") -> bytes:
    start = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 1, **(usage or {})},
    }
    out = ev({"type": "message_start", "message": start})
    index = 0
    if text:
        out += ev({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        for piece in pieces(text):
            out += ev({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
        out += ev({"type": "content_block_stop", "index": 0})
        index = 1
    for number, command in enumerate(commands):
        name, arguments = wanted(command)
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}
        out += ev({"type": "content_block_start", "index": index, "content_block": block})
        for piece in pieces(arguments):
            delta = {"type": "input_json_delta", "partial_json": piece}
            out += ev({"type": "content_block_delta", "index": index, "delta": delta})
        out += ev({"type": "content_block_stop", "index": index})
        index += 1
    reason = stop or ("tool_use" if commands else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    out += ev({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 4}})
    return out + ev({"type": "message_stop"})


ANSWERS: dict[str, Callable[..., bytes]] = {
    "chat": chat_answer,
    "responses": responses_answer,
    "messages": messages_answer,
}


# One whole body in each protocol, with a text and a call.
WHOLE: dict[str, dict[str, Any]] = {
    "chat": {
        "id": "x",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "hi",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}},
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    },
    "responses": {
        "id": "x",
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "a", "name": "bash", "arguments": '{"command":"ls"}'},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 4},
    },
    "messages": {
        "id": "x",
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    },
}


def start(text: str = "half") -> bytes:
    """The beginning of a Messages stream."""
    message = {"id": "m", "usage": {"input_tokens": 25, "output_tokens": 1}}
    return (
        ev({"type": "message_start", "message": message})
        + ev({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        + ev({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
        + ev({"type": "content_block_stop", "index": 0})
    )


def stopped(reason: str) -> bytes:
    """The end of a Messages stream."""
    return ev({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}}) + ev(
        {"type": "message_stop"}
    )


def pieces(text: str, size: int = 5) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


# --- reading


def read(protocol: str, *chunks: bytes, assembler: Assembler | None = None) -> tuple[ModelResponse, list[Delta]]:
    """The response that these chunks make, and the deltas. Raises the ModelError that they make instead."""
    deltas: list[Delta] = []
    reader = BodyReader(assembler or ASSEMBLERS[protocol](), deltas.append)
    for chunk in chunks:
        reader.feed(chunk)
    reader.end()
    return reader.result(), deltas


def joined(deltas: list[Delta]) -> tuple[str, str, dict[int, tuple[str, str]]]:
    """Deltas put together: text, reasoning, and name and arguments of each call."""
    text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    thought = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
    calls: dict[int, tuple[str, str]] = {}
    for d in deltas:
        if isinstance(d, ToolCallDelta):
            name, arguments = calls.get(d.index, ("", ""))
            calls[d.index] = (name + d.name, arguments + d.arguments)
    return text, thought, calls


def calls_of(response: ModelResponse) -> list[tuple[str, str]]:
    return [(item.name, item.arguments) for item in response.output if isinstance(item, ToolCall)]


def text_of(response: ModelResponse) -> str:
    return "".join(item.text for item in response.output if isinstance(item, Text))


# --- requests

BASH = ToolSchema(
    "bash",
    "Run a command.",
    {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "wake": {"type": "string", "enum": ["each", "batch", "quiet"]},
        },
        "required": ["command"],
    },
)


def asking(*items: Any, tools: tuple[ToolSchema, ...] = (BASH,), **fields: Any) -> ModelRequest:
    return ModelRequest(instructions="Be brief.", tools=tools, items=list(items), **fields)


def user(text: str) -> UserItem:
    return UserItem((Text(text),))


def said(text: str = "", *calls: tuple[str, str], provider: str = "") -> AssistantItem:
    """calls: (call id, raw arguments) of bash calls."""
    output: list[Any] = [Text(text)] if text else []
    output += [ToolCall("bash", arguments, call_id=call_id, provider=provider) for call_id, arguments in calls]
    return AssistantItem(tuple(output), provider)


def result(call_id: str, text: str, *, failed: bool = False) -> ToolResultItem:
    return ToolResultItem(call_id, "bash", (Text(text),), failed)
