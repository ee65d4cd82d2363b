"""Requests as each protocol wants them: pairing, content, the official SDKs' types. Numbers: the fault list."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic.types
import msgspec
import openai.types.chat
import openai.types.responses
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator

from harness.llm import chat_wire, messages_wire, responses_wire, wire
from harness.llm.model import (
    AssistantItem,
    Image,
    Item,
    ModelRequest,
    ModelSettings,
    Reasoning,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from harness.llm.providers import PROVIDERS
from tests.llm.shapes import BASH, asking, result, said, user
from tests.llm.validators import check_chat, check_messages, check_responses

PNG = Image("d1", "image/png", 1, 1, 3)
BLOBS = {"d1": b"png"}


def to_chat(request: ModelRequest, provider: str = "openai-chat") -> dict[str, Any]:
    return chat_wire.encode(request, chat_wire.Encoding(PROVIDERS[provider], "m"))


def to_responses(request: ModelRequest) -> dict[str, Any]:
    return responses_wire.encode(request, "m")


def to_messages(request: ModelRequest) -> dict[str, Any]:
    return messages_wire.encode(request, "m")


def plain(body: dict[str, Any]) -> dict[str, Any]:
    """As it is on the wire."""
    return msgspec.json.decode(msgspec.json.encode(body))


CHECKS: dict[str, Callable[[ModelRequest], None]] = {
    "chat": lambda request: check_chat(plain(to_chat(request))),
    "mistral": lambda request: check_chat(plain(to_chat(request, "mistral")), strict_roles=True),
    "responses": lambda request: check_responses(plain(to_responses(request))),
    "messages": lambda request: check_messages(plain(to_messages(request))),
}


def strict(params: Any) -> SchemaValidator:
    """A validator of an SDK's parameter type that looks into every list at once and knows every field."""

    def walk(schema: Any) -> Any:
        if isinstance(schema, list):
            return [walk(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        schema = {key: walk(value) for key, value in schema.items() if key != "serialization"}
        if schema.get("type") == "generator":  # pydantic checks an Iterable only when it is iterated
            schema["type"] = "list"
        if schema.get("type") == "typed-dict" and (schema.get("config") or {}).get("extra_fields_behavior") != "allow":
            schema["extra_behavior"] = "forbid"
        return schema

    return SchemaValidator(walk(TypeAdapter(params).core_schema))


VALIDATORS = {
    "chat": strict(openai.types.chat.completion_create_params.CompletionCreateParamsStreaming),
    "responses": strict(openai.types.responses.response_create_params.ResponseCreateParamsStreaming),
    "messages": strict(anthropic.types.message_create_params.MessageCreateParamsStreaming),
}
ENCODERS: dict[str, Callable[[ModelRequest], dict[str, Any]]] = {
    "chat": to_chat,
    "responses": to_responses,
    "messages": to_messages,
}


# --- states of a session, as items

TEXTS = st.sampled_from(["", " ", "\n", "hello", "a\ud800b", "\u2028", "x" * 50])
ARGUMENTS = st.sampled_from(
    ["", "{}", '{"command":"ls"}', '{"command":"ls"', "[]", "null", "5", '{"a":1}{"b":2}', "\ud800", "[" * 5000]
)
NAMES = st.sampled_from(["bash", "", "no.such tool", "x" * 90, "na\u00efve"])
PARTS = st.lists(st.builds(Text, TEXTS) | st.just(PNG) | st.just(Image("gone", "image/png")), max_size=3).map(tuple)
OPAQUE = {
    "anthropic": '{"type":"thinking","thinking":"hm","signature":"s"}',
    "openai": '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"}',
    "openrouter": '{"reasoning_details":[{"type":"reasoning.text","text":"hm"}]}',
    "mistral": '{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}',
}
REASONING = st.sampled_from(sorted(OPAQUE)).map(lambda name: Reasoning("hm", name, OPAQUE[name]))


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    """Items that keep the one promise of the contract: an answer's results follow it at once, in order."""
    items: list[Item] = []
    number = 0
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from(["user", "turn", "late", "cut"]))
        if kind == "user":
            items.append(UserItem(draw(PARTS)))
        elif kind == "late":
            items.append(user("Result of call t0001c000 (bash):\nexit status 0\n\nok"))
        elif kind == "cut":
            items += [AssistantItem((Text("Plan: 1."),)), user("(Your reply was cut off here by the user.)")]
        else:
            output: list[Any] = draw(st.lists(st.builds(Text, TEXTS) | REASONING, max_size=3))
            calls = []
            for _ in range(draw(st.integers(0, 3))):
                number += 1
                calls.append(
                    ToolCall(
                        draw(NAMES), draw(ARGUMENTS), call_id=f"c{number:08}", provider_id="same", provider="openai"
                    )
                )
            items.append(AssistantItem((*output, *calls), draw(st.sampled_from(sorted(OPAQUE)))))
            items += [ToolResultItem(call.call_id, call.name, draw(PARTS), draw(st.booleans())) for call in calls]
    return [*items, user("go on")]


@settings(max_examples=120, deadline=None)
@given(items=histories(), allow=st.booleans())
def test_1_every_state_can_be_sent_to_every_provider(items: list[Item], allow: bool) -> None:
    request = asking(*items, allow_tools=allow, blobs=BLOBS)
    for check in CHECKS.values():
        check(request)


@settings(max_examples=60, deadline=None)
@given(items=histories(), allow=st.booleans())
@pytest.mark.parametrize("protocol", VALIDATORS)
def test_the_official_types_accept_every_body(protocol: str, items: list[Item], allow: bool) -> None:
    how = ModelSettings(max_output_tokens=100, temperature=0.5, reasoning_effort="high", cache_key="k")
    request = asking(*items, allow_tools=allow, blobs=BLOBS, settings=how)
    VALIDATORS[protocol].validate_python(plain(ENCODERS[protocol](request)))


@pytest.mark.parametrize("protocol", VALIDATORS)
def test_the_check_of_types_looks_deep_enough(protocol: str) -> None:
    body = plain(ENCODERS[protocol](asking(user("hi"))))
    VALIDATORS[protocol].validate_python(body)
    (list_name,) = (name for name in ("messages", "input") if name in body)
    for broken in ({**body, "banana": 1}, {**body, list_name: [*body[list_name], {"role": "banana"}]}):
        with pytest.raises(ValueError, match="banana"):
            VALIDATORS[protocol].validate_python(broken)


# --- single rules

EMPTY: dict[str, list[Item]] = {
    "4b": [AssistantItem((Text(""), ToolCall("bash", "{}", call_id="c1")), "openai"), result("c1", "x")],
    "4c": [said("\n")],
    **{f"4d {name}": [AssistantItem((Reasoning("hm", name, kept),), name)] for name, kept in OPAQUE.items()},
    **{f"4d text {n}": [AssistantItem((Text("a"), Reasoning("hm", n, kept)), n)] for n, kept in OPAQUE.items()},
    "4e": [said("", ("c1", "{}")), result("c1", "")],
    "nothing": [UserItem(()), AssistantItem(()), UserItem((Text(" "),))],
}


@pytest.mark.parametrize("protocol", CHECKS)
@pytest.mark.parametrize("items", EMPTY.values(), ids=EMPTY)
def test_4_what_is_empty_is_left_out(protocol: str, items: list[Item]) -> None:
    CHECKS[protocol](asking(user("a"), *items, user("b")))


ROUND = [
    user("a"),
    said("", ("c1", '{"command":"ls"}'), ("c2", "{}")),
    result("c1", "one"),
    result("c2", "two", failed=True),
]


def test_what_was_sent_stays_the_prefix_of_what_is_sent_next() -> None:
    more = [*ROUND, said("done"), user("b")]
    for encode, key in ((to_chat, "messages"), (to_responses, "input")):
        first, second = encode(asking(*ROUND))[key], encode(asking(*more))[key]
        assert second[: len(first)] == first
    first, second = to_messages(asking(*ROUND))["messages"], to_messages(asking(*more))["messages"]
    assert _unmarked(second[: len(first)]) == _unmarked(first)


def _unmarked(messages: list[dict[str, Any]]) -> Any:
    return json.loads(json.dumps(messages).replace(', "cache_control": {"type": "ephemeral"}', ""))


def test_chat_in_full() -> None:
    body = to_chat(asking(*ROUND, said("ok"), user("b"), settings=ModelSettings(max_output_tokens=9, cache_key="k")))
    call = {"type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", **call},
                {"id": "c2", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "b"},
    ]
    function = {"name": "bash", "description": "Run a command.", "parameters": BASH.parameters}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert (body["max_completion_tokens"], body["prompt_cache_key"]) == (9, "k")
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})


