"""The adapters end to end against a server on loopback that misbehaves. Numbers are those of the fault list."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
import trio.testing

from harness.llm.client import HttpModel
from harness.llm.making import from_provider
from harness.llm.model import (
    AttemptDropped,
    Delta,
    ErrorKind,
    ModelError,
    ModelResponse,
    StopReason,
    TextDelta,
)
from harness.llm.retry import RetryPolicy
from tests.llm.server import Gone, Handler, Reply, Request, Server, answers, in_turn, serving, streams
from tests.llm.shapes import ANSWERS, DONE, asking, calls_of, chat, chat_answer, joined, text_of, user

SECRET = "sk-very-secret-0123456789"
ENVIRON = {"OPENAI_API_KEY": SECRET, "ANTHROPIC_API_KEY": SECRET}
NAMES = {"chat": "openai-chat:m", "responses": "openai:m", "messages": "anthropic:m"}
ONCE = RetryPolicy(attempts=1)


@asynccontextmanager
async def talking(handler: Handler, protocol: str = "chat", **options: Any) -> AsyncIterator[tuple[HttpModel, Server]]:
    async with serving(handler) as server:
        options.setdefault("chance", random.Random(1))
        model = from_provider(NAMES[protocol], base_url=server.url, environ=ENVIRON, **options)
        try:
            yield model, server
        finally:
            await model.aclose()


async def ask(model: HttpModel) -> tuple[ModelResponse, list[Delta]]:
    deltas: list[Delta] = []
    return await model.respond(asking(user("hi")), emit=deltas.append), deltas


async def failing(model: HttpModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(model)
    return caught.value


@pytest.mark.parametrize("protocol", NAMES)
async def test_a_turn_with_a_text_and_two_calls(protocol: str) -> None:
    async with talking(streams(ANSWERS[protocol]("hello", "echo A", "echo B")), protocol) as (model, server):
        response, deltas = await ask(model)
    assert text_of(response) == "hello"
    assert len(calls_of(response)) == 2
    assert joined(deltas) == ("hello", "", dict(enumerate(calls_of(response))))
    assert (response.stop, response.attempts, response.provider) == (StopReason.TOOL_CALLS, 1, model.row.name)
    (request,) = server.requests
    assert (request.method, request.json["model"], request.json["stream"]) == ("POST", "m", True)
    key = request.headers.get("x-api-key") or request.headers["authorization"].removeprefix("Bearer ")
    assert key == SECRET


@pytest.mark.parametrize("protocol", NAMES)
async def test_dripped_bytes_give_the_same_turn(protocol: str) -> None:
    async def drip(_request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.drip(ANSWERS[protocol]("na\u00efve \U0001f389", "echo A"), 7)
        await reply.end()

    async with talking(drip, protocol) as (model, _server):
        response, _ = await ask(model)
    assert (text_of(response), len(calls_of(response))) == ("na\u00efve \U0001f389", 1)


async def test_one_connection_serves_many_turns() -> None:
    async with talking(streams(chat_answer("hello"))) as (model, server):
        for _ in range(3):
            await ask(model)
        assert [request.connection for request in server.requests] == [1, 1, 1]
        await model.aclose()
        await ask(model)
        assert server.requests[-1].connection == 2


@pytest.mark.parametrize("protocol", NAMES)
async def test_24b_a_server_that_keeps_the_connection_open_does_not_hold_the_turn(
    protocol: str, clock: trio.testing.MockClock
) -> None:
    async def linger(_request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.send(ANSWERS[protocol]("hello"))
        await reply.wait_closed()
        raise_gone.set()

    raise_gone = trio.Event()
    async with talking(linger, protocol) as (model, _server):
        response, _ = await ask(model)
        assert text_of(response) == "hello"
        assert trio.current_time() < 1
        await raise_gone.wait()


async def test_24c_details_that_never_come_are_not_waited_for_long(clock: trio.testing.MockClock) -> None:
    async def linger(_request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.send(chat({"content": "hello"}) + chat({}, "stop"))
        await reply.wait_closed()

    async with talking(linger) as (model, _server):
        assert text_of((await ask(model))[0]) == "hello"
        assert trio.current_time() < 10


# --- 33: silence


async def silent(_request: Request, reply: Reply) -> None:
    await reply.wait_closed()


async def headers_only(_request: Request, reply: Reply) -> None:
    await reply.begin()
    await reply.wait_closed()


async def three_deltas(_request: Request, reply: Reply) -> None:
    await reply.begin()
    for _ in range(3):
        await reply.send(chat({"content": "x"}))
    await reply.wait_closed()


async def comments(_request: Request, reply: Reply) -> None:
    await reply.begin()
    while True:
        await trio.sleep(10)
        await reply.send(b": still here\n\n")


async def slow(_request: Request, reply: Reply) -> None:
    await reply.begin()
    for _ in range(72):
        await trio.sleep(50)
        await reply.send(chat({"content": "x"}))
    await reply.send(chat({}, "stop") + DONE)
    await reply.end()


@pytest.mark.parametrize(
    ("handler", "after_s"),
    [(silent, 120), (headers_only, 120), (three_deltas, 120), (comments, 600)],
    ids=["33a", "33b", "33c", "33d"],
)
async def test_33_silence_is_a_failure_in_bounded_time(
    handler: Handler, after_s: float, clock: trio.testing.MockClock
) -> None:
    async with talking(handler, retry=ONCE) as (model, _server):
        error = await failing(model)
    assert (error.kind, round(trio.current_time())) == (ErrorKind.TIMED_OUT, after_s)


async def test_33e_a_slow_stream_is_healthy(clock: trio.testing.MockClock) -> None:
    async with talking(slow) as (model, _server):
        response, _ = await ask(model)
    assert text_of(response) == "x" * 72
    assert trio.current_time() >= 3600


async def test_33_a_silent_stream_is_tried_again(clock: trio.testing.MockClock) -> None:
    async with talking(in_turn(three_deltas, streams(chat_answer("hello")))) as (model, _server):
        response, deltas = await ask(model)
    assert (text_of(response), response.attempts) == ("hello", 2)
    assert [type(delta) for delta in deltas[:4]] == [TextDelta, TextDelta, TextDelta, AttemptDropped]


@pytest.mark.parametrize("handler", [silent, headers_only, three_deltas, comments])
async def test_33_cancelling_takes_effect_at_once_and_the_server_sees_it(handler: Handler) -> None:
    started, closed = trio.Event(), trio.Event()

    async def watched(request: Request, reply: Reply) -> None:
        started.set()
        async with trio.open_nursery() as nursery:
            if handler is comments:  # the others wait for the end of the connection themselves
                nursery.start_soon(handler, request, reply)
                await reply.wait_closed()
            else:
                with suppress(Gone):
                    await handler(request, reply)
            closed.set()
            nursery.cancel_scope.cancel()

    async with talking(watched) as (model, _server):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, model)
            await started.wait()
            nursery.cancel_scope.cancel()
        await closed.wait()


async def test_an_interrupted_turn_leaves_the_model_fit_for_the_next() -> None:
    async with talking(in_turn(three_deltas, streams(chat_answer("hello")))) as (model, _server):
        with trio.CancelScope() as scope:  # at the first delta
            await model.respond(asking(user("hi")), emit=lambda _delta: scope.cancel())
        assert scope.cancelled_caught
        response, deltas = await ask(model)
    assert text_of(response) == joined(deltas)[0] == "hello"


# --- failures, and trying again


async def test_34_nothing_of_a_dropped_attempt_survives(clock: trio.testing.MockClock) -> None:
    body = chat_answer("Here is", "echo x >> n.txt", "echo y")

    async def broken(_request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.send(body[: body.index(b"call_1") + 500])
        await trio.sleep(1)  # a reset at once would overtake what was sent
        await reply.reset()

    async with talking(in_turn(broken, streams(body))) as (model, server):
        response, deltas = await ask(model)
    assert text_of(response) == "Here is"
    assert [arguments for _, arguments in calls_of(response)] == [
        '{"command": "echo x >> n.txt"}',
        '{"command": "echo y"}',
    ]
    assert (response.attempts, len(server.requests)) == (2, 2)
    dropped = next(index for index, delta in enumerate(deltas) if isinstance(delta, AttemptDropped))
    assert joined(deltas[:dropped])[0] == "Here is"
    assert joined(deltas[dropped:]) == ("Here is", "", dict(enumerate(calls_of(response))))


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("way", ["reset", "close"])
async def test_a_connection_that_breaks_is_a_connection_error(
    protocol: str, way: str, clock: trio.testing.MockClock
) -> None:
    async def broken(_request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.send(ANSWERS[protocol]("hello")[:300])
        await trio.sleep(1)
        await getattr(reply, way)()

    async with talking(broken, protocol, retry=ONCE) as (model, _server):
        error = await failing(model)
    assert (error.kind, error.attempts) == (ErrorKind.CONNECTION, 1)


@pytest.mark.parametrize("protocol", NAMES)
async def test_a_connection_that_breaks_after_the_end_is_no_error(protocol: str, clock: trio.testing.MockClock) -> None:
    async def rude(_request: Request, reply: Reply) -> None:
        await reply.begin()
        await reply.send(ANSWERS[protocol]("hello").rstrip())  # not even a line end
        await trio.sleep(1)
        await reply.close()

    async with talking(rude, protocol, retry=ONCE) as (model, _server):
        assert text_of((await ask(model))[0]) == "hello"


async def test_nobody_listens(clock: trio.testing.MockClock) -> None:
    async with serving(silent) as server:
        pass
    model = from_provider("openai-chat:m", base_url=server.url, environ=ENVIRON, chance=random.Random(1))
    error = await failing(model)
    assert (error.kind, error.attempts) == (ErrorKind.CONNECTION, 5)
    await model.aclose()


HTML = "<html><head><style>x{}</style></head><body><h1>502 Bad Gateway</h1></body></html>"
STATUSES = [
    (401, {"error": {"message": f"Incorrect key {SECRET}", "code": "invalid_api_key"}}, ErrorKind.AUTHENTICATION, 1),
    (404, {"error": {"message": "no such model", "code": "model_not_found"}}, ErrorKind.NOT_FOUND, 1),
    (400, {"error": {"message": "maximum context length is 8000 tokens"}}, ErrorKind.CONTEXT_TOO_LONG, 1),
    (400, {"error": {"message": "bad schema"}}, ErrorKind.BAD_REQUEST, 1),
    (429, {"error": {"message": "no money", "code": "insufficient_quota"}}, ErrorKind.QUOTA_EXHAUSTED, 1),
    (429, {"error": {"message": "slow down"}}, ErrorKind.RATE_LIMITED, 5),
    (529, {"error": {"message": "Overloaded", "type": "overloaded_error"}}, ErrorKind.OVERLOADED, 5),
    (502, HTML, ErrorKind.SERVER_ERROR, 5),
    (200, HTML, ErrorKind.PROTOCOL, 2),
    (301, "", ErrorKind.BAD_REQUEST, 1),
]


@pytest.mark.parametrize(("status", "body", "kind", "attempts"), STATUSES)
async def test_a_status_is_classed_once_and_retried_by_its_class(
    status: int, body: Any, kind: ErrorKind, attempts: int, clock: trio.testing.MockClock
) -> None:
    async with talking(answers(status, body)) as (model, server):
        error = await failing(model)
    assert (error.kind, error.attempts, len(server.requests)) == (kind, attempts, attempts)
    assert error.status == (status if status != 200 else None)
    assert SECRET not in str(error) + repr(error) + error.message
    assert "<" not in error.message or status == 200


async def test_31_the_asked_wait_is_kept_and_an_interrupt_ends_it(clock: trio.testing.MockClock) -> None:
    busy = answers(429, {"error": {"message": "slow down"}}, retry_after="2")
    async with talking(in_turn(busy, streams(chat_answer("hello")))) as (model, _server):
        response, deltas = await ask(model)
        assert (text_of(response), response.attempts) == ("hello", 2)
        assert 2 <= trio.current_time() < 3
        assert deltas[0] == AttemptDropped("status 429: slow down", 2.0)
    async with talking(answers(429, retry_after="100")) as (model, _server):
        before = trio.current_time()
        with trio.move_on_after(1) as scope:
            await ask(model)
        assert scope.cancelled_caught
        assert trio.current_time() - before < 2


async def test_a_server_that_refuses_stream_options_is_asked_again_without(clock: trio.testing.MockClock) -> None:
    refusal = {"message": {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}}

    async def picky(request: Request, reply: Reply) -> None:
        if "stream_options" in request.json:
            await reply.whole(422, refusal)
        else:
            await reply.stream(chat_answer("hello"))

    async with talking(picky) as (model, server):
        for _ in range(2):
            response, deltas = await ask(model)
            assert (text_of(response), response.attempts) == ("hello", 1)
            assert not [delta for delta in deltas if isinstance(delta, AttemptDropped)]
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


@pytest.mark.parametrize(
    ("protocol", "message", "field"),
    [
        ("responses", "Encrypted content is not supported with this model.", "include"),
        ("messages", "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens", "max_tokens"),
    ],
)
async def test_what_a_model_refuses_is_left_out_from_then_on(protocol: str, message: str, field: str) -> None:
    refusal = answers(400, {"error": {"type": "invalid_request_error", "message": message}})
    async with talking(in_turn(refusal, streams(ANSWERS[protocol]("hello"))), protocol) as (model, server):
        assert text_of((await ask(model))[0]) == "hello"
        await ask(model)
    first, second, third = (body.get(field) for body in server.bodies)
    assert first != second == third


async def test_without_streaming_the_whole_body_is_awaited_longer(clock: trio.testing.MockClock) -> None:
    async def thinking(_request: Request, reply: Reply) -> None:
        await trio.sleep(300)
        await reply.whole(200, {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]})

    async with talking(thinking, stream=False) as (model, server):
        assert text_of((await ask(model))[0]) == "hello"
    assert "stream" not in server.bodies[0]


async def test_a_json_body_where_a_stream_was_asked_for_is_a_response() -> None:
    whole = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
    async with talking(answers(200, whole)) as (model, _server):
        assert text_of((await ask(model))[0]) == "hello"


def test_no_repr_shows_the_key() -> None:
    for name in NAMES.values():
        model = from_provider(name, environ=ENVIRON)
        assert SECRET not in f"{model!r} {model._http!r} {model.name} {model.url}"


async def test_no_log_line_shows_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with talking(streams(chat_answer("hello"))) as (model, _server):
        await ask(model)
    assert "httpcore" in {record.name.partition(".")[0] for record in caplog.records}
    assert SECRET not in caplog.text
    assert SECRET not in "".join(str(record.__dict__) for record in caplog.records)
