"""The queue of updates between a group and its owner.

Belongs here: waiting for updates, and taking what is there.
Must not know: what the updates are about.
"""

from __future__ import annotations

from collections import deque

import trio

from operations.operation import Update


class Updates:
    """Updates in the order in which they happened. Unbounded, since an operation causes only a handful of them.

    For one consumer. Iterating ends when the group has closed and everything has been taken; an iteration that is left
    at any point loses nothing.
    """

    def __init__(self) -> None:
        self._waiting: deque[Update] = deque()
        self._changed = trio.Event()
        self._closed = False

    def add(self, update: Update) -> None:
        """Append one."""
        self._waiting.append(update)
        self._changed.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        self._changed.set()

    def take_nowait(self) -> list[Update]:
        """Everything that is there now, oldest first; possibly nothing."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    async def receive(self) -> Update:
        """The next one, waiting for it. Raises trio.EndOfChannel when the group has closed and nothing is left."""
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._closed:
                raise trio.EndOfChannel
            self._changed = trio.Event()
            await self._changed.wait()
        return self._waiting.popleft()

    def __aiter__(self) -> Updates:
        return self

    async def __anext__(self) -> Update:
        try:
            return await self.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
