"""What is remembered of earlier requests is what would be made again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.llm import wire
from harness.llm.jsontext import encoded
from harness.llm.making import from_provider
from harness.llm.memo import HISTORIES, Memo
from harness.llm.model import AssistantItem, Item, ModelRequest, ModelSettings, Text, ToolCall, ToolResultItem, UserItem
from tests.llm.shapes import asking
from tests.llm.test_requests import BLOBS, PNG, histories


def history(turns: int) -> list[Item]:
    items: list[Item] = [UserItem((Text("go"),))]
    for number in range(turns):
        call = ToolCall("step", f'{{"n": {number}}}', f"c{number}")
        items += [AssistantItem((Text("on"), call)), ToolResultItem(call.call_id, "step", (Text("done"),))]
    return items


def request_of(items: list[Item]) -> ModelRequest:
    return ModelRequest(instructions="", tools=(), items=items, settings=ModelSettings())


def test_an_item_is_made_once() -> None:
    memo: Memo[Item] = Memo()
    made: list[Item] = []

    def make(item: Item) -> Item:
        made.append(item)
        return item

    items = history(3)
    for length in range(1, len(items) + 1):
        assert memo.made(request_of(items[:length]), make) == items[:length]
    assert made == items


def test_equal_items_are_not_mixed_up_and_old_sessions_are_forgotten() -> None:
    memo: Memo[int] = Memo()
    sessions = [history(1) for _ in range(HISTORIES + 1)]
    for items in sessions:
        assert memo.made(request_of(items), id) == [id(item) for item in items]
    assert memo.made(request_of(sessions[0]), id) == [id(item) for item in sessions[0]]
    assert memo.made(request_of([]), id) == []


NAMES = ("openai-chat:m", "mistral:m", "openai:m", "anthropic:m")
ENVIRON = {"OPENAI_API_KEY": "k", "MISTRAL_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}


@settings(max_examples=60, deadline=None)
@given(items=histories(), data=st.data())
@pytest.mark.parametrize("name", NAMES)
def test_the_same_bytes_are_sent_with_and_without_a_memory(name: str, items: list[Item], data: st.DataObject) -> None:
    """Also when an image's bytes come to hand later, and when a request does not end where it did."""
    model = from_provider(name, environ=ENVIRON)
    for length in (*range(1, len(items) + 1), *data.draw(st.lists(st.integers(1, len(items)), max_size=3))):
        blobs = BLOBS if data.draw(st.booleans()) else {}
        request = asking(*items[:length], blobs=blobs)
        fresh = from_provider(name, environ=ENVIRON)
        assert encoded(model.encode(request)) == encoded(fresh.encode(request))


@pytest.mark.parametrize("name", NAMES)
def test_an_old_item_is_not_written_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = from_provider(name, environ=ENVIRON)
    items = history(3)
    model.encode(request_of(items[:-2]))
    parsed: list[str] = []

    def parse(raw: str) -> dict[str, Any]:
        parsed.append(raw)
        return {}

    monkeypatch.setattr(wire, "safe_arguments", parse)
    model.encode(request_of(items))
    assert parsed == ['{"n": 2}']


@pytest.mark.parametrize("name", NAMES)
def test_no_memory_holds_the_bytes_of_an_image(name: str) -> None:
    model = from_provider(name, environ=ENVIRON)
    model.encode(asking(UserItem((PNG,)), blobs=BLOBS))
    assert "cG5n" not in repr(vars(vars(model)["_memo"]))
