"""Live pieces of a session for whoever watches: bounded, never stored, never in anyone's way.

Belongs here: the shapes of the pieces, and handing them to any number of readers.
Must not know: what is done with them, or the log.
"""

from __future__ import annotations

import weakref
from collections import deque
from types import TracebackType
from typing import Final

import msgspec
import trio

from harness.llm.model import Delta

BUFFER: Final = 1024
"""Pieces that wait for one slow reader before the oldest are dropped."""


class ModelDelta(msgspec.Struct, frozen=True):
    """A piece of the response of a turn in flight."""

    turn_id: str
    delta: Delta


class OperationOutput(msgspec.Struct, frozen=True):
    """A piece of what a running operation prints."""

    operation_id: str
    text: str


class Dropped(msgspec.Struct, frozen=True):
    """This reader was too slow: `count` pieces before the next one are gone."""

    count: int


Piece = ModelDelta | OperationOutput | Dropped


class Deltas:
    """An async iterator of live pieces, from now until the session closes. May be left at any point."""

    def __init__(self, hub: DeltaHub) -> None:
        self._hub = hub
        self._pieces: deque[ModelDelta | OperationOutput] = deque()
        self._dropped = 0
        self._wakeup = trio.Event()
        self._ended = False

    def __aiter__(self) -> Deltas:
        return self

    async def __anext__(self) -> Piece:
        while not self._pieces and not self._dropped and not self._ended:
            self._wakeup = trio.Event()
            await self._wakeup.wait()
        if self._dropped:
            count, self._dropped = self._dropped, 0
            return Dropped(count)
        if self._pieces:
            return self._pieces.popleft()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop listening."""
        self._hub.forget(self)
        self.end()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Deltas:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def put(self, piece: ModelDelta | OperationOutput) -> None:
        """Hand a piece to this reader, dropping its oldest when it is too slow."""
        if len(self._pieces) >= BUFFER:
            self._pieces.popleft()
            self._dropped += 1
        self._pieces.append(piece)
        self._wakeup.set()

    def end(self) -> None:
        """Let the reader finish after what it has not read yet."""
        self._ended = True
        self._wakeup.set()


class DeltaHub:
    """Where a session puts its live pieces. Costs nothing while nobody listens."""

    def __init__(self) -> None:
        # Weak: a reader that was left by `break` must not be fed for the rest of the session.
        self._readers: weakref.WeakSet[Deltas] = weakref.WeakSet()
        self._closed = False

    def listen(self) -> Deltas:
        """A new reader, from now on."""
        reader = Deltas(self)
        if self._closed:
            reader.end()
        else:
            self._readers.add(reader)
        return reader

    def forget(self, reader: Deltas) -> None:
        """Stop handing pieces to a reader."""
        self._readers.discard(reader)

    def put(self, piece: ModelDelta | OperationOutput) -> None:
        """Hand a piece to every reader."""
        for reader in self._readers:
            reader.put(piece)

    def close(self) -> None:
        """No more pieces will come."""
        self._closed = True
        for reader in self._readers:
            reader.end()
        self._readers.clear()
