"""A history that nears the window, or is refused as too long, is summarised: over each protocol, with real commands."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.compaction import INSTRUCTIONS
from harness.llm.making import from_provider
from tests.llm.server import Handler, Reply, Request, Server, serving
from tests.llm.shapes import ANSWERS, chat, ev, start
from tests.llm.test_end_to_end import CHECKS
from tests.llm.test_http import ENVIRON, NAMES

SUMMARY = "They want the sum; the list was read."
ASKS = INSTRUCTIONS.encode()
"""What only the request for a summary has in it."""


def usage(protocol: str, tokens: int) -> dict[str, int]:
    return {"prompt_tokens" if protocol == "chat" else "input_tokens": tokens, **OUTPUT[protocol]}


OUTPUT = {"chat": {"completion_tokens": 5}, "responses": {"output_tokens": 5}, "messages": {}}


@asynccontextmanager
async def opened(
    protocol: str, handler: Handler, place: Path, **policy: Any
) -> AsyncIterator[tuple[harness.Session, Server]]:
    async def checked(request: Request, reply: Reply) -> None:
        CHECKS[protocol](request.json)
        await handler(request, reply)

    async with serving(checked) as server, AsyncExitStack() as stack:
        model = from_provider(NAMES[protocol], base_url=server.url, environ=ENVIRON)
        stack.push_async_callback(model.aclose)
        async with harness.open_session(
            place / "s.db",
            model=model,
            tools=[harness.bash()],
            workspace=place,
            policy=harness.Policy(coalesce_s=0.0, limits=harness.Limits(turns=12), **policy),
        ) as session:
            yield session, server


async def sound(place: Path, session_id: str) -> list[harness.Event]:
    """The log, which keeps every rule and whose requests would be the same again."""
    replay = await harness.replay(place / "s.db", session_id)
    assert (harness.check(replay.events), replay.check()) == ([], [])
    return [logged.event for logged in replay.events]


@pytest.mark.parametrize("protocol", NAMES)
async def test_recent_turns_stay_whole_and_a_call_that_runs_survives(protocol: str, tmp_path: Path) -> None:
    answer, go = ANSWERS[protocol], tmp_path / "go"

    async def handle(request: Request, reply: Reply) -> None:
        body = request.body
        if ASKS in body:
            assert "tools" not in request.json
            await reply.stream(answer(SUMMARY))
        elif b"Result of call t0001c000 (bash)" in body:
            await reply.stream(answer("Done."))
        elif SUMMARY.encode() in body:
            go.touch()
            await reply.stream(answer("Waiting."))
        elif b"t0002c000" in body:
            await reply.stream(answer("And that.", "echo three", usage=usage(protocol, 1700)))
        elif b"t0001c001" in body:
            await reply.stream(answer("Now this.", "echo two", usage=usage(protocol, 900)))
        else:
            await reply.stream(
                answer("", "for _ in {1..500}; do [ -e go ] && break; sleep 0.02; done; echo slow", "seq 1000 1900")
            )

    async with opened(protocol, handle, tmp_path, window_tokens=2000) as (session, server):
        result = await session.run("What is the sum?")
    assert (result.outcome, result.text) == ("completed", "Done.")
    assert [call.outcome for call in result.tool_calls] == [harness.CallOutcome.OK] * 4
    events = await sound(tmp_path, session.id)
    (compacted,) = [event for event in events if isinstance(event, harness.ContextCompacted)]
    started = [event for event in events if isinstance(event, harness.TurnStarted)]
    assert (compacted.summary, compacted.keep_from) == (SUMMARY, started[1].turn_id)
    assert [event.reason.value for event in started[:5]] == ["input", "results", "results", "compaction", "results"]
    asked, following = server.requests[3].body, server.requests[4].body
    assert b"user: What is the sum?" in asked and b"1900" in asked and b"Now this." not in asked
    assert b"Still running, with results to come in later messages: t0001c000 (bash)" in following
    assert b"Now this." in following and b"And that." in following and b"three" in following
    assert b"What is the sum?" not in following and b"1900" not in following


TOO_LONG: dict[str, tuple[str, int, Any]] = {
    "OpenAI": (
        "responses",
        400,
        {
            "error": {
                "message": "Your input exceeds the context window of this model. Please adjust your input.",
                "type": "invalid_request_error",
                "param": "input",
                "code": "context_length_exceeded",
            }
        },
    ),
    "OpenAI within the stream": (
        "responses",
        200,
        ev(
            {
                "type": "response.failed",
                "response": {
                    "status": "failed",
                    "error": {"code": "context_length_exceeded", "message": "Your input exceeds the context window."},
                },
            }
        ),
    ),
    "OpenAI Chat, vLLM": (
        "chat",
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8192 tokens. However, you sent 9000.",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
    ),
    "llama.cpp": (
        "chat",
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
            }
        },
    ),
    "Mistral": (
        "chat",
        400,
        {
            "object": "error",
            "message": "Prompt contains 65673 tokens, too large for model with 32768 maximum context length",
            "type": "invalid_request_prompt",
            "code": "3051",
        },
    ),
    "a router within the stream": (
        "chat",
        200,
        chat({"content": ""})
        + b'data: {"error":{"code":400,"message":"prompt is too long: 9 tokens > 8 maximum"}}\n\n',
    ),
    "a proxy": ("chat", 413, "<html><body>413 Request Entity Too Large</body></html>"),
    "Anthropic": (
        "messages",
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
            },
        },
    ),
    "Anthropic, bytes": (
        "messages",
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
    ),
    "Anthropic within the stream": (
        "messages",
        200,
        start("")
        + ev({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}),
    ),
}


@pytest.mark.parametrize(("protocol", "status", "error"), TOO_LONG.values(), ids=TOO_LONG)
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
async def test_a_context_that_is_refused_is_summarised_once(
    protocol: str, status: int, error: Any, for_good: bool, tmp_path: Path
) -> None:
    answer = ANSWERS[protocol]

    async def handle(request: Request, reply: Reply) -> None:
        if ASKS in request.body:
            await reply.stream(answer(SUMMARY))
        elif SUMMARY.encode() in request.body and not for_good:
            await reply.stream(answer("Done."))
        elif len(server.requests) == 1:
            await reply.stream(answer("Looking.", "echo one"))
        elif status == 200:
            await reply.stream(error)
        else:
            await reply.whole(status, error)

    async with opened(protocol, handle, tmp_path) as (session, server):
        result = await session.run("What is the sum?")
    assert len(server.requests) == 4
    if for_good:
        assert result.outcome == "blocked"
        assert result.error.startswith("context_too_long: ")
        assert "fork at an earlier turn" in result.error
    else:
        assert (result.outcome, result.text) == ("completed", "Done.")
    events = await sound(tmp_path, session.id)
    assert sum(isinstance(event, harness.ContextCompacted) for event in events) == 1