def test_images_of_results_follow_the_last_result() -> None:
    shown = ToolResultItem("c1", "view_image", (PNG,))
    items = [user("a"), said("", ("c1", "{}"), ("c2", "{}")), shown, result("c2", "two"), user("b")]
    *_, first, second, last = to_chat(asking(*items, blobs=BLOBS))["messages"]
    assert (first["content"], second["content"], last["role"]) == ("(the image follows)", "two", "user")
    label, image, text = last["content"]
    assert "c1 (view_image)" in label["text"]
    assert (image["image_url"]["url"], text["text"]) == ("data:image/png;base64,cG5n", "b")
    *_, message = to_messages(asking(*items, blobs=BLOBS))["messages"]
    assert message["content"][0]["content"][0]["source"]["data"] == "cG5n"
    output = to_responses(asking(*items, blobs=BLOBS))["input"][3]["output"]
    assert output == [{"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "auto"}]


def test_only_the_maker_of_reasoning_gets_it_back() -> None:
    items = [
        user("a"),
        *(AssistantItem((Reasoning("hm", name, kept), Text("x")), name) for name, kept in OPAQUE.items()),
        user("b"),
    ]
    request = asking(*items)
    assert [item["type"] for item in to_responses(request)["input"]].count("reasoning") == 1
    blocks = [block["type"] for message in to_messages(request)["messages"] for block in message["content"]]
    assert blocks.count("thinking") == 1
    assert "reasoning_details" not in json.dumps(to_chat(request))
    assert json.dumps(to_chat(request, "openrouter")).count("reasoning_details") == 1
    (thinking,) = (m["content"] for m in to_chat(request, "mistral")["messages"] if isinstance(m["content"], list))
    assert [part["type"] for part in thinking] == ["thinking", "text"]
    others = [name for name in OPAQUE if name != "openai"]
    assert wire.left_out(request.items, "openai") == [f"1 reasoning items of {name}" for name in others]


def test_the_phase_of_a_message_goes_back_with_it() -> None:
    phase = Reasoning("", "openai", '{"type":"message_phase","phase":"commentary"}')
    output = AssistantItem((phase, Text("looking"), ToolCall("bash", "{}", call_id="c1")), "openai")
    body = to_responses(asking(user("a"), output, result("c1", "x")))
    assert body["input"][1] == {"type": "message", "role": "assistant", "content": "looking", "phase": "commentary"}
    check_responses(body)


@pytest.mark.parametrize(
    ("raw", "sent"),
    [
        ("", {}),
        ("  ", {}),
        ("{}", {}),
        ('{"a":1}', {"a": 1}),
        ("null", {"malformed_arguments": "null"}),
        ('{"command":"ls"', {"malformed_arguments": '{"command":"ls"'}),
        ('{"command":"ls",}', {"malformed_arguments": '{"command":"ls",}'}),
        ("a\ud800b", {"malformed_arguments": "a\ufffdb"}),
        ("[" * 100_000, {"malformed_arguments": "[" * 200 + "..."}),
    ],
)  # fmt: skip
def test_27_arguments_that_are_no_object_go_back_as_one(raw: str, sent: dict[str, Any]) -> None:
    assert wire.safe_arguments(raw) == sent


@pytest.mark.parametrize(
    ("text", "cut"),
    [('{"a":"b', True), ('{"a":', True), ("{", True), ('{"a":[1,2', True), ('{"a":"}', True), ('{"a":"\\"}', True),
     ("{}", False), ('{"a":1,}', False), ('{"a":1}{"b"', False), ("", False), ("[1", False), ("ls", False),
     ('{"a":"{"}', False)],
)  # fmt: skip
def test_cut_is_not_malformed(text: str, cut: bool) -> None:
    assert wire.is_cut(text) is cut


def test_without_leave_to_call_the_tools_stay_declared() -> None:
    request = asking(user("a"), allow_tools=False)
    assert to_chat(request)["tool_choice"] == to_responses(request)["tool_choice"] == "none"
    assert to_messages(request)["tool_choice"] == {"type": "none"}
    assert all(encode(request)["tools"] for encode in (to_chat, to_responses, to_messages))
    assert "tools" not in to_chat(request, "ollama")  # it ignores tool_choice
    bare = asking(user("a"), tools=(), allow_tools=False)
    assert all("tool_choice" not in encode(bare) for encode in (to_chat, to_responses, to_messages))


def test_rows_differ_where_the_providers_do() -> None:
    how = ModelSettings(max_output_tokens=9, reasoning_effort="low", cache_key="k")
    bodies = {
        name: to_chat(asking(user("a"), settings=how), name)
        for name, row in PROVIDERS.items()
        if row.protocol.name == "CHAT"
    }
    assert bodies["openrouter"]["reasoning"] == {"effort": "low"}
    assert bodies["mistral"]["reasoning_effort"] == "low"
    assert [name for name, body in bodies.items() if "prompt_cache_key" in body] == ["openai-chat"]
    assert [name for name, body in bodies.items() if "max_tokens" not in body] == ["openai-chat"]


def test_messages_mark_the_stable_prefix_for_the_cache() -> None:
    body = to_messages(asking(*ROUND, said("ok"), user("b")))
    assert "cache_control" in body["system"][0]
    marked = [index for index, message in enumerate(body["messages"]) if "cache_control" in message["content"][-1]]
    assert marked == [2, 4]
    assert messages_wire.encode(asking(user("a")), "m")["max_tokens"] == messages_wire.MAX_TOKENS


@pytest.mark.parametrize(
    ("effort", "adaptive", "expected"),
    [
        ("high", True, {"type": "adaptive"}),
        ("high", False, {"type": "enabled", "budget_tokens": 16384}),
        ("none", True, {"type": "disabled"}),
    ],
)
def test_messages_think_as_hard_as_asked(effort: str, adaptive: bool, expected: dict[str, Any]) -> None:
    request = asking(user("a"), settings=ModelSettings(reasoning_effort=effort))
    assert messages_wire.encode(request, "m", adaptive=adaptive)["thinking"] == expected


def test_a_paused_response_goes_back_as_the_last_message() -> None:
    body = to_messages(asking(user("a"), AssistantItem((Text("so far \n"),), "anthropic")))
    assert body["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "so far"}]}
