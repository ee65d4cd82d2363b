"""A session goes on with another provider's model: its history is translated, and what cannot be is named."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import harness
from harness.llm.making import from_provider
from harness.llm.model import ModelRequest, ModelResponse, Reasoning, Text, ToolCall
from tests.llm.server import Reply, Request, serving
from tests.llm.shapes import ANSWERS
from tests.llm.test_end_to_end import CHECKS
from tests.llm.test_http import ENVIRON, NAMES


class Thinker:
    """The model of another provider, whose reasoning only it can read."""

    name = "elsewhere:thinker"

    async def respond(self, request: ModelRequest, *, emit: object) -> ModelResponse:
        thought = Reasoning("Hm.", provider="elsewhere", opaque='{"type": "secret", "signature": "x"}')
        if len(request.items) == 1:
            return ModelResponse((thought, ToolCall("bash", '{"command": "echo hi"}')), provider="elsewhere")
        return ModelResponse((thought, Text("It said hi.")), provider="elsewhere")


@pytest.mark.parametrize("protocol", NAMES)
async def test_a_session_goes_on_with_another_providers_model(protocol: str, tmp_path: Path) -> None:
    async def good(request: Request, reply: Reply) -> None:
        CHECKS[protocol](request.json)
        assert b"signature" not in request.body and b"It said hi." in request.body
        await reply.stream(ANSWERS[protocol]("Then we are done."))

    store = tmp_path / "s.db"
    async with harness.open_session(store, model=Thinker(), tools=[harness.bash()], workspace=tmp_path) as session:
        await session.run("Say hi.")
    async with serving(good) as server, AsyncExitStack() as stack:
        model = from_provider(NAMES[protocol], base_url=server.url, environ=ENVIRON)
        stack.push_async_callback(model.aclose)
        async with harness.open_session(store, session_id=session.id, model=model) as again:
            result = await again.run("Are we done?")
    assert (result.outcome, result.text) == ("completed", "Then we are done.")
    replay = await harness.replay(store, session.id)
    assert (harness.check(replay.events), replay.check()) == ([], [])
    *_, last = replay.requests()
    assert last.left_out == ("2 reasoning items of elsewhere",)
