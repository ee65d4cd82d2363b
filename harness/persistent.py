"""Two append-only collections that share their memory between versions.  Pure.

Belongs here: what lets a state be an unchanging value although the next one differs by one element of thousands.
Must not know: what is kept in them.

A version is a view of the first `n` entries of a shared buffer. Appending to the newest version extends the buffer in
place; appending to an older one, as a branch does, copies first. No version ever sees another's entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar, cast, overload

T = TypeVar("T")
V = TypeVar("V")


class Vector(Sequence[T], Generic[T]):
    """An immutable sequence with amortised O(1) `extended`."""

    __slots__ = ("_buffer", "_length")

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._buffer: list[T] = list(values)
        self._length = len(self._buffer)

    def extended(self, values: Sequence[T]) -> Vector[T]:
        """A new version that ends with `values`; this one stays as it is."""
        if not values:
            return self
        # An empty version never lends its buffer: it may be a default value that outlives every user of it.
        newest = 0 < self._length == len(self._buffer)
        buffer = self._buffer if newest else self._buffer[: self._length]
        buffer.extend(values)
        new: Vector[T] = Vector.__new__(Vector)
        new._buffer, new._length = buffer, len(buffer)
        return new

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return self._buffer[start:stop:step] if step > 0 else [self._buffer[i] for i in range(start, stop, step)]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._buffer[index if index >= 0 else self._length + index]

    def __iter__(self) -> Iterator[T]:
        return islice(self._buffer, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, cast("Vector[T]", other), strict=True))

    __hash__ = None  # type: ignore[assignment]  # unhashable, as a list is

    def __repr__(self) -> str:
        return f"Vector({self[:]!r})"


class Ledger(Mapping[str, V], Generic[V]):
    """An immutable mapping of names to values to which names are only ever added, in amortised O(1)."""

    __slots__ = ("_buffer", "_length")

    def __init__(self) -> None:
        self._buffer: dict[str, tuple[int, V]] = {}
        self._length = 0

    def added(self, name: str, value: V) -> Ledger[V]:
        """A new version with one more name. Raises KeyError when this version has it already."""
        if name in self:
            raise KeyError(name)
        if 0 < self._length == len(self._buffer):
            buffer = self._buffer
        else:
            buffer = {key: entry for key, entry in self._buffer.items() if entry[0] < self._length}
        buffer[name] = (self._length, value)
        new: Ledger[V] = Ledger()
        new._buffer, new._length = buffer, self._length + 1
        return new

    def __getitem__(self, name: str) -> V:
        index, value = self._buffer[name]
        if index >= self._length:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, (index, _) in self._buffer.items() if index < self._length])

    def __len__(self) -> int:
        return self._length
