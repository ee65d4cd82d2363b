"""The scripted model: which reply it chooses, how it plays it, and what it says about bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from harness.llm import BadModel
from harness.llm.model import (
    AssistantItem,
    Delta,
    ErrorKind,
    Item,
    ModelError,
    ModelRequest,
    ModelResponse,
    Reasoning,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)
from harness.llm.script_file import BadScript
from harness.llm.scripted import Scripted
from tests.llm.shapes import asking, joined, result, text_of, user


async def say(model: Scripted, *items: Item) -> ModelResponse:
    return await model.respond(asking(*items), emit=lambda _: None)


def heard(text: str) -> AssistantItem:
    return AssistantItem((Text(text),), "scripted")


async def test_replies_come_in_order_and_history_says_which_are_used() -> None:
    model = Scripted([{"text": "one"}, {"text": "two"}])
    assert text_of(await say(model, user("a"))) == "one"
    assert text_of(await say(model, user("a"))) == "one"  # asked again: nothing was said yet
    history: list[Item] = [user("a"), heard("one"), user("b")]
    assert text_of(await say(model, *history)) == "two"
    # another process, and a branch from before the first reply
    assert text_of(await say(Scripted([{"text": "one"}, {"text": "two"}]), *history)) == "two"
    assert text_of(await say(model, user("other branch"))) == "one"
    with pytest.raises(ModelError, match=r"no reply left for turn 3, which came after: 'c'") as caught:
        await say(model, *history, heard("two"), user("c"))
    assert caught.value.kind is ErrorKind.BAD_REQUEST


async def test_two_equal_replies_are_two_replies() -> None:
    model = Scripted([{"text": "yes"}, {"text": "yes"}, {"text": "no"}])
    assert text_of(await say(model, user("a"), heard("yes"))) == "yes"
    assert text_of(await say(model, user("a"), heard("yes"), heard("yes"))) == "no"


@pytest.mark.parametrize(
    ("when", "fits"),
    [
        ({"contains": "needle"}, True),
        ({"contains": "Be brief"}, False),  # instructions are not looked at
        ({"contains": "ls -l"}, True),  # calls are
        ({"last_contains": "needle"}, False),
        ({"last_contains": "listing"}, True),
        ({"last_contains": "second"}, True),  # everything since the last response
        ({"regex": r"ne+dle\b"}, True),
        ({"regex": r"^nothing$"}, False),
        ({"turn": 2}, True),
        ({"turn": 1}, False),
        ({"turn": 2, "contains": "needle", "regex": "list"}, True),
        ({"turn": 2, "contains": "hay"}, False),
        ({}, True),
    ],
)
async def test_all_conditions_have_to_hold(when: dict[str, Any], fits: bool) -> None:
    call = AssistantItem((ToolCall("bash", '{"command":"ls -l"}', call_id="c1"),), "scripted")
    items = [user("find the needle"), call, result("c1", "listing"), user("second")]
    model = Scripted([{"when": when, "text": "special"}, {"text": "plain", "repeat": True}])
    assert text_of(await say(model, *items)) == ("special" if fits else "plain")


async def test_a_repeating_reply_is_never_used_up() -> None:
    model = Scripted([{"text": "once"}, {"text": "again", "repeat": True}])
    items = [user("a"), heard("once"), heard("again"), heard("again")]
    assert text_of(await say(model, *items)) == "again"


async def test_errors_are_remembered_by_the_object() -> None:
    model = Scripted(
        [{"error": {"kind": "overloaded", "status": 529, "message": "busy", "retry_after_s": 3}}, {"text": "ok"}]
    )
    with pytest.raises(ModelError, match="busy") as caught:
        await say(model, user("a"))
    assert (caught.value.kind, caught.value.status, caught.value.retry_after_s) == (ErrorKind.OVERLOADED, 529, 3)
    assert text_of(await say(model, user("a"))) == "ok"


async def test_a_reply_with_everything() -> None:
    reply = {
        "text": "Looking at the files of this folder now.",
        "reasoning": "hm",
        "calls": [
            {"name": "bash", "arguments": {"command": "ls"}},
            {"name": "bash", "arguments": '{"command":'},
            {"name": "now"},
        ],
        "usage": {"input": 10, "output": 3},
    }
    deltas: list[Delta] = []
    response = await Scripted([reply]).respond(asking(user("a")), emit=deltas.append)
    assert response.output == (
        Reasoning("hm", "scripted"),
        Text(reply["text"]),
        ToolCall("bash", '{"command":"ls"}', provider="scripted"),
        ToolCall("bash", '{"command":', provider="scripted"),
        ToolCall("now", "{}", provider="scripted"),
    )
    assert (response.stop, response.usage) == (StopReason.TOOL_CALLS, Usage(input=10, output=3))
    assert sum(isinstance(delta, TextDelta) for delta in deltas) == 2
    calls = {0: ("bash", '{"command":"ls"}'), 1: ("bash", '{"command":'), 2: ("now", "{}")}
    assert joined(deltas) == (reply["text"], "hm", calls)


async def test_thinking_and_streaming_take_their_time(autojump_clock: object) -> None:
    model = Scripted([{"text": "x" * 100, "think_s": 1.5, "stream_s": 2.0, "stop": "length"}])
    moments: list[float] = []
    response = await model.respond(asking(user("a")), emit=lambda _: moments.append(trio.current_time()))
    assert response.stop is StopReason.LENGTH
    assert (moments[0], round(trio.current_time(), 6)) == (1.5, 3.5)
    with trio.move_on_after(1) as scope:
        await say(model, user("a"))
    assert scope.cancelled_caught


async def test_functions_are_replies_too() -> None:
    seen: list[ModelRequest] = []

    def first(request: ModelRequest) -> ModelResponse | None:
        seen.append(request)
        return ModelResponse((Text("mine"),)) if "b" in str(request.items) else None

    async def second(_request: ModelRequest) -> ModelResponse:
        await trio.lowlevel.checkpoint()
        return ModelResponse((Text("theirs"),), StopReason.REFUSAL, provider="other")

    def broken(_request: ModelRequest) -> ModelResponse:
        raise ModelError(ErrorKind.SERVER_ERROR, "boom")

    model = Scripted([broken, first, second])
    with pytest.raises(ModelError, match="boom"):
        await say(model, user("a"))
    response = await say(model, user("a"))
    assert (text_of(response), response.stop, response.provider) == ("theirs", StopReason.REFUSAL, "other")
    response = await say(model, user("b"))
    assert (text_of(response), response.provider, len(seen)) == ("mine", "scripted", 2)
    assert text_of(await say(model, user("b"), heard("mine"))) == "theirs"
    # Another process knows nothing of what the functions said, and takes them in their order.
    model = Scripted([first, second])
    assert text_of(await say(model, user("b"), heard("mine"))) == "theirs"


async def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps({"replies": [{"text": "hi"}]}))
    model = Scripted.from_file(str(path))
    assert (model.name, text_of(await say(model, user("a")))) == (f"scripted:{path}", "hi")
    await model.aclose()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (None, "cannot be read: No such file"),
        ("nonsense", "not JSON of the form"),
        ("[]", "not JSON of the form"),
        ('{"replies": 5}', "not JSON of the form"),
        ('{"replies": [], "x": 1}', "not JSON of the form.*x"),
        ('{"replies": [{"text": "a"}, {"txet": "b"}]}', "reply 2: .*txet"),
        ('{"replies": [5]}', "reply 1: "),
        ('{"replies": [{"when": {"regex": "("}}]}', "reply 1: .*unterminated"),
        ('{"replies": [{"think_s": -1}]}', "reply 1: think_s .* not -1"),
        ('{"replies": [{"stream_s": 1e999}]}', "script"),
        ('{"replies": [{"stop": "banana"}]}', "reply 1: .*banana"),
        ('{"replies": [{"error": {"kind": "banana"}}]}', "reply 1: .*banana"),
        ('{"replies": [{"calls": [{"name": "x", "arguments": 5}]}]}', "reply 1: .*arguments"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str | None, match: str) -> None:
    path = tmp_path / "replies.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadScript, match=match) as caught:
        Scripted.from_file(str(path))
    assert isinstance(caught.value, BadModel)
    assert "\n" not in str(caught.value)
    assert "replies.json" in str(caught.value)


def test_a_bad_reply_in_python_is_refused_as_well() -> None:
    with pytest.raises(BadScript, match="a reply"):
        Scripted([{"txet": "x"}])
