"""What a response costs and what the model thought on the way, in all three protocols."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.llm.chat_response import ChatAssembler
from harness.llm.model import Reasoning, Text, Usage
from tests.llm.shapes import ASSEMBLERS, DONE, WHOLE, chat, ev, joined, read, start, stopped

PROTOCOLS = list(ASSEMBLERS)

# --- 35, 36: token accounting

USAGE = {
    "messages": {
        "input_tokens": 10,
        "cache_read_input_tokens": 1000,
        "cache_creation_input_tokens": 200,
        "output_tokens": 5,
    },
    "chat": {"prompt_tokens": 1210, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1000}},
    "responses": {"input_tokens": 1210, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 1000}},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_35_input_means_the_same_over_all_protocols(protocol: str) -> None:
    written = 200 if protocol == "messages" else None
    body = json.dumps({**WHOLE[protocol], "usage": USAGE[protocol]}).encode()
    response, _ = read(protocol, body)
    assert response.usage == Usage(input=1210, cached=1000, cache_write=written, output=5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": "x", "input_tokens": -1, "output_tokens": True}, []])
def test_unknown_counts_are_not_zero(protocol: str, usage: Any) -> None:
    response, _ = read(protocol, json.dumps({**WHOLE[protocol], "usage": usage}).encode())
    assert response.usage == Usage()


def test_36_running_totals_are_not_added_up() -> None:
    def delta(tokens: int, **stop: str) -> bytes:
        return ev({"type": "message_delta", "delta": stop, "usage": {"output_tokens": tokens}})

    body = start() + delta(7) + delta(15, stop_reason="end_turn") + ev({"type": "message_stop"})
    assert read("messages", body)[0].usage == Usage(input=25, output=15)
    body = b"".join(chat({"content": "x"}, usage={"completion_tokens": n}) for n in range(1, 101))
    assert read("chat", body + chat({}, "stop") + DONE)[0].usage == Usage(output=100)


# --- reasoning


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_text_is_found_under_its_several_names(name: str) -> None:
    body = chat({name: "let me "}) + chat({name: "see"}) + chat({"content": "4"}) + chat({}, "stop") + DONE
    response, deltas = read("chat", body)
    assert response.output == (Reasoning("let me see", "openai-chat"), Text("4"))
    assert joined(deltas)[:2] == ("4", "let me see")


def test_reasoning_under_two_names_at_once_is_not_doubled() -> None:
    body = chat({"reasoning": "hm", "reasoning_content": "hm"}) + chat({"content": "4"}) + chat({}, "stop") + DONE
    assert read("chat", body)[0].output[0] == Reasoning("hm", "openai-chat")


def test_reasoning_details_are_joined_and_kept_as_they_came() -> None:
    def detail(**fields: Any) -> bytes:
        return chat({"reasoning_details": [{"type": "reasoning.text", "index": 0, "format": "x", **fields}]})

    secret = {"type": "reasoning.encrypted", "index": 1, "data": "zzz"}
    body = (
        detail(text="a")
        + detail(text="b", signature="s")
        + chat({"reasoning_details": [secret]})
        + chat({"content": "4"}, "stop")
        + DONE
    )
    assembler = ChatAssembler("openrouter", back=("reasoning_details",))
    (item, _text) = read("chat", body, assembler=assembler)[0].output
    assert isinstance(item, Reasoning)
    joined_text = {"type": "reasoning.text", "index": 0, "format": "x", "text": "ab", "signature": "s"}
    assert json.loads(item.opaque) == {"reasoning_details": [joined_text, secret]}


def test_thinking_in_parts_of_the_content_is_reasoning() -> None:
    def thinking(text: str) -> dict[str, Any]:
        return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}

    body = (
        chat({"content": [thinking("a")]})
        + chat({"content": [thinking("b"), {"type": "text", "text": "4"}]})
        + chat({}, "stop")
        + DONE
    )
    item, text = read("chat", body, assembler=ChatAssembler("mistral", back=("content",)))[0].output
    assert isinstance(item, Reasoning)
    assert (item.text, text) == ("ab", Text("4"))
    assert json.loads(item.opaque) == {"content": [thinking("ab")]}


def test_signed_thinking_is_kept_with_its_signature_and_in_its_place() -> None:
    body = (
        ev({"type": "message_start", "message": {"id": "m"}})
        + ev(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": "", "signature": ""},
            }
        )
        + ev({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}})
        + ev({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig=="}})
        + ev({"type": "content_block_stop", "index": 0})
        + ev({"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "xyz"}})
        + ev({"type": "content_block_stop", "index": 1})
        + ev({"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": "4"}})
        + stopped("end_turn")
    )
    first, second, text = read("messages", body)[0].output
    assert isinstance(first, Reasoning)
    assert isinstance(second, Reasoning)
    assert json.loads(first.opaque) == {"type": "thinking", "thinking": "hm", "signature": "sig=="}
    assert json.loads(second.opaque) == {"type": "redacted_thinking", "data": "xyz"}
    assert text == Text("4")


def test_encrypted_reasoning_is_kept_as_it_came_in_the_final_event() -> None:
    kept = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}],
        "encrypted_content": "xyz",
    }
    early = {**kept, "encrypted_content": "x"}
    message = {"type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "4"}]}
    body = (
        ev({"type": "response.output_item.added", "output_index": 0, "item": early})
        + ev({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"})
        + ev({"type": "response.output_item.done", "output_index": 0, "item": kept})
        + ev({"type": "response.completed", "response": {"status": "completed", "output": [kept, message]}})
    )
    response, deltas = read("responses", body)
    item, phase, text = response.output
    assert isinstance(item, Reasoning)
    assert isinstance(phase, Reasoning)
    assert (json.loads(item.opaque), item.text, joined(deltas)[1]) == (kept, "hm", "hm")
    assert json.loads(phase.opaque) == {"type": "message_phase", "phase": "commentary"}
    assert text == Text("4")
