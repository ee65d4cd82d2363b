"""Bodies to responses, byte by byte, in all three protocols. Numbers in test ids are those of the fault list."""

from __future__ import annotations

import json

import pytest

from harness.llm.model import ErrorKind, ModelError, StopReason, Usage
from harness.llm.stream import BodyReader, State
from tests.llm.shapes import (
    ANSWERS,
    ASSEMBLERS,
    DONE,
    WHOLE,
    call,
    calls_of,
    chat,
    ev,
    joined,
    read,
    start,
    stopped,
    text_of,
)

PROTOCOLS = list(ASSEMBLERS)
ODD = "a\u2028b\u2029c\u0085d \u4f60\u597d \U0001f389 na\u00efve"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_22_the_same_response_wherever_the_bytes_are_cut(protocol: str, end: bytes) -> None:
    body = ANSWERS[protocol](ODD, "echo A", "echo B").replace(b"\n", end)
    whole, deltas = read(protocol, body)
    assert text_of(whole) == ODD
    assert calls_of(whole) == [("bash", '{"command": "echo A"}'), ("bash", '{"command": "echo B"}')]
    assert (whole.stop, whole.usage.output) == (StopReason.TOOL_CALLS, 4)
    expected = joined(deltas)
    assert expected == (ODD, "", dict(enumerate(calls_of(whole))))
    for cut in range(0, len(body) + 1, 3 if len(body) > 6000 else 1):
        response, deltas = read(protocol, body[:cut], body[cut:])
        assert (response, joined(deltas)) == (whole, expected), f"cut at byte {cut}"
    response, deltas = read(protocol, *(bytes([byte]) for byte in body))
    assert (response, joined(deltas)) == (whole, expected)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_21_separators_inside_a_data_line_end_no_line(protocol: str) -> None:
    response, deltas = read(protocol, ANSWERS[protocol]("a\u2028b\u2029c\u0085d"))
    assert text_of(response) == joined(deltas)[0] == "a\u2028b\u2029c\u0085d"


# --- 24: how a stream ends, and what is between


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_24a_the_last_event_needs_no_blank_line(protocol: str) -> None:
    body = ANSWERS[protocol]("hello")
    assert text_of(read(protocol, body.rstrip(b"\n"))[0]) == "hello"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_24b_nothing_is_awaited_after_the_final_event(protocol: str) -> None:
    reader = BodyReader(ASSEMBLERS[protocol](), lambda _delta: None)
    reader.feed(ANSWERS[protocol]("hello"))
    assert reader.state is State.DONE
    reader.feed(b"data: {broken\n\n")
    assert text_of(reader.result()) == "hello"


def test_24c_a_finish_reason_without_the_end_marker_is_an_end() -> None:
    assert text_of(read("chat", chat({"content": "hi"}) + chat({}, "stop"))[0]) == "hi"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_24d_no_cut_before_the_end_counts_as_success(protocol: str) -> None:
    body = ANSWERS[protocol]("hello", "echo A")
    announced = {
        "chat": b'"finish_reason": "tool_calls"',
        "responses": b"response.completed\n",
        "messages": b'"stop_reason": "tool_use"',
    }
    last = body.index(announced[protocol])
    for cut in range(0, last, 7):
        with pytest.raises(ModelError) as caught:
            read(protocol, body[:cut])
        assert caught.value.kind is ErrorKind.CONNECTION, f"cut at byte {cut}"


