"""`SqliteStore`: the durable store. Assembles the writer, the readers, the waiters and the leases behind the contract.

Belongs here: which thread and connection each call uses, and how SQLite's errors reach the caller.
Must not know: SQL. Reads are plans of `store.queries`, writes are functions of `store.mutations`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from store import chain, lease, mutations, queries, schema, verification
from store.records import (
    LEASE_TTL_S,
    CallerError,
    CorruptLog,
    Damage,
    Lease,
    NewRecord,
    Record,
    SessionCopy,
    SessionInfo,
    StaleWriter,
    StoredInput,
    StoreUnavailable,
)
from store.watch import Change, Follower
from store.writer import Writer

T = TypeVar("T")

READERS = 4
"""Reads that run at once. More only share the same two or four cores."""


class SqliteStore:
    """A store in one SQLite file. Open it with `SqliteStore.open`; it belongs to the trio run that opened it."""

    def __init__(self, path: Path, opened: schema.Opened, lease_ttl_s: float) -> None:
        self._path = path
        self._files = opened.files
        self._open_reader = opened.open_reader
        self._lost = opened.lost
        self._lease_ttl_s = lease_ttl_s
        self._writer = Writer(opened, str(path))
        self._leases: set[lease.SqliteLease] = set()
        self._idle: list[sqlite3.Connection] = []
        self._limiter = trio.CapacityLimiter(READERS)
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: str | Path, *, create: bool = True, lease_ttl_s: float = LEASE_TTL_S
    ) -> AsyncIterator[SqliteStore]:
        """Open the store in the file `path` and close it on leaving.

        create: make it when there is no file, or an empty one; its folder has to exist.
        lease_ttl_s: seconds that leases taken through this store outlive their last renewal.
        What cannot be written (permissions, a damaged file) is opened for reading: writes raise StoreUnavailable.
        Raises StoreUnavailable, UnsupportedVersion; the file is untouched then.
        """
        if not 0 < lease_ttl_s < float("inf"):
            raise CallerError(f"lease_ttl_s must be a positive number of seconds, not {lease_ttl_s}.")
        where = Path(path)
        opened = await trio.to_thread.run_sync(partial(schema.open_store, where, create=create))
        store = cls(where, opened, lease_ttl_s)
        try:
            yield store
        finally:
            await store.aclose()

    @property
    def location(self) -> str:
        """The path of the store's file."""
        return str(self._path)

    async def aclose(self) -> None:
        """Release the leases, finish what was queued and close the file. Doing it twice is doing it once."""
        with trio.CancelScope(shield=True):
            for held in list(self._leases):
                try:
                    await held.release()
                except StoreUnavailable:
                    break  # the disk refuses: the leases run out by themselves
            self._closed = True
            # All slots taken: no read is left in a thread. Readers go first, because the last to close tidies the file.
            for _ in range(READERS):
                await self._limiter.acquire_on_behalf_of(object())
            while self._idle:
                self._idle.pop().close()
            await self._writer.aclose()
            self._limiter = trio.CapacityLimiter(READERS)

    async def create(
        self, session_id: str, records: Sequence[NewRecord], *, created_at: str, title: str
    ) -> SessionInfo:
        """Make a session whose log starts with `records`. Raises SessionExists, StoreUnavailable."""
        new = mutations.NewSession(session_id, created_at, title, chain.prepare(records))
        return await self._writer.run(partial(mutations.create, new=new), _grown)

    async def fork(
        self, parent_id: str, branch_id: str, records: Sequence[NewRecord], *, at: int, created_at: str, title: str
    ) -> SessionInfo:
        """Make a branch that inherits events 1 to `at` and goes on with `records`, in O(1) whatever the length.

        Raises UnknownSession, UnknownSequence, SessionExists, CorruptLog. The parent may be running in any process.
        """
        new = mutations.NewSession(branch_id, created_at, title, chain.prepare(records), parent_id, at)
        return await self._writer.run(partial(mutations.create, new=new), _grown)

    async def session(self, session_id: str) -> SessionInfo:
        """One session's row. Raises UnknownSession, UnsupportedVersion, CorruptLog."""
        return await self._read(lambda: queries.session(session_id))

    async def sessions(self) -> list[SessionInfo]:
        """Every session, last active first, by order of commits."""
        return await self._read(queries.sessions)

    async def ancestors(self, session_id: str) -> list[tuple[str, int]]:
        """(session id, last inherited seq) from the root to the parent; empty for a root."""
        return list((await self._read(lambda: queries.lineage(session_id))).ancestors)

    async def acquire(self, session_id: str, holder: str = "") -> Lease:
        """Take the session's lease. `holder` says for people what wants it. Raises SessionBusy, UnknownSession."""
        ttl_s = self._lease_ttl_s
        mine = await self._writer.run(lambda connection: lease.acquire(connection, session_id, holder, ttl_s))
        held = lease.SqliteLease(self._writer.run, session_id, mine, self._leases.discard)
        self._leases.add(held)
        return held

    async def append(self, lease: Lease, records: Sequence[NewRecord], *, expected_seq: int) -> list[Record]:
        """Append all of `records` or none, durably. Raises StaleWriter, SequenceConflict, StoreUnavailable.

        Cancelled: nothing was written, unless the commit had begun; then this returns as if it had not been cancelled.
        """
        held = _ours(lease)
        request = mutations.Append(held.session_id, held.epoch, held.token, expected_seq, chain.prepare(records))
        try:
            return await self._writer.run(partial(mutations.append, request=request), _appended)
        except StaleWriter:
            held.lose()
            raise

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """Records after `after` up to and including `upto`, at most `limit`, each checked against its predecessor.

        Raises UnknownSession, UnsupportedVersion, CorruptLog at the first missing, altered or reordered record.
        """
        return await self._read(lambda: queries.read(session_id, max(after, 0), upto, limit), session_id)

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[Record]:
        """Committed records for ever, each once, in order, also those of other processes."""
        return Follower(self._writer.watch, self.read, session_id, max(after, 0))

    async def wait_for_change(self, session_id: str, *, after: int) -> None:
        """Return once the log is longer than `after`. Raises UnknownSession, StoreUnavailable when closed."""

        async def length() -> int:
            return (await self.session(session_id)).length

        await self._writer.watch.wait("log", session_id, after, length)

    async def submit(self, session_id: str, input_id: str, data: bytes, *, received_at: str) -> bool:
        """Add to the durable inbox. False when this id is there with the same data, CallerError with other data."""
        chain.prepare([NewRecord(input_id, 0, received_at, data)])  # the same demands as on a record
        position = await self._writer.run(
            lambda connection: mutations.submit(connection, session_id, input_id, data, received_at),
            lambda position: ("inbox", session_id, position) if position else None,
        )
        return position > 0

    async def inputs(self, session_id: str, *, after: int = 0) -> list[StoredInput]:
        """Inbox entries with a position above `after`, in order of commit. Raises UnknownSession, CorruptLog."""
        return await self._read(lambda: queries.inputs(session_id, after), session_id)

    async def wait_for_input(self, session_id: str, *, after: int) -> None:
        """Return once the inbox has an entry above `after`. Raises UnknownSession, StoreUnavailable when closed."""

        async def newest() -> int:
            return await self._read(lambda: queries.newest_input(session_id))

        await self._writer.watch.wait("inbox", session_id, after, newest)

    async def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        """Store byte strings durably and return their digests, in the same order."""
        named = [(chain.blob_digest(data), data) for data in blobs]
        await self._writer.run(lambda connection: mutations.put_blobs(connection, named))
        return [digest for digest, _ in named]

    async def blob(self, digest: str) -> bytes:
        """The bytes of a blob. Raises CorruptBlob when missing or altered."""
        return await self._read(lambda: queries.blob(digest))

    async def restore(
        self, copies: Sequence[SessionCopy], inputs: Sequence[StoredInput], blobs: Sequence[bytes]
    ) -> SessionInfo:
        """Add the last of `copies`, a lineage from its root on, with its inbox and blobs, in one transaction.

        Raises SessionExists, CallerError (an ancestor is here with another history), CorruptLog.
        """
        named = [(chain.blob_digest(data), data) for data in blobs]
        return await self._writer.run(lambda connection: mutations.restore(connection, copies, inputs, named), _grown)

    async def verify(self, session_id: str | None = None) -> list[Damage]:
        """Every damaged place of one session (ancestors included), or of the whole store. Empty means healthy."""
        if session_id is None:
            found = await self._read(verification.store)
        else:
            found = await self._read(lambda: verification.session(session_id))
        return [Damage("", None, self._lost), *found] if self._lost else found

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the writing connection inside a commit of its own or of a batch. For tests and for repair."""
        return await self._writer.run(work)

    async def _read(self, plan: Callable[[], queries.Plan[T]], session_id: str = "") -> T:
        """Drive a plan over one snapshot, in a thread, on a connection that cannot write."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise StoreUnavailable(f"{self.location}: this store is closed. Open it again.")

        def work() -> T:
            self._files.check()
            try:
                connection = self._idle.pop()  # asking first would race with the other reading threads
            except IndexError:
                connection = self._open_reader()
            try:
                with schema.snapshot(connection):
                    result = queries.run(connection, plan())
            finally:
                self._idle.append(connection)
            self._files.check()  # not before, for a connection that was opened by name just now
            return result

        try:
            return await trio.to_thread.run_sync(work, limiter=self._limiter)
        except sqlite3.OperationalError as error:
            raise schema.unavailable(self.location, error) from error
        except sqlite3.DatabaseError as error:
            if not session_id:
                raise schema.unavailable(self.location, error) from error
            raise CorruptLog(session_id, None, f"the database file is damaged ({error})") from error


def _ours(given: Lease) -> lease.SqliteLease:
    if not isinstance(given, lease.SqliteLease):
        raise CallerError(f"a {type(given).__name__} is not a lease of this store. Call acquire on it.")
    return given


def _grown(info: SessionInfo) -> Change:
    return "log", info.id, info.length


def _appended(records: Sequence[Record]) -> Change | None:
    return ("log", records[-1].session_id, records[-1].seq) if records else None
