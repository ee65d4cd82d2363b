"""Fragments of tool calls, from servers that number and name them in every way. Numbers are those of the fault list."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llm.chat_calls import CallFragments


def put(*chunks: list[Any]) -> list[tuple[str, str, str]]:
    """The calls that these chunks make; asserts that the deltas say the same."""
    fragments = CallFragments()
    said: dict[int, tuple[str, str]] = {}
    for chunk in chunks:
        for delta in fragments.take(chunk):
            name, arguments = said.get(delta.index, ("", ""))
            said[delta.index] = (name + delta.name, arguments + delta.arguments)
    calls = [(slot.id, slot.name, slot.arguments) for slot in fragments.slots]
    assert [said[index] for index in range(len(calls))] == [call[1:] for call in calls]
    return calls


def part(index: int | None = None, identity: str | None = None, name: str | None = None, arguments: Any = None) -> Any:
    """A fragment with only the fields that are given."""
    function = {"name": name, "arguments": arguments}
    whole = {"index": index, "id": identity, "function": {k: v for k, v in function.items() if v is not None}}
    return {key: value for key, value in whole.items() if value is not None}


A, B = '{"command": "echo A"}', '{"command": "echo B"}'
TWO = [("a", "bash", A), ("b", "bash", B)]
NAMELESS = [("", "bash", A), ("", "bash", B)]

CASES = {
    "as documented": (
        [[part(0, "a", "bash", "")], [part(0, arguments=A[:5])], [part(0, arguments=A[5:])], [part(1, "b", "bash", B)]],
        TWO,
    ),
    "interleaved": (
        [
            [part(0, "a", "bash", ""), part(1, "b", "bash", "")],
            [part(0, arguments=A[:5]), part(1, arguments=B[:7])],
            [part(1, arguments=B[7:]), part(0, arguments=A[5:])],
        ],
        TWO,
    ),
    "25: all index 0": ([[part(0, "a", "bash", A)], [part(0, "b", "bash", B)]], TWO),
    "25: no index": ([[part(None, "a", "bash", A)], [part(None, "b", "bash", B)]], TWO),
    "25: both in one chunk": ([[part(0, "a", "bash", A), part(0, "b", "bash", B)]], TWO),
    "index 0 in fragments": (
        [[part(0, "a", "bash", "")], [part(0, arguments=A)], [part(0, "b", "bash", "")], [part(0, arguments=B)]],
        TWO,
    ),
    "no index in fragments": (
        [[part(None, "a", "bash", A[:4])], [part(arguments=A[4:])], [part(None, "b", "bash")], [part(arguments=B)]],
        TWO,
    ),
    "id in every fragment": (
        [
            [part(0, "a", "bash", A[:4])],
            [part(0, "a", None, A[4:])],
            [part(1, "b", "bash", B[:4])],
            [part(1, "b", None, B[4:])],
        ],
        TWO,
    ),
    "id and name in every fragment": (
        [
            [part(0, "a", "bash", A[:4])],
            [part(0, "a", "bash", A[4:])],
            [part(0, "b", "bash", B[:4])],
            [part(0, "b", "bash", B[4:])],
        ],
        TWO,
    ),
    "only ids, interleaved": (
        [[part(None, "a", "bash")], [part(None, "b", "bash")], [part(None, "a", None, A)], [part(None, "b", None, B)]],
        TWO,
    ),
    "no ids": ([[part(0, None, "bash", A)], [part(1, None, "bash", B)]], NAMELESS),
    "empty ids": ([[part(0, "", "bash", A)], [part(0, "", "bash", B)]], NAMELESS),
    "neither": ([[part(None, None, "bash", A)], [part(None, None, "bash", B)]], NAMELESS),
    "neither, one chunk": ([[part(None, None, "bash", A), part(None, None, "bash", B)]], NAMELESS),
    "neither, in pieces": (
        [
            [part(None, None, "bash", A[:3])],
            [part(arguments=A[3:])],
            [part(None, None, "bash", B[:3])],
            [part(arguments=B[3:])],
        ],
        NAMELESS,
    ),
    "one id for two calls": (
        [[part(0, "a", "bash", A)], [part(1, "a", "bash", B)]],
        [("a", "bash", A), ("a", "bash", B)],
    ),
    "one id for two calls, interleaved": (
        [[part(0, "a", "bash", "")], [part(1, "a", "bash", "")], [part(0, arguments=A)], [part(1, arguments=B)]],
        [("a", "bash", A), ("a", "bash", B)],
    ),
    "a server that counts fragments": ([[part(0, "a", "bash", A[:4])], [part(1, "a", None, A[4:])]], TWO[:1]),
    "said twice": ([[part(0, "a", "bash", A)], [part(0, "a", "bash", A)]], TWO[:1]),
    "an empty end": ([[part(0, "a", "bash", A)], [part(0, "a", "", "")], [part(0)]], TWO[:1]),
    "arguments as an object": (
        [[part(0, "a", "bash", {"command": "echo A"})]],
        [("a", "bash", '{"command":"echo A"}')],
    ),
    "27: no arguments": ([[part(0, "a", "now")], [part(1, "b", "now", "")]], [("a", "now", ""), ("b", "now", "")]),
    "no arguments, no index, no id": (
        [[part(None, None, "now")], [part(None, None, "later")]],
        [("", "now", ""), ("", "later", "")],
    ),
    "27: two objects of the model's own": ([[part(0, "a", "bash", A)], [part(0, arguments=B)]], [("a", "bash", A + B)]),
    "white space after the end": ([[part(0, "a", "bash", A)], [part(0, arguments=" \n")]], [("a", "bash", A + " \n")]),
    "malformed beside good, neither numbered": (
        [[part(None, None, "bash", "{,}"), part(None, None, "bash", B)]],
        [("", "bash", "{,}"), ("", "bash", B)],
    ),
    "not even fragments": ([["x", None, 5, {}]], [("", "", "")]),
}


@pytest.mark.parametrize(("chunks", "expected"), CASES.values(), ids=CASES)
def test_each_call_gets_its_own_id_name_and_arguments(chunks: list[list[Any]], expected: list[Any]) -> None:
    assert put(*chunks) == expected


def test_a_providers_own_fields_of_a_call_are_kept() -> None:
    fragments = CallFragments()
    fragments.take([{**part(0, "a", "bash", A), "extra_content": {"google": {"thought_signature": "xyz"}}}])
    assert fragments.slots[0].extra == {"extra_content": {"google": {"thought_signature": "xyz"}}}


COMMANDS = st.lists(st.text(max_size=12), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(
    commands=COMMANDS,
    style=st.sampled_from(["documented", "all zero", "no index", "no id", "repeating"]),
    data=st.data(),
)
def test_any_cutting_in_any_numbering_gives_the_calls_back(
    commands: list[str], style: str, data: st.DataObject
) -> None:
    chunks: list[list[Any]] = []
    expected = []
    for number, command in enumerate(commands):
        arguments = json.dumps({"command": command})
        index = {"documented": number, "all zero": 0, "no index": None, "no id": number, "repeating": number}[style]
        identity = None if style == "no id" else f"id{number}"
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        for position, piece in enumerate(pieces):
            first = position == 0 or style == "repeating"
            chunks.append([part(index, identity if first else None, "bash" if first else None, piece)])
        expected.append((identity or "", "bash", arguments))
    assert put(*chunks) == expected