NOISE = {
    "24e": b": OPENROUTER PROCESSING\n\n",
    "24f": b"data: : keepalive\n\n",
    "24g": b'event: ping\ndata: {"type": "ping"}\n\n',
    "ping without a type": b"event: ping\ndata: {}\n\n",
    "28g": b'event: some.future_event\ndata: {"type":"some.future_event","x":1}\n\n',
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_noise_between_events_has_no_effect(protocol: str, noise: bytes) -> None:
    body = ANSWERS[protocol]("hello", "echo A")
    noisy = noise + body.replace(b"\n\n", b"\n\n" + noise)
    assert read(protocol, noisy) == read(protocol, body)


def test_only_work_counts_as_life() -> None:
    reader = BodyReader(ASSEMBLERS["messages"](), lambda _delta: None)
    reader.feed(NOISE["24e"] + NOISE["24f"] + NOISE["24g"] + NOISE["ping without a type"])
    assert reader.life == 0
    reader.feed(ANSWERS["messages"]("hello"))
    assert reader.life > 3


def test_24h_an_end_marker_alone_is_no_answer() -> None:
    with pytest.raises(ModelError, match="without any content") as caught:
        read("chat", DONE)
    assert caught.value.kind is ErrorKind.PROTOCOL


@pytest.mark.parametrize("protocol", ["responses", "messages"])
def test_an_end_marker_of_a_gateway_ends_nothing_in_the_other_protocols(protocol: str) -> None:
    with pytest.raises(ModelError):
        read(protocol, DONE)
    assert text_of(read(protocol, ANSWERS[protocol]("hello") + DONE)[0]) == "hello"


# --- bodies that are no stream


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("body", "kind", "match"),
    [
        (b"<!doctype html><html><body>Bad gateway</body></html>", ErrorKind.PROTOCOL, "neither .*Bad gateway"),
        (b"  \n<html>", ErrorKind.PROTOCOL, "neither"),
        (b"", ErrorKind.CONNECTION, "before the response began"),
        (b"\n\n", ErrorKind.CONNECTION, "before the response began"),
        (b'{"id": "x", "choi', ErrorKind.CONNECTION, "inside the response"),
        (b"[1, 2]", ErrorKind.PROTOCOL, "neither"),
        (b"{}", ErrorKind.PROTOCOL, "has no"),
        (b'{"error": {"message": "too busy", "type": "overloaded_error"}}', ErrorKind.OVERLOADED, "too busy"),
        (b"Internal Server Error", ErrorKind.CONNECTION, "ended before"),
        (b"data: {broken\n\n", ErrorKind.PROTOCOL, "not JSON"),
    ],
)
def test_a_body_that_is_no_answer_is_an_error(protocol: str, body: bytes, kind: ErrorKind, match: str) -> None:
    for chunks in ([body], [bytes([byte]) for byte in body]):
        with pytest.raises(ModelError, match=match) as caught:
            read(protocol, *chunks)
        assert caught.value.kind is kind


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_json_body_is_a_response_too(protocol: str) -> None:
    response, deltas = read(protocol, json.dumps(WHOLE[protocol]).encode())
    assert (text_of(response), calls_of(response)) == ("hi", [("bash", '{"command":"ls"}')])
    assert (response.stop, response.usage.input, response.usage.output) == (StopReason.TOOL_CALLS, 3, 4)
    assert joined(deltas) == ("hi", "", {0: ("bash", '{"command":"ls"}')})


# --- 28: failures inside a stream


