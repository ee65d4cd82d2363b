"""How many operations of one type run at once, first come first served.

Belongs here: handing out a bounded number of slots in the order of asking.
Must not know: what is done in a slot, or who asks.

Not trio's CapacityLimiter: tasks started together ask it in random order, and operations wait in the order of the log.
"""

from __future__ import annotations

from collections import deque

import trio


class Ticket:
    """A place in the queue; `wait` returns once it is a slot."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._granted = trio.Event()
        self._given_back = False

    @property
    def granted(self) -> bool:
        """Whether the slot is held (or was, before it was given back)."""
        return self._granted.is_set()

    async def wait(self) -> None:
        """Wait for the slot. Cancelled: the ticket keeps its place; give it back."""
        await self._granted.wait()

    def insist(self) -> None:
        """Have the slot now, over the limit if need be."""
        if not self.granted:
            self._slots._promote(self)

    def give_back(self) -> None:
        """Free the slot, or leave the queue. Doing it twice is doing it once."""
        if self._given_back:
            return
        self._given_back = True
        self._slots._leave(self)

    def _grant(self) -> None:
        self._granted.set()


class Slots:
    """limit: how many tickets are slots at the same time, at least 1."""

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"a limit of {limit} operations would never run one. Use 1 or more.")
        self.limit = limit
        self._held = 0
        self._queue: deque[Ticket] = deque()

    def reserve(self, *, at_once: bool = False) -> Ticket:
        """Take a place in the queue. at_once: over the limit if need be, for work that runs already."""
        ticket = Ticket(self)
        if at_once or (self._held < self.limit and not self._queue):
            self._hold(ticket)
        else:
            self._queue.append(ticket)
        return ticket

    def _hold(self, ticket: Ticket) -> None:
        self._held += 1
        ticket._grant()

    def _promote(self, ticket: Ticket) -> None:
        self._queue.remove(ticket)
        self._hold(ticket)

    def _leave(self, ticket: Ticket) -> None:
        if not ticket.granted:
            self._queue.remove(ticket)
            return
        self._held -= 1
        while self._queue and self._held < self.limit:
            self._hold(self._queue.popleft())
