"""What was made of the items of earlier requests.  Pure.

Belongs here: the promise that encoding a request costs what is new in it, not what is old.
Must not know: what is made of an item.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from harness.llm.model import Item, ModelRequest

T = TypeVar("T")

HISTORIES: Final = 8
"""How many sessions that share one model object are remembered at once."""


class Memo(Generic[T]):
    """By session, which its first item stands for: each item of its last request, with what was made of it.

    Items are unchanging values and the history hands out the same ones again, so identity is enough, and comparing
    texts would cost what is to be saved. An item is kept as long as its entry: its id is nobody else's until then.
    What was made is shared between requests and must not be changed.
    """

    def __init__(self) -> None:
        self._histories: dict[int, dict[int, tuple[Item, T]]] = {}

    def made(self, request: ModelRequest, make: Callable[[Item], T]) -> list[T]:
        """What `make` gives for each item, old ones from memory."""
        if not request.items:
            return []
        first = id(request.items[0])
        known = self._histories.pop(first, {})
        entries = [known.get(id(item)) or (item, make(item)) for item in request.items]
        self._histories[first] = {id(item): (item, value) for item, value in entries}
        while len(self._histories) > HISTORIES:
            del self._histories[next(iter(self._histories))]
        return [value for _, value in entries]
