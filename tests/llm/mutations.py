"""Bodies and streams with something wrong at any place in them.

Belongs here: recorded responses of the three protocols, and changing one node of their JSON.
Must not know: what is right to do about it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from tests.llm.shapes import ANSWERS, WHOLE

DEEP = "[" * 10_000 + "]" * 10_000
ODD = (
    "null", "true", "false", "0", "1", "-1", "3.7", "1e999", "-1e400", "NaN", "Infinity", "9223372036854775808",
    "-9223372036854775809", "1" + "0" * 400, "1" + "0" * 5000, '""', '" "', '"12"', '"\\ud800"', '"a\\udc00b"',
    '"\\ud83d"', '"\\u0000"', '"banana"', '"error"', "[]", "{}", "[null]", "[[]]", '[{"text": 5}]', '{"a": 1}',
    '{"\\ud800": "\\ud800"}', '{"message": ["\\ud800"]}', '{"message": {"a": 1e999}, "code": "\\ud83d"}',
    '{"type": "image"}', DEEP, '{"a":' * 10_000 + "1" + "}" * 10_000, '{"a":' * 150 + "1" + "}" * 150,
    '"' + "x" * 100_000 + '"',
)  # fmt: skip
"""JSON values, as text, since some of them are none that a strict writer would write."""

_HOLE = "@hole@"

Node = list[dict[str, Any]]
"""A stream as its events, or a whole body as the only one."""


def events(stream: bytes) -> Node:
    """The JSON objects of an event stream."""
    lines = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: {")]
    return [json.loads(line) for line in lines]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every node."""
    yield path
    keyed = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in keyed:
        yield from places(inner, (*path, key))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    """Replace a node."""
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def drop(value: Any, path: tuple[Any, ...]) -> None:
    """Remove a node."""
    for key in path[:-1]:
        value = value[key]
    del value[path[-1]]


@st.composite
def broken(draw: st.DrawFn, samples: list[Node]) -> list[str]:
    """The JSON texts of a sample with up to three nodes replaced or removed, and events repeated, lost or swapped."""
    nodes = copy.deepcopy(draw(st.sampled_from(samples)))
    holes: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([path for path in places(nodes) if len(path) > 1] or [(0,)]))
        if draw(st.integers(0, 4)):
            put(nodes, path, f"{_HOLE}{len(holes)}")
            holes.append(draw(st.sampled_from(ODD)))
        elif path[1:]:
            drop(nodes, path)
    if len(nodes) > 1:
        order = draw(st.lists(st.sampled_from(range(len(nodes))), max_size=2))
        for index in order:
            nodes.insert(draw(st.integers(0, len(nodes))), nodes[index])
    texts = [json.dumps(node) for node in nodes]
    for number in reversed(range(len(holes))):  # the later ones first: "1" begins "10"
        texts = [text.replace(f'"{_HOLE}{number}"', holes[number]) for text in texts]
    return texts


def as_stream(texts: list[str]) -> bytes:
    """An event stream of these."""
    return b"".join(b"data: " + text.encode() + b"\n\n" for text in texts)


# --- recorded responses that use every field that is read

_CHAT: Node = [
    {"id": "c1", "choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "hm"}}]},
    {
        "choices": [
            {
                "delta": {
                    "reasoning": "hm",
                    "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"}],
                }
            }
        ]
    },
    {"choices": [{"delta": {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "m"}]}}]},
    {"choices": [{"delta": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, "b"]}}]},
    {"choices": [{"delta": {"content": [{"type": "text", "text": "4"}], "refusal": "no"}}]},
    {"choices": [{"delta": {"function_call": {"name": "bash", "arguments": "{}"}}}]},
    {
        "choices": [
            {
                "delta": {
                    "tool_calls": [
                        {"index": 1, "id": "a", "function": {"name": "bash", "arguments": '{"command":"l'}},
                        {"index": 2, "id": "a", "x": {"y": 1}, "function": {"name": "bash", "arguments": "{}"}},
                    ]
                }
            }
        ]
    },
    {"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"arguments": 's"}'}}]}}]},
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "prompt_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    },
]
_FAILED_CHAT: Node = [{"choices": [{"delta": {"content": "x"}}]}, {"error": {"message": "m", "code": 502, "type": "t"}}]

_MESSAGES: Node = [
    {
        "type": "message_start",
        "message": {"id": "m", "usage": {"input_tokens": 3, "cache_read_input_tokens": 1, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "x"}},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    },
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"q":"x"}'}},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "text", "text": "a"}},
    {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "b"}},
    {"type": "content_block_stop", "index": 3},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
]
_FAILED_MESSAGES: Node = [*_MESSAGES[:2], {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}]

_OUTPUT: Node = [
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "x"},
    {"type": "message", "phase": "commentary", "content": [{"type": "refusal", "refusal": "no"}]},
    {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "x"}},
]
_RESPONSES: Node = [
    {"type": "response.output_item.added", "output_index": 0, "item": {**_OUTPUT[0], "summary": []}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
    {"type": "response.output_item.done", "output_index": 0, "item": _OUTPUT[0]},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "message", "content": []}},
    {"type": "response.refusal.delta", "output_index": 1, "delta": "no"},
    {
        "type": "response.incomplete",
        "response": {
            "id": "r",
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": _OUTPUT,
            "usage": {"input_tokens": 3, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 1}},
        },
    },
]
_FAILED_RESPONSES: Node = [
    {
        "type": "response.failed",
        "response": {"error": {"code": "server_error", "message": "x"}, "usage": {"input_tokens": 3}},
    }
]

STREAMS: dict[str, list[Node]] = {
    "chat": [events(ANSWERS["chat"]("hi", "ls")), _CHAT, _FAILED_CHAT],
    "responses": [events(ANSWERS["responses"]("hi", "ls")), _RESPONSES, _FAILED_RESPONSES],
    "messages": [events(ANSWERS["messages"]("hi", "ls")), _MESSAGES, _FAILED_MESSAGES],
}
BODIES: dict[str, list[Node]] = {
    "chat": [[WHOLE["chat"]], [{"error": {"message": "m", "code": 429}}]],
    "responses": [[WHOLE["responses"]], [_RESPONSES[-1]["response"]], [_FAILED_RESPONSES[0]["response"]]],
    "messages": [[WHOLE["messages"]], [_FAILED_MESSAGES[-1]]],
}
