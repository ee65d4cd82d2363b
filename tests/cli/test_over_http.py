"""`turnlog run` against a real server on loopback, over each protocol, with and without trouble in between."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from PIL import Image

import harness
from tests.llm.server import Handler, Reply, Request, answers, in_turn, serving
from tests.llm.shapes import ANSWERS
from tests.llm.validators import check_chat, check_messages, check_responses

CHECKS: dict[str, Any] = {"chat": check_chat, "responses": check_responses, "messages": check_messages}
MODELS = {"chat": "openai-chat:m", "responses": "openai:m", "messages": "anthropic:m"}
FIRST = ("sleep 0.5; echo slow", "sleep 0.1; echo quick", "exit 3", "image:red.png")
SECOND = ("echo a", "sleep 0.2; echo b", "false")
KEY = "the-key-of-this-test"


def talk(protocol: str, troubles: list[Handler]) -> Handler:
    """Two turns of calls, as many more as results land apart, and the answer when every command has reported."""

    async def good(request: Request, reply: Reply) -> None:
        CHECKS[protocol](request.json)
        body = request.body
        if b"t0001c000" not in body:
            await reply.stream(ANSWERS[protocol]("Looking.", *FIRST))
        elif b"t0002c000" not in body:
            await reply.stream(ANSWERS[protocol]("More.", *SECOND))
        else:
            await reply.stream(ANSWERS[protocol]("Done."))

    return in_turn(*troubles, good)


async def dropped(_request: Request, reply: Reply) -> None:
    await reply.begin()
    await reply.send(b": hello\n\n")
    await reply.close()


def slowly(protocol: str) -> Handler:
    async def drip(request: Request, reply: Reply) -> None:
        CHECKS[protocol](request.json)
        await reply.begin()
        await reply.drip(ANSWERS[protocol]("Looking.", *FIRST), 7)
        await reply.end()

    return drip


def environment(home: Path, url: str) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TURNLOG_")},
        "XDG_STATE_HOME": str(home),
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_BASE_URL": url,
        "ANTHROPIC_BASE_URL": url,
    }


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("troubled", [False, True], ids=["smooth", "troubled"])
async def test_parallel_commands_and_an_image(protocol: str, troubled: bool, tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    troubles = [answers(429, retry_after="0"), answers(500), dropped, slowly(protocol)] if troubled else []
    async with serving(talk(protocol, troubles)) as server:
        done = await trio.run_process(
            [
                *(sys.executable, "-m", "harness", "run", "--json", "--model", MODELS[protocol]),
                *("--workspace", str(tmp_path), "--store", str(tmp_path / "s.db"), "-p", "Look around."),
            ],
            env=environment(tmp_path, server.url),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout.decode()[-3000:] + done.stderr.decode()
    *events, result = [json.loads(line) for line in done.stdout.splitlines()]
    assert (result["kind"], result["outcome"]) == ("result", "completed")
    outcomes = [call["outcome"] for call in result["tool_calls"]]
    assert outcomes == ["ok", "ok", "failed", "ok", "ok", "ok", "failed"]
    attempts = [event.get("attempts", 1) for event in events if event["kind"] == "turn_finished"]
    assert attempts[0] == (4 if troubled else 1)
    assert KEY not in done.stdout.decode() + done.stderr.decode()
    (session,) = await harness.sessions(tmp_path / "s.db")
    log = await harness.read_events(tmp_path / "s.db", session.id)
    assert harness.check(log) == []
    assert harness.Replay(session.id, log).check() == []
