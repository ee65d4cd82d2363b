"""Whatever a server answers is a response that every part of us can take, or a ModelError. Never anything else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.events import TurnFailed, TurnFinished
from harness.llm import chat_wire, jsontext, messages_wire, responses_wire
from harness.llm.chat_response import ChatAssembler
from harness.llm.errors import http_error
from harness.llm.messages_response import MessagesAssembler
from harness.llm.model import (
    Delta,
    ErrorKind,
    Item,
    ModelError,
    ModelResponse,
    OutputItem,
    Text,
    ToolCall,
    ToolResultItem,
    Usage,
)
from harness.llm.providers import PROVIDERS
from harness.llm.responses_response import ResponsesAssembler
from harness.llm.stream import Assembler
from harness.transcript import spoken
from tests.llm.mutations import BODIES, DEEP, STREAMS, as_stream, broken
from tests.llm.shapes import asking, calls_of, chat, ev, joined, read, start, stopped, text_of, user
from tests.llm.validators import check_chat, check_messages, check_responses

BACK = ("reasoning_content", "reasoning_details", "content")
ROW = msgspec.structs.replace(PROVIDERS["openrouter"], reasoning_back=BACK)


def assembler(protocol: str) -> Assembler:
    match protocol:
        case "chat":
            return ChatAssembler("openrouter", back=BACK)
        case "responses":
            return ResponsesAssembler("openai")
        case _:
            return MessagesAssembler("anthropic")


def is_sound(protocol: str, *chunks: bytes) -> ModelResponse | ModelError:
    """Read it, and try everything with what comes out that the harness does with it."""
    try:
        response, deltas = read(protocol, *chunks, assembler=assembler(protocol))
    except ModelError as error:
        failed = TurnFailed("t1", error.kind, error.message, lost=error.usage)
        assert msgspec.json.decode(msgspec.json.encode(failed), type=TurnFailed) == failed
        assert len(error.message) < 2000
        return error
    assert msgspec.json.decode(msgspec.json.encode(response), type=ModelResponse) == response
    for delta in deltas:
        assert msgspec.json.decode(msgspec.json.encode(delta), type=Delta) == delta
    numbered = numbered_calls(response.output)
    finished = TurnFinished("t1", numbered, response.stop, response.usage, response.response_id, response.provider)
    assert msgspec.json.decode(msgspec.json.encode(finished), type=TurnFinished) == finished
    goes_back(protocol, numbered, response.provider)
    return response


def numbered_calls(output: tuple[OutputItem, ...]) -> tuple[OutputItem, ...]:
    return tuple(
        msgspec.structs.replace(item, call_id=f"c{number:08}") if isinstance(item, ToolCall) else item
        for number, item in enumerate(output)
    )


def goes_back(protocol: str, output: tuple[OutputItem, ...], provider: str) -> None:
    """The next request, with this response in it, is one that the provider takes."""
    said = spoken(output, provider)
    items: list[Item] = [user("a"), *([said] if said else [])]
    items += [ToolResultItem(i.call_id, i.name, (Text("ok"),)) for i in output if isinstance(i, ToolCall)]
    request = asking(*items, user("b"))
    match protocol:
        case "chat":
            check_chat(sent(chat_wire.encode(request, chat_wire.Encoding(ROW, "m"))))
        case "responses":
            sent(responses_wire.encode(request, "m"))
        case _:
            sent(messages_wire.encode(request, "m"))


def sent(body: dict[str, Any]) -> dict[str, Any]:
    """As it is on the wire, which any strict reader takes."""
    return msgspec.json.decode(jsontext.encoded(body), type=dict[str, Any])


@pytest.mark.parametrize("protocol", STREAMS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_stream_with_anything_wrong_in_it_is_a_response_or_a_model_error(protocol: str, data: st.DataObject) -> None:
    is_sound(protocol, as_stream(data.draw(broken(STREAMS[protocol]))))


@pytest.mark.parametrize("protocol", BODIES)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_body_with_anything_wrong_in_it_is_a_response_or_a_model_error(protocol: str, data: st.DataObject) -> None:
    is_sound(protocol, data.draw(broken(BODIES[protocol]))[0].encode())


@settings(max_examples=100, deadline=None)
@given(body=st.sampled_from(sorted(BODIES)).flatmap(lambda protocol: broken(BODIES[protocol])))
def test_an_error_body_with_anything_wrong_in_it_is_a_model_error(body: list[str]) -> None:
    error = http_error(400, body[0].encode())
    msgspec.json.encode(TurnFailed("t1", error.kind, error.message))


@pytest.mark.parametrize("protocol", STREAMS)
def test_the_samples_themselves_are_read(protocol: str) -> None:
    for nodes in STREAMS[protocol][:2]:
        assert isinstance(is_sound(protocol, as_stream([json.dumps(node) for node in nodes])), ModelResponse)


# --- what was found, and what is to be made of it


def a_call(arguments: Any) -> bytes:
    return json.dumps(
        {"choices": [{"message": {"tool_calls": [{"function": {"name": "bash", "arguments": arguments}}]}}]}
    ).encode()


@pytest.mark.parametrize(
    ("number", "read_as"),
    [("3.7", 3), ("-1", None), ("1e999", None), ("NaN", None), ('"12"', None), ("9" * 40, None), ("9" * 5000, None)],
)
def test_a_number_of_tokens_that_is_none_is_unknown(number: str, read_as: int | None) -> None:
    body = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":%s}}' % number.encode()
    if number == "9" * 5000:  # no reader takes it
        with pytest.raises(ModelError) as caught:
            read("chat", body)
        assert caught.value.kind is ErrorKind.PROTOCOL
        return
    assert read("chat", body)[0].usage == Usage(input=read_as)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"a": 1}, '{"a":1}'), ([1], "[1]"), (5, "5"), (False, "false"), (None, ""), ("{}", "{}")],
)
def test_arguments_that_are_no_text_are_shown_as_they_came(arguments: Any, text: str) -> None:
    assert calls_of(read("chat", a_call(arguments))[0]) == [("bash", text)]
    item = {"type": "function_call", "call_id": "a", "name": "bash", "arguments": arguments}
    assert calls_of(read("responses", json.dumps({"output": [item]}).encode())[0]) == [("bash", text)]
    block = {"type": "tool_use", "id": "a", "name": "bash", "input": arguments}
    body = {"content": [block], "stop_reason": "tool_use"}
    assert calls_of(read("messages", json.dumps(body).encode())[0]) == [("bash", text or "{}")]


@pytest.mark.parametrize("protocol", STREAMS)
def test_a_character_that_comes_in_two_halves_is_one(protocol: str) -> None:
    def two(first: str, second: str) -> bytes:
        pieces: list[Any]
        end: list[Any]
        match protocol:
            case "chat":
                pieces = [{"choices": [{"delta": {"content": text}}]} for text in (first, second)]
                end = [{"choices": [{"delta": {}, "finish_reason": "stop"}]}]
            case "responses":
                kind = "response.output_text.delta"
                pieces = [{"type": kind, "output_index": 0, "delta": text} for text in (first, second)]
                end = [{"type": "response.completed", "response": {"status": "completed"}}]
            case _:
                begin = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": first}}
                more = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": second}}
                pieces = [begin, more]
                end = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
        return as_stream([json.dumps(event) for event in (*pieces, *end)])

    response, deltas = read(protocol, two("a\ud83d", "\ude00b"))
    assert text_of(response) == joined(deltas)[0] == "a\U0001f600b"
    response, deltas = read(protocol, two("a\ud83d", "b"))
    assert text_of(response) == joined(deltas)[0] == "a\ufffdb"


@pytest.mark.parametrize("protocol", BODIES)
@pytest.mark.parametrize("field", ["error", "choices", "content", "output", "usage"])
def test_what_is_nested_without_end_is_not_read(protocol: str, field: str) -> None:
    for body in (
        b'{"%s":%s}' % (field.encode(), DEEP.encode()),
        b'data: {"%s":%s}\n\n' % (field.encode(), DEEP.encode()),
    ):
        with pytest.raises(ModelError):
            read(protocol, body)


def test_a_block_of_no_kind_is_not_kept_to_be_sent_back() -> None:
    body = (
        start("hi")
        + ev({"type": "content_block_start", "index": 1, "content_block": {"id": "x"}})
        + ev({"type": "content_block_start", "index": 2, "content_block": {"type": "thinking", "thinking": "hm"}})
        + stopped("end_turn")
    )
    response, _ = read("messages", body)
    body_next = messages_wire.encode(asking(user("a"), *[spoken(response.output, "anthropic")], user("b")), "m")
    check_messages(body_next)
    assert [block["type"] for block in body_next["messages"][1]["content"]] == ["text"]


def test_reasoning_that_cannot_be_read_back_is_not_sent_back() -> None:
    output = [{"type": "reasoning", "id": "rs", "summary": []}, {"type": "message", "content": [{"text": "hi"}]}]
    response, _ = read("responses", json.dumps({"output": output, "status": "completed"}).encode())
    body = responses_wire.encode(asking(user("a"), *[spoken(response.output, "openai")], user("b")), "m")
    check_responses(body)
    assert [item["type"] for item in body["input"]] == ["message"] * 3


def test_a_finish_reason_that_is_no_text_is_no_success() -> None:
    body = chat({"content": "half"}) + chat({}, 5) + b"data: [DONE]\n\n"  # type: ignore[arg-type]  # the wrong type on purpose
    with pytest.raises(ModelError, match="reason '5'") as caught:
        read("chat", body)
    assert caught.value.kind is ErrorKind.PROTOCOL
