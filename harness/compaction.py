"""When the history has to shrink, what of it is kept, and the request for its summary.  Pure.

Belongs here: estimates of size in tokens, the threshold, the cut, and what the summarising turn sends.
Must not know: when a turn may start (decide.py), or any provider.

Token counts come from the provider's usage where it gives any; what has come since is estimated.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from harness.events import Reason
from harness.llm.model import (
    AssistantItem,
    Image,
    Item,
    ModelRequest,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from harness.state import SessionState
from harness.transcript import Entry, Result, Said, cut_middle, result_chars, size

CHARS_A_TOKEN: Final = 4
"""English prose and code average about four; it only has to carry from one provider's count to the next."""

IMAGE_TOKENS: Final = 1_500
"""An image within the providers' usual bounds (about 1.15 megapixels at 750 pixels a token)."""

MAX_IMAGES: Final = 80
MAX_IMAGE_BYTES: Final = 20_000_000
"""Under the strictest provider's 100 images and 32 MB a request, base64 and the rest included."""

KEPT_SHARE: Final = 0.25
"""Of the window: what the turns that are kept whole may take, so that a compaction lasts for a while."""

SUMMARY_SHARE: Final = 0.5
"""Of the window: what the history may take in the request for its summary, so that this one fits for certain."""

UNKNOWN_WINDOW: Final = 32_000
"""Tokens assumed when a provider says that the context is too long and nobody knows its window."""

INSTRUCTIONS: Final = (
    "You are given the transcript of a conversation between a user, a model and its tools. Write what the model needs "
    "to go on without it: what the user wants, what was decided, what was done with which results, what is left to do, "
    "and every name, path, number and error that still matters. Only the summary, nothing else."
)


def context_tokens(state: SessionState) -> int:
    """Tokens that the next request is going to have, as well as can be known."""
    new = _uncounted_chars(state) + _new_chars(state)
    images = len(state.sent.images) - state.counted_images
    return state.counted_tokens + new // CHARS_A_TOKEN + max(0, images) * IMAGE_TOKENS


def _uncounted_chars(state: SessionState) -> int:
    """Characters of the items that the provider has not counted."""
    if not state.counted_items:
        return state.sent.chars
    return sum(size(item) for item in state.sent.items[state.counted_items :])


def _new_chars(state: SessionState) -> int:
    """Characters that the next request says for the first time, its results as they are cut there."""
    answers = [state.calls[call_id].finished for call_id in state.unanswered]
    entries = [*(answer for answer in answers if answer is not None), *state.fresh]
    return result_chars(entries, state.config.policy) + sum(map(_other_chars, entries))


def _other_chars(entry: Entry) -> int:
    match entry:
        case Result():
            return sum(IMAGE_TOKENS * CHARS_A_TOKEN for part in entry.parts if isinstance(part, Image))
        case Said():
            return len(entry.message.text)
        case _:
            return 0


def is_due(state: SessionState) -> bool:
    """Whether the history should be summarised before the next turn: it nears the window, and shrinking it can help."""
    policy, images = state.config.policy, state.sent.images
    window = policy.window_tokens
    full = (
        (window is not None and context_tokens(state) > window * policy.compact_at)
        or len(images) > MAX_IMAGES
        or sum(image.size for image in images) > MAX_IMAGE_BYTES
    )
    return full and can_compact(state)  # in this order: where to cut costs a look at the history


def can_compact(state: SessionState) -> bool:
    """Whether a compaction would take anything away. Two without a turn between them would not."""
    return not state.compacted and cut(state) > 0


def cut(state: SessionState) -> int:
    """The index of the first item that is kept: the beginning of a response, so that no call loses its result.

    As many of the last turns as fit their share of the window are kept whole; the turn whose calls are not answered yet
    always is, and so is a message that no turn has answered yet. 0 when nothing can go: what was said before any
    response is not the model's to shorten.
    """
    places = [place for _, place in state.outputs]
    if not places:
        return 0
    tokens = max(1, context_tokens(state))
    window = state.config.policy.window_tokens or tokens
    room = window * KEPT_SHARE * (state.sent.chars / tokens)  # in characters of this history, whatever a token is here
    items = state.sent.items
    first = len(items)
    chars = 0
    for place in reversed(places):
        chars += sum(size(item) for item in items[place:first])
        if chars > room:
            break
        first = place
    if state.unanswered or _unheard(state):
        first = min(first, places[-1])
    return first


def _unheard(state: SessionState) -> bool:
    """Whether a message stands in the history that no turn has answered: those that had it were lost, cut or failed."""
    undelivered = sum(news.kind is Reason.INPUT for news in state.undelivered)
    return undelivered > sum(isinstance(entry, Said) for entry in state.fresh)


def keep_from(state: SessionState) -> str | None:
    """The turn from whose output on the items are kept, by what the summary covers; None when all of them go."""
    return next((turn_id for turn_id, place in state.outputs if place == state.covers), None)


def what_is_large(state: SessionState) -> str:
    """What a request is made of, in characters, for the line that says that it is too long."""
    config = state.config
    tools = len(msgspec.json.encode([tool.schema for tool in config.tools]))
    return (
        f"instructions {len(config.instructions)}, tools {tools}, history {state.sent.chars}, "
        f"new {_new_chars(state)} characters. Use a model with a larger window, or fork at an earlier turn"
    )


class SummaryRequest(msgspec.Struct, frozen=True):
    """The request of a summarising turn, and what turn_started says about it."""

    request: ModelRequest
    digest: str
    chars: int


def summary_request(state: SessionState, covers: int) -> SummaryRequest:
    """What the model is sent to summarise the first `covers` items: a transcript within its share of the window."""
    items = state.sent.items[:covers]
    window = state.config.policy.window_tokens or UNKNOWN_WINDOW
    most = int(window * SUMMARY_SHARE * CHARS_A_TOKEN)
    lines = [line for item in items for line in _lines(item, max(200, most // 20))]
    text = cut_middle("\n".join(lines), most)
    request = ModelRequest(
        instructions=INSTRUCTIONS,
        tools=(),
        items=[UserItem((Text(text),))],
        settings=state.config.settings,
        allow_tools=False,
    )
    head = msgspec.json.encode([INSTRUCTIONS, text, state.config.settings])
    return SummaryRequest(request, hashlib.blake2b(head, digest_size=16).hexdigest(), len(INSTRUCTIONS) + len(text))


def _lines(item: Item, most: int) -> list[str]:
    """An item as a person would read it, no part longer than `most` characters."""
    match item:
        case UserItem():
            return [f"user: {cut_middle(_said(item), most)}"]
        case ToolResultItem():
            return [f"result of {item.tool} {item.call_id}: {cut_middle(_said(item), most)}"]
        case AssistantItem():
            return [
                f"model calls {part.name} {part.call_id}: {cut_middle(part.arguments, most)}"
                if isinstance(part, ToolCall)
                else f"model: {cut_middle(part.text, most)}"
                for part in item.output
                if isinstance(part, (Text, ToolCall))
            ]


def _said(item: UserItem | ToolResultItem) -> str:
    return "\n".join(part.text if isinstance(part, Text) else "(an image)" for part in item.parts)
