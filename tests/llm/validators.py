"""Each protocol's own rules about a request, written from its documentation. They raise AssertionError with the place.

Belongs here: what a strict server would refuse. Must not know: how our encoders work.
"""

from __future__ import annotations

import json
import re
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def text_is_not_blank(text: Any) -> None:
    assert isinstance(text, str), text
    assert text.strip(), "blank text"
    text.encode()


def check_chat(body: dict[str, Any], *, strict_roles: bool = False) -> None:
    """Chat Completions: one tool message for each call, right after it; with strict_roles, Mistral's order as well."""
    due: list[str] = []
    before = ""
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] in due, f"result of {message['tool_call_id']} is not due"
            due.remove(message["tool_call_id"])
            text_is_not_blank(message["content"])
            before = role
            continue
        assert not due, f"{role} before the results of {due}"
        if role == "assistant":
            calls = message.get("tool_calls", [])
            assert message["content"] or calls, "an assistant message with nothing in it"
            for call in calls:
                assert NAME.fullmatch(call["function"]["name"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
            due = [call["id"] for call in calls]
            assert len(set(due)) == len(due), "two calls of one id"
            if message["content"] is not None:
                _chat_content(message["content"])
        else:
            _chat_content(message["content"])
            assert not (role == before == "user"), "two users' messages in a row"
        assert not (strict_roles and role == "user" and before == "tool"), "user after tool"
        before = role
    assert not due, f"the request ends before the results of {due}"
    assert before in ("user", "tool"), f"the last message is of {before!r}"


def _chat_content(content: Any) -> None:
    if isinstance(content, str):
        text_is_not_blank(content)
        return
    assert content
    for part in content:
        if part["type"] == "text":
            text_is_not_blank(part["text"])
        else:
            assert part["type"] in ("image_url", "thinking")


def check_responses(body: dict[str, Any]) -> None:
    """The Responses API: each call has one output after it, each output its call; reasoning has its fruit."""
    calls: set[str] = set()
    done: set[str] = set()
    items = body["input"]
    for position, item in enumerate(items):
        match item["type"]:
            case "function_call":
                assert item["call_id"] not in calls, "two calls of one id"
                calls.add(item["call_id"])
                assert NAME.fullmatch(item["name"])
                assert isinstance(json.loads(item["arguments"]), dict)
            case "function_call_output":
                assert item["call_id"] in calls - done, f"output of {item['call_id']} is not due"
                done.add(item["call_id"])
                if isinstance(item["output"], str):
                    text_is_not_blank(item["output"])
            case "message":
                content = item["content"]
                if isinstance(content, str):
                    text_is_not_blank(content)
                else:
                    assert content
                for part in content if isinstance(content, list) else ():
                    if part["type"] == "input_text":
                        text_is_not_blank(part["text"])
            case "reasoning":
                following = items[position + 1]
                assert following["type"] in ("reasoning", "function_call") or following.get("role") == "assistant"
            case other:
                raise AssertionError(f"unknown item {other!r}")
    assert calls == done, f"no output of {calls - done}"


def check_messages(body: dict[str, Any]) -> None:
    """The Messages API: roles by turns, the results of a message's calls first in the next, few cache breakpoints."""
    due: list[str] = []
    marks = sum("cache_control" in block for block in body.get("system", []))
    for position, message in enumerate(body["messages"]):
        assert message["role"] == ("user", "assistant")[position % 2], "roles do not take turns"
        blocks = message["content"]
        assert blocks, "a message with nothing in it"
        marks += sum("cache_control" in block for block in blocks)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert sorted(results) == sorted(due), f"results {results}, due {due}"
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)]), "results do not come first"
        due = []
        for block in blocks:
            _block(block)
            if block["type"] == "tool_use":
                due.append(block["id"])
        assert len(set(due)) == len(due), "two calls of one id"
        assert blocks[-1]["type"] not in ("thinking", "redacted_thinking"), "thinking at the end"
    assert not due, f"the request ends before the results of {due}"
    assert marks <= 4, f"{marks} cache breakpoints"


def _block(block: dict[str, Any]) -> None:
    match block["type"]:
        case "text":
            text_is_not_blank(block["text"])
        case "tool_use":
            assert NAME.fullmatch(block["name"])
            assert isinstance(block["input"], dict)
        case "tool_result":
            assert block["content"]
            if block.get("is_error"):
                assert all(part["type"] == "text" for part in block["content"]), "an error with an image"
            for part in block["content"]:
                if part["type"] == "text":
                    text_is_not_blank(part["text"])
        case "thinking" | "redacted_thinking":
            assert "cache_control" not in block
        case other:
            assert other == "image", f"unknown block {other!r}"
