"""What is remembered of earlier requests is what would be made again."""

from __future__ import annotations

from harness.llm import chat_wire
from harness.llm.memo import HISTORIES, Memo
from harness.llm.model import AssistantItem, Item, ModelRequest, ModelSettings, Text, ToolCall, ToolResultItem, UserItem
from harness.llm.providers import PROVIDERS


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


def test_a_request_is_written_the_same_with_and_without_a_memory() -> None:
    encoding = chat_wire.Encoding(PROVIDERS["openai-chat"], "m")
    memo: Memo[chat_wire.Written] = Memo()
    items = history(4)
    for length in range(1, len(items) + 1):
        request = request_of(items[:length])
        assert chat_wire.encode(request, encoding, memo) == chat_wire.encode(request, encoding)