FAILED = {"id": "r", "status": "failed", "error": {"code": "server_error", "message": "x"}, "usage": None}
ERRORS = {
    "28a": (
        "messages",
        start() + ev({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        ErrorKind.OVERLOADED,
        "Overloaded",
    ),
    "28b": (
        "chat",
        chat({"content": "half"}) + b'data: {"error":{"message":"upstream died","code":502}}\n\n' + DONE,
        ErrorKind.SERVER_ERROR,
        "upstream died",
    ),
    "28c": (
        "responses",
        ev({"type": "response.failed", "response": FAILED}),
        ErrorKind.SERVER_ERROR,
        "server_error.*: x",
    ),
    "error event": (
        "responses",
        ev({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}),
        ErrorKind.RATE_LIMITED,
        "slow down",
    ),
    "nested error event": (
        "responses",
        ev({"type": "error", "error": {"code": "context_length_exceeded", "message": "too long"}}),
        ErrorKind.CONTEXT_TOO_LONG,
        "too long",
    ),
    "error in a choice": (
        "chat",
        chat({"content": "half"}) + chat({}, "error") + DONE,
        ErrorKind.SERVER_ERROR,
        "'error'",
    ),
    "error in a choice with its reason": (
        "chat",
        b'data: {"choices":[{"delta":{},"finish_reason":"error","error":{"code":429,"message":"slow down"}}]}\n\n',
        ErrorKind.RATE_LIMITED,
        "slow down",
    ),
    "error of vLLM": (
        "chat",
        chat({"content": "half"})
        + b'data: {"error":{"object":"error","message":"bad grammar","type":"BadRequestError","code":400}}\n\n'
        + DONE,
        ErrorKind.BAD_REQUEST,
        "bad grammar",
    ),
    "data in another place": (
        "responses",
        ev({"type": "response.failed", "response": {"error": {"code": "data_residency_mismatch", "message": "x"}}}),
        ErrorKind.BAD_REQUEST,
        "data_residency",
    ),
    "unknown finish": ("chat", chat({"content": "half"}) + chat({}, "banana") + DONE, ErrorKind.PROTOCOL, "banana"),
    "unknown stop": ("messages", start() + stopped("banana"), ErrorKind.PROTOCOL, "banana"),
    "unknown status": (
        "responses",
        ev({"type": "response.completed", "response": {"status": "banana"}}),
        ErrorKind.PROTOCOL,
        "banana",
    ),
    "unknown incompleteness": (
        "responses",
        ev(
            {
                "type": "response.incomplete",
                "response": {"status": "incomplete", "incomplete_details": {"reason": "banana"}},
            }
        ),
        ErrorKind.PROTOCOL,
        "banana",
    ),
    "block that never began": (
        "messages",
        ev({"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}),
        ErrorKind.PROTOCOL,
        "did not begin",
    ),
}


@pytest.mark.parametrize(("protocol", "body", "kind", "match"), ERRORS.values(), ids=ERRORS)
def test_28_a_failure_inside_the_stream_fails_the_turn(protocol: str, body: bytes, kind: ErrorKind, match: str) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        read(protocol, body)
    assert (caught.value.kind, caught.value.status) == (kind, None)


def test_a_failed_attempt_says_what_it_cost() -> None:
    with pytest.raises(ModelError) as caught:
        read("messages", start())
    assert caught.value.usage == Usage(input=25, output=1)


INCOMPLETE = {
    "id": "r",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "output": [],
    "usage": {"input_tokens": 5, "output_tokens": 9, "total_tokens": 14},
}
CUT = {
    "28d": ("responses", ev({"type": "response.incomplete", "response": INCOMPLETE}), StopReason.LENGTH),
    "28e": ("messages", start() + stopped("model_context_window_exceeded"), StopReason.LENGTH),
    "28e-max": ("messages", start() + stopped("max_tokens"), StopReason.LENGTH),
    "28f": ("messages", start() + stopped("pause_turn"), StopReason.PAUSED),
    "refusal": ("messages", start() + stopped("refusal"), StopReason.REFUSAL),
    "chat length": (
        "chat",
        chat({"content": "half"}) + chat({}, "length", usage={"completion_tokens": 9}) + DONE,
        StopReason.LENGTH,
    ),
}


@pytest.mark.parametrize(("protocol", "body", "stop"), CUT.values(), ids=CUT)
def test_28_a_response_that_was_cut_off_says_so_and_keeps_its_usage(
    protocol: str, body: bytes, stop: StopReason
) -> None:
    response, _ = read(protocol, body)
    assert (response.stop, response.usage.output) == (stop, 9)


def test_text_of_an_incomplete_response_is_kept_also_when_the_final_event_leaves_it_out() -> None:
    item = {"type": "message", "id": "m", "role": "assistant", "content": []}
    body = (
        ev({"type": "response.output_item.added", "output_index": 0, "item": item})
        + ev({"type": "response.output_text.delta", "output_index": 0, "delta": "half an ans"})
        + ev({"type": "response.incomplete", "response": INCOMPLETE})
    )
    assert text_of(read("responses", body)[0]) == "half an ans"


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("chat", chat({"refusal": "I can"}) + chat({"refusal": "not."}) + chat({}, "stop") + DONE),
        ("chat", chat({"content": "I cannot."}) + chat({}, "content_filter") + DONE),
        (
            "responses",
            ev(
                {
                    "type": "response.completed",
                    "response": {
                        "status": "completed",
                        "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}],
                    },
                }
            ),
        ),
    ],
)
def test_a_refusal_is_text_with_its_own_stop_reason(protocol: str, body: bytes) -> None:
    response, _ = read(protocol, body)
    assert (text_of(response), response.stop) == ("I cannot.", StopReason.REFUSAL)


def test_a_refusal_has_its_explanation_and_runs_no_call() -> None:
    tool = {"type": "tool_use", "id": "a", "name": "bash", "input": {"command": "ls"}}
    why = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    body = (
        start("Well")
        + ev({"type": "content_block_start", "index": 1, "content_block": tool})
        + ev({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": why}})
        + ev({"type": "message_stop"})
    )
    whole = {"content": [{"type": "text", "text": "Well"}, tool], "stop_reason": "refusal", "stop_details": why}
    for response, deltas in (read("messages", body), read("messages", json.dumps(whole).encode())):
        assert (text_of(response), calls_of(response), response.stop) == (
            "WellIt could do harm.",
            [],
            StopReason.REFUSAL,
        )
        assert joined(deltas)[0] == text_of(response)
    filtered = chat({"content": "Well"}) + call(0, "a", "ls") + chat({}, "content_filter") + DONE
    assert calls_of(read("chat", filtered)[0]) == []
    incomplete = {
        **INCOMPLETE,
        "incomplete_details": {"reason": "content_filter"},
        "output": WHOLE["responses"]["output"],
    }
    response, _ = read("responses", json.dumps(incomplete).encode())
    assert (calls_of(response), response.stop) == ([], StopReason.REFUSAL)


def test_text_that_comes_without_deltas_is_read() -> None:
    body = (
        ev({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "content": []}})
        + ev({"type": "response.output_text.done", "output_index": 0, "text": "hello"})
        + ev({"type": "response.completed", "response": {"status": "completed"}})
    )
    response, deltas = read("responses", body)
    assert text_of(response) == joined(deltas)[0] == "hello"


# --- 29: stop reason and content contradict each other


def arguments(text: str, fin: str | None, *more: bytes) -> bytes:
    c = {"index": 0, "id": "a", "type": "function", "function": {"name": "bash", "arguments": text}}
    return chat({"tool_calls": [c]}) + b"".join(more) + chat({}, fin) + DONE


GOOD = '{"command":"rm -rf build"}'
CUT_OFF = '{"command":"rm -rf build/ca'
CONTRADICTIONS = {
    "29a": (arguments(GOOD, "stop"), StopReason.TOOL_CALLS),
    "29b": (arguments(CUT_OFF, "tool_calls"), StopReason.LENGTH),
    "29b-stop": (arguments(CUT_OFF, "stop"), StopReason.LENGTH),
    "29c": (arguments(GOOD, "length"), StopReason.LENGTH),
    "29e": (arguments(GOOD, None), StopReason.TOOL_CALLS),
    "29e-cut": (arguments(CUT_OFF, None), StopReason.LENGTH),
    # One good call beside a cut one (27): the good one is to run, so the cut one is left to the tool's refusal.
    "27-cut-and-good": (arguments(CUT_OFF, "tool_calls", call(1, "b", "ls")), StopReason.TOOL_CALLS),
    "27-malformed": (arguments('{"command":"ls",}', "tool_calls"), StopReason.TOOL_CALLS),
}


@pytest.mark.parametrize(("body", "stop"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_29_the_content_decides_where_the_stop_reason_contradicts_it(body: bytes, stop: StopReason) -> None:
    assert read("chat", body)[0].stop is stop


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("chat", chat({"content": ""}) + chat({}, "tool_calls") + DONE),
        ("messages", ev({"type": "message_start", "message": {"id": "m"}}) + stopped("tool_use")),
    ],
    ids=["29d", "29f"],
)
def test_29_calls_that_were_announced_and_never_came_are_no_empty_success(protocol: str, body: bytes) -> None:
    with pytest.raises(ModelError, match="announces tool calls") as caught:
        read(protocol, body)
    assert caught.value.kind is ErrorKind.PROTOCOL


def test_27_a_tool_without_parameters_streams_no_arguments() -> None:
    body = (
        ev({"type": "message_start", "message": {"id": "m"}})
        + ev(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "tool_use", "id": "toolu_1", "name": "list_orders", "input": {}},
            }
        )
        + ev({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ""}})
        + ev({"type": "content_block_stop", "index": 0})
        + stopped("tool_use")
    )
    response, _ = read("messages", body)
    assert (calls_of(response), response.stop) == ([("list_orders", "")], StopReason.TOOL_CALLS)
