"""The store of a simulation: shared by its processes, slow and failing as the world says, gone for a dead process.

Belongs here: delays and failures of a store, and what a process that was killed can no longer do with it.
Must not know: why anything fails when it does, or what is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import trio

from store import MemoryStore, NewRecord, StoreUnavailable

CHANGES = frozenset({"create", "fork", "acquire", "append", "submit", "put_blobs", "restore", "renew", "release"})


class Outside(Protocol):
    """What a disk asks of the world."""

    def delay_s(self, name: str) -> float:
        """Seconds that a call takes on one side of its effect."""
        ...

    def fails_after(self, name: str) -> bool:
        """Whether a change that was made is reported as failed: an I/O error after the commit had reached the disk."""
        ...

    def committed(self, records: Sequence[NewRecord]) -> None:
        """These records are in a log now."""
        ...

    def acquired(self, session_id: str, epoch: int) -> None:
        """A session's lease was taken."""
        ...

    def point(self) -> None:
        """A moment at which the process may be killed."""
        ...


class Disk:
    """One process's way to the shared store. dead: the process was killed, so that nothing it still does happens."""

    def __init__(self, store: MemoryStore, outside: Outside, location: str) -> None:
        self.store, self.location = store, location
        self.dead = False
        self.lease: Lease | None = None
        self._outside = outside

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[Any]:
        return self.store.follow(session_id, after=after)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self.store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await self.perform(name, lambda: method(*arguments, **options))

        return call

    async def acquire(self, session_id: str, holder: str = "") -> Lease:
        async def take() -> Lease:
            self.lease = Lease(self, await self.store.acquire(session_id, holder))
            self._outside.acquired(session_id, self.lease.epoch)
            return self.lease

        taken: Lease = await self.perform("acquire", take)
        return taken

    async def append(self, lease: Lease, records: Sequence[NewRecord], *, expected_seq: int) -> Any:
        return await self.perform(
            "append",
            lambda: self.store.append(lease.inner, records, expected_seq=expected_seq),
            lambda: self._outside.committed(records),
        )

    async def perform(
        self, name: str, method: Callable[[], Awaitable[Any]], done: Callable[[], None] = lambda: None
    ) -> Any:
        """One call, with what can happen before and after its effect."""
        await self._moment(name)
        result = await method()
        done()
        await self._moment(name)
        if name in CHANGES and self._outside.fails_after(name):
            raise StoreUnavailable(f"simulated: I/O error after the commit of {name}")
        return result

    async def _moment(self, name: str) -> None:
        if name in CHANGES:
            self._outside.point()
        delay_s = self._outside.delay_s(name)
        if delay_s > 0:
            await trio.sleep(delay_s)
        if self.dead:
            await trio.sleep_forever()  # its cancellation is on the way


class Lease:
    """A lease that dies with its process: nothing is given back by the dead."""

    def __init__(self, disk: Disk, inner: Any) -> None:
        self.inner, self._disk = inner, disk
        self.session_id, self.epoch = inner.session_id, inner.epoch

    @property
    def valid_for_s(self) -> float:
        return float(self.inner.valid_for_s)

    async def renew(self) -> None:
        await self._disk.perform("renew", self.inner.renew)

    async def release(self) -> None:
        if not self._disk.dead:
            await self.inner.release()
