"""What providers say when they fail, and what it means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llm.errors import MESSAGE_CHARS, http_error, one_line, read_error, stream_error
from harness.llm.model import ErrorKind as K

CASES: list[tuple[int, Any, K]] = [
    # 39(d): the context is too long, in every form
    (
        400,
        {"error": {"message": "x", "code": "context_length_exceeded", "type": "invalid_request_error"}},
        K.CONTEXT_TOO_LONG,
    ),
    (400, {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}}, K.CONTEXT_TOO_LONG),
    (
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        K.CONTEXT_TOO_LONG,
    ),
    (413, "<html><h1>413 Request Entity Too Large</h1></html>", K.CONTEXT_TOO_LONG),
    (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
        },
        K.CONTEXT_TOO_LONG,
    ),
    (
        400,
        {"error": {"message": "This model's maximum context length is 8000 tokens. However, you requested 9000"}},
        K.CONTEXT_TOO_LONG,
    ),
    (
        400,
        {"error": {"message": "The input (9000 tokens) exceeds the maximum allowed input length"}},
        K.CONTEXT_TOO_LONG,
    ),
    (
        400,
        {"error": {"message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"}},
        K.CONTEXT_TOO_LONG,
    ),
    (
        400,
        {
            "object": "error",
            "message": "Prompt contains 65673 tokens, too large for model with 32768 maximum context length",
            "code": "3051",
        },
        K.CONTEXT_TOO_LONG,
    ),
    (
        400,
        {"error": {"message": "the request exceeds the available context size, try increasing it"}},
        K.CONTEXT_TOO_LONG,
    ),
    (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": '{"message":"prompt is too long"}'},
            }
        },
        K.CONTEXT_TOO_LONG,
    ),
    (
        429,
        {
            "error": {
                "message": "Request too large for m on tokens per min (TPM): Limit 10, Requested 20",
                "code": "rate_limit_exceeded",
            }
        },
        K.CONTEXT_TOO_LONG,
    ),
    # near misses
    (400, {"error": {"message": "max_tokens is too large: 99999"}}, K.BAD_REQUEST),
    (
        429,
        {
            "error": {
                "message": "Rate limit reached on tokens per min. Limit 30000, Used 29000",
                "type": "tokens",
                "code": "rate_limit_exceeded",
            }
        },
        K.RATE_LIMITED,
    ),
    # money is not speed
    (
        429,
        {
            "error": {
                "message": "You exceeded your current quota",
                "type": "insufficient_quota",
                "code": "insufficient_quota",
            }
        },
        K.QUOTA_EXHAUSTED,
    ),
    (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
        K.QUOTA_EXHAUSTED,
    ),
    (402, {"error": {"message": "Insufficient credits", "code": 402}}, K.QUOTA_EXHAUSTED),
    (403, {"type": "error", "error": {"type": "billing_error", "message": "x"}}, K.QUOTA_EXHAUSTED),
    # content
    (400, {"error": {"message": "blocked", "code": "content_filter"}}, K.CONTENT_REFUSED),
    (
        403,
        {"error": {"message": "Your chosen model requires moderation and your input was flagged", "code": 403}},
        K.CONTENT_REFUSED,
    ),
    (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
        },
        K.CONTENT_REFUSED,
    ),
    # the rest, in the shapes of several servers
    (401, {"detail": "Unauthorized"}, K.AUTHENTICATION),
    (403, {"type": "error", "error": {"type": "permission_error", "message": "x"}}, K.AUTHENTICATION),
    (404, {"error": "model 'x' not found, try pulling it first"}, K.NOT_FOUND),
    (400, {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}, K.NOT_FOUND),
    (400, {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}, K.BAD_REQUEST),
    (422, {"object": "error", "message": {"detail": [{"msg": "Extra inputs are not permitted"}]}}, K.BAD_REQUEST),
    (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, K.BAD_REQUEST),
    (408, {}, K.TIMED_OUT),
    (504, "upstream timeout", K.TIMED_OUT),
    (500, {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}, K.SERVER_ERROR),
    (500, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, K.OVERLOADED),
    (503, "", K.OVERLOADED),
    (529, {"type": "error", "error": {"type": "api_error", "message": "x"}}, K.OVERLOADED),
    (520, "<html>cloud</html>", K.SERVER_ERROR),
    (418, "teapot", K.BAD_REQUEST),
]


@pytest.mark.parametrize(("status", "body", "kind"), CASES)
def test_a_failure_has_one_class(status: int, body: Any, kind: K) -> None:
    data = body if isinstance(body, str) else json.dumps(body)
    error = http_error(status, data.encode())
    assert (error.kind, error.status) == (kind, status)
    assert error.message.startswith(f"status {status}: ")
    assert "\n" not in error.message
    assert "<" not in error.message


def test_the_providers_own_words_are_kept() -> None:
    body = {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": "the real reason"}}}
    assert http_error(400, json.dumps(body).encode()).message == "status 400: Provider returned error: the real reason"
    assert "field required" in http_error(422, b'{"detail": [{"msg": "field required"}]}').message
    assert http_error(400, b'{"error": "plain"}').message == "status 400: plain"


@pytest.mark.parametrize("code", [502, "502"])
def test_an_error_in_a_stream_may_carry_a_status(code: Any) -> None:
    assert stream_error({"error": {"message": "upstream died", "code": code}}).kind is K.SERVER_ERROR
    assert stream_error({"error": {"message": "x", "code": 429}}).kind is K.RATE_LIMITED
    assert (
        stream_error({"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}).kind
        is K.BAD_REQUEST
    )
    assert stream_error({"error": {}}).kind is K.SERVER_ERROR


def test_a_long_message_is_cut() -> None:
    assert len(one_line("x" * 10_000)) == MESSAGE_CHARS
    assert one_line(" a\r\n\tb\x1b[1mc ") == "a b [1mc"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "metadata", "raw", "msg", "status"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(data=JSON, status=st.sampled_from([400, 403, 429, 500, 599]))
def test_no_error_object_breaks_the_reading(data: Any, status: int) -> None:
    read_error(data)
    assert stream_error(data).message
    assert http_error(status, json.dumps(data).encode("utf-8", "surrogatepass")).message
