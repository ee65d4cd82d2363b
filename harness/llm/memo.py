"""What was made of the items of earlier requests.  Pure.

Belongs here: the promise that encoding a request costs what is new in it, not what is old.
Must not know: what is made of an item.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Final, Generic, TypeVar

from harness.llm.model import Item, ModelRequest

T = TypeVar("T")

HISTORIES: Final = 8
"""How many sessions that share one model object are remembered at once."""


class Memo(Generic[T]):
    """By session, which its first item stands for: the items of its last request, with what was made of each.

    Items are unchanging values and the history hands out the same ones again, so identity is enough, and comparing
    texts would cost what is to be saved. What is no longer the beginning of a request is made anew: histories grow at
    their end, except at a compaction. What was made is shared between requests and must not be changed.
    """

    def __init__(self) -> None:
        self._histories: dict[int, tuple[list[Item], list[T]]] = {}

    def made(self, request: ModelRequest, make: Callable[[Item], T]) -> list[T]:
        """What `make` gives for each item, old ones from memory."""
        if not request.items:
            return []
        items = list(request.items)
        first = id(items[0])  # it is remembered as long as the entry is, so its id is nobody else's
        before, values = self._histories.pop(first, ([], []))
        known = _same(before, items)
        values = values[:known]
        values.extend(map(make, items[known:]))
        self._histories[first] = items, values
        while len(self._histories) > HISTORIES:
            del self._histories[next(iter(self._histories))]
        return values.copy()


def _same(before: list[Item], items: list[Item]) -> int:
    """How many items at the beginning of both are the same objects."""
    same = list(map(is_, before, items))
    return len(same) if all(same) else same.index(False)
