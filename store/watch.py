"""Who waits for a log or an inbox to grow, and waking them.

Belongs here: the waiters of one trio run, and the iterator that follows a log. Everything runs in trio's thread.
Must not know: SQL or threads. Whoever learns that something grew calls `notify`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, Self

import trio

from store.records import Record, StoreUnavailable

What = Literal["log", "inbox"]
Change = tuple[What, str, int]
"""What grew, of which session, and its last number now."""

FOLLOW_RECORDS = 500
"""Records a follower asks for at once: bounds what it holds while its consumer is slow."""


class Waiter:
    """One wait for a number above `after`."""

    def __init__(self, after: int) -> None:
        self.after = after
        self._event = trio.Event()
        self._closed: str | None = None

    async def wait(self) -> None:
        """Return once it grew. Raises StoreUnavailable when the store was closed."""
        await self._event.wait()
        if self._closed is not None:
            raise StoreUnavailable(self._closed)

    def wake(self, closed: str | None = None) -> None:
        """Let the wait return, or raise when `closed` says why."""
        self._closed = closed
        self._event.set()


class Watch:
    """The waiters of a store. `on_first` is called when there begins to be one."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self._waiters: dict[tuple[What, str], set[Waiter]] = {}
        self._on_first = on_first
        self.closed: str | None = None

    @property
    def active(self) -> bool:
        """Whether anybody waits. Safe to ask from any thread."""
        return bool(self._waiters)

    @contextmanager
    def waiting(self, what: What, session_id: str, after: int) -> Iterator[Waiter]:
        """Register before looking: what is committed after the look wakes the waiter, so nothing falls between."""
        if self.closed is not None:
            raise StoreUnavailable(self.closed)
        key, waiter, first = (what, session_id), Waiter(after), not self._waiters
        self._waiters.setdefault(key, set()).add(waiter)
        if first:
            self._on_first()
        try:
            yield waiter
        finally:
            waiters = self._waiters.get(key)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._waiters[key]

    def notify(self, changes: Iterable[Change]) -> None:
        """Wake whoever waits for less than what is there now."""
        for what, session_id, number in changes:
            for waiter in self._waiters.get((what, session_id), ()):
                if waiter.after < number:
                    waiter.wake()

    def close(self, reason: str) -> None:
        """Make every wait raise StoreUnavailable, those to come included. The first reason stays."""
        self.closed = self.closed or reason
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake(self.closed)

    async def wait(self, what: What, session_id: str, after: int, newest: Callable[[], Awaitable[int]]) -> None:
        """Return once `newest()` is above `after`."""
        with self.waiting(what, session_id, after) as waiter:
            if await newest() <= after:
                await waiter.wait()


class Reads(Protocol):
    """The one method of a store that following needs."""

    def __call__(self, session_id: str, *, after: int, limit: int) -> Awaitable[list[Record]]: ...


class Following:
    """Committed records for ever, each once, in order. Holds nothing in between, so it may be left anywhere."""

    def __init__(self, after: int) -> None:
        self._after = after
        self._ready: deque[Record] = deque()
        self._closed = False

    def __aiter__(self) -> Self:
        """Itself: a follower is one pass."""
        return self

    async def __anext__(self) -> Record:
        """The next record, waiting for it. Raises what `read` raises. Cancelled: the record comes the next time."""
        if self._closed:
            raise StopAsyncIteration
        while not self._ready:
            self._ready.extend(await self._more(self._after))
        record = self._ready.popleft()
        self._after = record.seq
        return record

    async def _more(self, after: int) -> list[Record]:
        """What is committed after `after`; when that is nothing, not before there may be something."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """End the iteration. Not necessary."""
        self._closed = True
        self._ready.clear()


class Follower(Following):
    """Follows a log of a store of this trio run."""

    def __init__(self, watch: Watch, read: Reads, session_id: str, after: int) -> None:
        super().__init__(after)
        self._watch, self._read, self._session_id = watch, read, session_id

    async def _more(self, after: int) -> list[Record]:
        with self._watch.waiting("log", self._session_id, after) as waiter:
            records = await self._read(self._session_id, after=after, limit=FOLLOW_RECORDS)
            if not records:
                await waiter.wait()
        return records
