"""A dictionary that keeps what it was made with.  Pure.

Belongs here: what a frozen struct needs where one of its fields is a mapping that callers see.
Must not know: who uses it.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """Read, compared, encoded and copied as any dict; a change is a TypeError. `dict(it)` can be changed."""

    __slots__ = ()

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("this mapping is shared and cannot be changed. Make a dict of it, and a new value with that.")

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return FrozenDict, (dict(self),)  # the way of a dict sets one item after the other
