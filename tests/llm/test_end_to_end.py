"""Whole sessions over each protocol, with a server that fails in between. Every request obeys the protocol's rules."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.llm.making import from_provider
from harness.llm.retry import RetryPolicy
from tests.llm.server import Handler, Reply, Request, answers, in_turn, serving
from tests.llm.shapes import ANSWERS
from tests.llm.test_http import ENVIRON, NAMES
from tests.llm.validators import check_chat, check_messages, check_responses

CHECKS: dict[str, Any] = {"chat": check_chat, "responses": check_responses, "messages": check_messages}
COMMANDS = ("sleep 0.3; echo slow", "echo quick", "exit 3")


def talk(protocol: str, *troubles: Handler) -> Handler:
    """Asks for three commands, then answers; each trouble comes before one of the good responses."""

    async def good(request: Request, reply: Reply) -> None:
        CHECKS[protocol](request.json)
        told = b"t0001c000" in request.body  # the history has our name for the first call
        await reply.stream(ANSWERS[protocol]("Done.") if told else ANSWERS[protocol]("Looking.", *COMMANDS))

    return in_turn(*troubles, good)


async def dropped(_request: Request, reply: Reply) -> None:
    await reply.begin()
    await reply.send(b": hello\n\n")
    await reply.close()


@pytest.mark.parametrize("protocol", NAMES)
@pytest.mark.parametrize("troubled", [False, True])
async def test_a_session_of_parallel_commands(protocol: str, troubled: bool, tmp_path: Path) -> None:
    troubles = [answers(429, retry_after="0"), answers(500), dropped] if troubled else []
    async with serving(talk(protocol, *troubles)) as server, AsyncExitStack() as stack:
        quick = RetryPolicy(first_s=0.01, most_s=0.01)
        model = from_provider(
            NAMES[protocol], base_url=server.url, environ=ENVIRON, retry=quick, chance=random.Random(1)
        )
        stack.push_async_callback(model.aclose)
        store = tmp_path / "s.db"
        async with harness.open_session(store, model=model, tools=[harness.bash()], workspace=tmp_path) as session:
            result = await session.run("Look around.")
            assert (result.outcome, result.text) == (harness.Outcome.COMPLETED, "Done.")
            assert sorted(call.outcome.value for call in result.tool_calls) == ["failed", "ok", "ok"]
            again = await session.run("And again?")
            assert (again.text, again.turns) == ("Done.", 1)
            events = [logged.event async for logged in session.events()]
            turns = [event for event in events if isinstance(event, harness.TurnFinished)]
            assert turns[0].attempts == (4 if troubled else 1)
            session_id = session.id
        checked = await harness.replay(store, session_id)
        assert checked.check() == []
