"""What a provider refuses to read is left out of the next request, and the session goes on. Over real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.llm.errors import http_error, stream_error
from harness.llm.making import from_provider
from harness.llm.model import AssistantItem, ErrorKind, Image, Item, Reasoning, Text, ToolCall, ToolResultItem
from harness.llm.refused import NO_IMAGE, holds, without
from harness.llm.retry import RetryPolicy
from tests.llm.server import Handler, Reply, Request, Server, serving
from tests.llm.shapes import ANSWERS, ev, stopped, user
from tests.llm.test_end_to_end import CHECKS
from tests.llm.test_http import ENVIRON, NAMES
from tests.operations.test_files import png

IMAGE_ERRORS: dict[str, Any] = {
    "chat": {
        "error": {
            "message": "Invalid content type. image_url is only supported by certain models.",
            "type": "invalid_request_error",
            "param": "messages.[3].content.[1].type",
            "code": None,
        }
    },
    "responses": {
        "error": {
            "message": "The image data you provided does not represent a valid image.",
            "type": "invalid_request_error",
            "param": "input",
            "code": "invalid_value",
        }
    },
    "messages": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.2.content.0.image.source.base64.data: Could not process image",
        },
    },
}
REASONING_ERRORS: dict[str, Any] = {
    "responses": {
        "error": {
            "message": "The encrypted content gAAA...DQ== could not be verified.",
            "type": "invalid_request_error",
            "param": None,
            "code": "invalid_encrypted_content",
        }
    },
    "messages": {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "messages.1.content.0: Invalid `signature` in `thinking` block",
        },
    },
    "chat": {"error": {"message": "reasoning_details: Invalid signature", "code": 400}},
}
NAMES_THINKING = {**NAMES, "chat": "openrouter:m"}
THOUGHTFUL_ENVIRON = {**ENVIRON, "OPENROUTER_API_KEY": "k"}


def refusing(protocol: str, error: dict[str, Any], marks: tuple[bytes, ...], *good: bytes) -> Handler:
    """Gives the good answers in turn, but to requests with a mark in them the error."""
    waiting = list(good)

    async def handle(request: Request, reply: Reply) -> None:
        CHECKS[protocol](request.json)
        if any(mark in request.body for mark in marks):
            await reply.whole(400, error)
        else:
            await reply.stream(waiting.pop(0) if len(waiting) > 1 else waiting[0])

    return handle


@asynccontextmanager
async def opened(
    name: str, handler: Handler, place: Path, session_id: str | None = None
) -> AsyncIterator[tuple[harness.Session, Server]]:
    async with serving(handler) as server, AsyncExitStack() as stack:
        model = from_provider(
            name, base_url=server.url, environ=THOUGHTFUL_ENVIRON, retry=RetryPolicy(first_s=0.01, most_s=0.01)
        )
        stack.push_async_callback(model.aclose)
        options: dict[str, Any] = {} if session_id else {"tools": [harness.view_image()], "workspace": place}
        async with harness.open_session(place / "s.db", model=model, session_id=session_id, **options) as session:
            yield session, server


async def sound(place: Path, session_id: str) -> list[harness.Event]:
    """The log, which keeps every rule and whose requests would be the same again."""
    replay = await harness.replay(place / "s.db", session_id)
    assert (harness.check(replay.events), replay.check()) == ([], [])
    return [logged.event for logged in replay.events]


IMAGE_MARKS = (b"image_url", b'"type":"image"')


@pytest.mark.parametrize("protocol", NAMES)
async def test_an_image_that_is_refused_is_left_out_and_the_run_goes_on(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    answers = (ANSWERS[protocol]("Let me see.", "image:a.png"), ANSWERS[protocol]("I cannot see it."))
    handler = refusing(protocol, IMAGE_ERRORS[protocol], IMAGE_MARKS, *answers)
    async with opened(NAMES[protocol], handler, tmp_path) as (session, server):
        result = await session.run("What is on a.png?")
        assert (result.outcome, result.text, result.turns) == ("completed", "I cannot see it.", 3)
        again = await session.run("And now?")
        assert (again.outcome, again.turns) == ("completed", 1)
    assert len(server.requests) == 4
    assert NO_IMAGE.encode() in server.requests[-1].body
    events = await sound(tmp_path, session.id)
    (failed,) = [event for event in events if isinstance(event, harness.TurnFailed)]
    assert failed.error is ErrorKind.IMAGE_REFUSED
    assert "left out from now on" in failed.message
    replay = await harness.replay(tmp_path / "s.db", session.id)
    assert [turn.left_out for turn in replay.requests()][1:3] == [(), ("1 images that were refused",)]


async def test_a_session_goes_on_without_the_image_after_it_was_closed(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    see, done = ANSWERS["messages"]("Let me see.", "image:a.png"), ANSWERS["messages"]("No.")
    handler = refusing("messages", IMAGE_ERRORS["messages"], IMAGE_MARKS, see, done)
    async with opened(NAMES["messages"], handler, tmp_path) as (session, _):
        await session.run("What is on a.png?")
    async with opened(NAMES["messages"], handler, tmp_path, session.id) as (again, server):
        assert (await again.run("And now?")).turns == 1
    assert len(server.requests) == 1
    await sound(tmp_path, session.id)


async def test_a_provider_that_still_refuses_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    handler = refusing("chat", IMAGE_ERRORS["chat"], (b"Let me see",), ANSWERS["chat"]("Let me see.", "image:a.png"))
    async with opened(NAMES["chat"], handler, tmp_path) as (session, server):
        result = await session.run("What is on a.png?")
    assert (result.outcome, len(server.requests)) == ("failed", 3)
    assert result.error.startswith("bad_request: status 400: Invalid content type")
    await sound(tmp_path, session.id)


def thinking(protocol: str) -> bytes:
    """An answer with reasoning that is to be sent back."""
    match protocol:
        case "chat":
            details = [{"type": "reasoning.text", "index": 0, "text": "hm", "signature": "stale"}]
            message = {"content": "Four.", "reasoning": "hm", "reasoning_details": details}
            return json.dumps({"id": "c", "choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        case "responses":
            item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "stale"}
            said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Four."}]}
            return ev({"type": "response.completed", "response": {"status": "completed", "output": [item, said]}})
        case _:
            block = {"type": "thinking", "thinking": "hm", "signature": "stale"}
            return (
                ev({"type": "message_start", "message": {"id": "m"}})
                + ev({"type": "content_block_start", "index": 0, "content_block": block})
                + ev({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Four."}})
                + stopped("end_turn")
            )


@pytest.mark.parametrize("protocol", REASONING_ERRORS)
async def test_reasoning_that_is_refused_is_left_out_and_the_run_goes_on(protocol: str, tmp_path: Path) -> None:
    handler = refusing(
        protocol, REASONING_ERRORS[protocol], (b"stale",), thinking(protocol), ANSWERS[protocol]("Five.")
    )
    async with opened(NAMES_THINKING[protocol], handler, tmp_path) as (session, server):
        assert (await session.run("2 + 2?")).text == "Four."
        result = await session.run("And one more?")
    assert (result.outcome, result.text, result.turns) == ("completed", "Five.", 2)
    assert b"Four." in server.requests[-1].body
    if protocol == "responses":  # the request for reasoning was not what was refused
        assert server.requests[-1].json["include"] == ["reasoning.encrypted_content"]
    (failed,) = [event for event in await sound(tmp_path, session.id) if isinstance(event, harness.TurnFailed)]
    assert failed.error is ErrorKind.REASONING_REFUSED
    *_, last = (await harness.replay(tmp_path / "s.db", session.id)).requests()
    assert last.left_out == (f"1 reasoning items of {NAMES_THINKING[protocol].partition(':')[0]} (refused)",)


# --- what errors say

IMAGES = [
    (400, "this model does not support image input (ref: b8bd630e)"),
    (404, "No endpoints found that support image input"),
    (422, "messages[1]: unknown variant `image_url`, expected `text` at line 1 column 9"),
    (500, "this model is missing data required for image input"),
    (400, "messages.2.content.0.image.source.base64: image exceeds 5 MB maximum: 7 MB > 5 MB"),
    (400, "m is not a multimodal model"),
    (400, "At most 1 image(s) may be provided in one prompt."),
    (400, "Your input image may contain content that is not allowed (content_policy_violation)"),
]
REASONING = [
    (400, "The encrypted content for item rs_1 could not be verified."),
    (404, "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false."),
    (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item."),
    (400, "messages.1.content.0: Invalid signature in thinking block"),
    (400, "messages.3.content.8: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
          "modified. These blocks must remain as they were in the original response."),
    (400, "Unable to submit request because Thought signature is not valid."),
]  # fmt: skip
NEITHER = [
    (400, "Invalid schema for function 'view_image': required is not an array"),
    (400, "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
    (400, "`max_tokens` must be greater than `thinking.budget_tokens`"),
    (400, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is "
          "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
          "`tool_use` and `tool_result` blocks)."),
    (500, "error while reading the image, try again"),
    (404, "The model `image-7` does not exist"),
    (429, "too many images"),
    (401, "no image for you"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        *((status, text, ErrorKind.IMAGE_REFUSED) for status, text in IMAGES),
        *((status, text, ErrorKind.REASONING_REFUSED) for status, text in REASONING),
        *((status, text, None) for status, text in NEITHER),
    ],
)
def test_an_error_points_at_what_it_names(status: int, text: str, kind: ErrorKind | None) -> None:
    assert http_error(status, json.dumps({"error": {"message": text}}).encode()).points_at is kind


def test_a_code_alone_points_as_well() -> None:
    assert (
        http_error(400, b'{"error":{"message":"x","param":"input[3].image_url"}}').points_at is ErrorKind.IMAGE_REFUSED
    )
    for code in ("invalid_image", "image_too_large", "image_parse_error", "unsupported_image_media_type"):
        assert stream_error({"error": {"code": code, "message": "x"}}).points_at is ErrorKind.IMAGE_REFUSED


# --- what is taken out

PNG = Image("d1", "image/png", 1, 1, 3)
HISTORY: list[Item] = [
    user("a"),
    AssistantItem((Reasoning("hm", "openai", "{}"), ToolCall("f", "{}", call_id="c1", opaque="{}")), "openai"),
    ToolResultItem("c1", "f", (Text("seen"), PNG)),
]


def test_only_the_parts_of_that_kind_are_taken_out_and_only_once() -> None:
    seen = without(HISTORY, ErrorKind.IMAGE_REFUSED)
    assert seen == [*HISTORY[:2], ToolResultItem("c1", "f", (Text("seen"), Text(NO_IMAGE)))]
    assert without(seen, ErrorKind.IMAGE_REFUSED) is None
    unthought = without(HISTORY, ErrorKind.REASONING_REFUSED)
    assert unthought is not None and [unthought[0], unthought[2]] == [HISTORY[0], HISTORY[2]]
    assert without(unthought, ErrorKind.REASONING_REFUSED) is None
    assert without(HISTORY, ErrorKind.BAD_REQUEST) is None


def test_only_what_a_provider_is_sent_can_be_refused_by_it() -> None:
    assert holds(HISTORY, ErrorKind.REASONING_REFUSED, "openai")
    assert not holds(HISTORY, ErrorKind.REASONING_REFUSED, "anthropic")
    assert holds(HISTORY, ErrorKind.IMAGE_REFUSED, "anthropic")
    assert not holds(HISTORY[:2], ErrorKind.IMAGE_REFUSED, "anthropic")
