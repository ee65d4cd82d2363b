"""The official SDKs and we read the same bytes alike. The SDKs run in a thread, against the same server on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
import trio

from tests.llm.server import serving, streams
from tests.llm.shapes import ANSWERS, calls_of, read, text_of

MESSAGES: Any = [{"role": "user", "content": "hi"}]


def by_chat(url: str) -> tuple[str, list[tuple[str, str]], int]:
    options: Any = {"include_usage": True}
    with (
        openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client,
        client.chat.completions.stream(model="m", messages=MESSAGES, stream_options=options) as stream,
    ):
        done = stream.get_final_completion()
    message = done.choices[0].message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or []]
    assert done.usage is not None
    return message.content or "", calls, done.usage.completion_tokens


def by_responses(url: str) -> tuple[str, list[tuple[str, str]], int]:
    with (
        openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client,
        client.responses.stream(model="m", input="hi") as stream,
    ):
        done = stream.get_final_response()
    calls = [(item.name, item.arguments) for item in done.output if item.type == "function_call"]
    assert done.usage is not None
    return done.output_text, calls, done.usage.output_tokens


def by_messages(url: str) -> tuple[str, list[tuple[str, Any]], int]:
    with (
        anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client,
        client.messages.stream(model="m", max_tokens=9, messages=MESSAGES) as stream,
    ):
        done = stream.get_final_message()
    text = "".join(block.text for block in done.content if block.type == "text")
    calls = [(block.name, block.input) for block in done.content if block.type == "tool_use"]
    return text, calls, done.usage.output_tokens


BY: dict[str, Callable[[str], tuple[str, list[tuple[str, Any]], int]]] = {
    "chat": by_chat,
    "responses": by_responses,
    "messages": by_messages,
}

SAMPLES = {
    "text": ("hello", ()),
    "separators and wide characters": ("a\u2028b\u2029c\u0085d \u4f60\u597d \U0001f389", ()),
    "calls": ("", ("echo A", "echo B")),
    "both": ("Looking.", ("cat 'na\u00efve \\ \"x\"'", "ls", "pwd")),
}


@pytest.mark.parametrize("protocol", BY)
@pytest.mark.parametrize(("text", "commands"), SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["lf", "crlf"])
async def test_the_same_bytes_mean_the_same(protocol: str, text: str, commands: tuple[str, ...], end: bytes) -> None:
    body = ANSWERS[protocol](text, *commands).replace(b"\n", end)
    async with serving(streams(body)) as server:
        theirs = await trio.to_thread.run_sync(BY[protocol], server.url)
    ours, _ = read(protocol, body)
    calls: list[tuple[str, Any]] = list(calls_of(ours))
    if protocol == "messages":
        calls = [(name, json.loads(arguments)) for name, arguments in calls]
    assert theirs == (text_of(ours), calls, ours.usage.output) == (text, calls, 4)
