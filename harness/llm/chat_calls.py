"""Chat Completions: fragments of tool calls to whole calls.  Pure.

Belongs here: deciding which call a fragment belongs to, for servers that number, name and repeat in every way.
Must not know: anything else of a response.

The protocol says: each fragment has the `index` of its call; `id` and name come with the first. Servers were seen that
give every call index 0, no index, no id, one id for all, the name or the id in every fragment, or a call in one piece.
The rules below keep calls apart in all of these; a joined string of two objects never arises from two whole fragments.
"""

from __future__ import annotations

from typing import Any

import msgspec

from harness.llm import wire
from harness.llm.model import ToolCallDelta


class Slot(msgspec.Struct):
    """One call so far. extra: fields of the provider's own, kept as they came."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether its arguments are one JSON object, so that more of them can only be another call's."""
        return self.arguments.rstrip().endswith("}") and wire.is_object(self.arguments)


class CallFragments:
    """Puts calls together. `slots` are the calls in the order in which they began."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []

    def take(self, fragments: list[Any]) -> list[ToolCallDelta]:
        """Take the fragments of one chunk, and return what they add."""
        seen: set[int] = set()  # calls that this chunk has touched: without index or id, two fragments are two calls
        return [self._take(fragment, seen) for fragment in fragments if isinstance(fragment, dict)]

    def _take(self, fragment: dict[str, Any], seen: set[int]) -> ToolCallDelta:
        function = wire.mapping(fragment.get("function"))
        index = fragment.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        identity, name = wire.string(fragment.get("id")), wire.string(function.get("name"))
        arguments = wire.as_text(function.get("arguments"))

        number = self._find(index, identity, name, arguments, seen)
        if number is None:
            number = len(self.slots)
            self.slots.append(Slot(index))
        seen.add(number)
        slot = self.slots[number]
        first = not slot.name
        slot.id = slot.id or identity
        slot.name = slot.name or name
        if identity and slot.whole and arguments == slot.arguments:
            arguments = ""  # the same call of the same id said twice
        slot.arguments += arguments
        slot.extra |= {key: value for key, value in fragment.items() if key not in _KNOWN and value is not None}
        return ToolCallDelta(number, slot.name if first else "", arguments)

    def _find(self, index: int | None, identity: str, name: str, arguments: str, seen: set[int]) -> int | None:
        """The number of the call that a fragment goes on with, or None when it begins another."""
        number = self._latest(index, identity, name)
        if number is None:
            return None
        slot = self.slots[number]
        if identity and slot.id and identity != slot.id:
            return None
        if index is None and not identity and name and number in seen:
            return None
        if arguments.strip() and slot.whole:
            same = bool(identity) and identity == slot.id and arguments == slot.arguments
            # Without a name it is the tail of something malformed, and that is for the tool's answer to say.
            return number if same or not name else None
        if index is None and not identity and name and slot.name and not slot.arguments and not arguments:
            return None  # two calls without arguments
        return number

    def _latest(self, index: int | None, identity: str, name: str) -> int | None:
        numbers = range(len(self.slots) - 1, -1, -1)
        if index is not None:
            found = next((n for n in numbers if self.slots[n].index == index), None)
            if found is not None or not identity or name:
                return found
            # No name and a new index: a server that counts fragments instead of calls. The id is what stays the same.
            return next((n for n in numbers if self.slots[n].id == identity and not self.slots[n].whole), None)
        if identity:
            return next((n for n in numbers if self.slots[n].id == identity), None)
        return len(self.slots) - 1 if self.slots else None


_KNOWN = frozenset({"index", "id", "type", "function"})
