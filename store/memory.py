"""`MemoryStore`: the whole contract without a disk, for tests and simulations.

Belongs here: the same promises as `SqliteStore`, kept in dictionaries. It has no threads and no wall clock, so that a
program under trio's autojump clock is deterministic with it; leases run out by trio's clock.
Must not know: SQL, files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

import msgspec
import trio

from store import chain
from store.records import (
    FORMAT_VERSION,
    LEASE_TTL_S,
    CallerError,
    CorruptBlob,
    CorruptLog,
    Damage,
    Lease,
    NewRecord,
    Record,
    SequenceConflict,
    SessionBusy,
    SessionCopy,
    SessionExists,
    SessionInfo,
    StaleWriter,
    StoredInput,
    UnknownSequence,
    UnknownSession,
    UnsupportedVersion,
)
from store.watch import Follower, Watch


class _Session:
    """One session's row, its own records, its inbox and its lease."""

    def __init__(self, info: SessionInfo, records: list[Record]) -> None:
        self.info = info
        self.records = records
        self.inputs: dict[str, StoredInput] = {}
        self.activity = 0
        self.epoch = 0
        self.lease: MemoryLease | None = None


class MemoryLease:
    """A held lease of a MemoryStore. Made by `MemoryStore.acquire`."""

    def __init__(self, store: MemoryStore, session_id: str, epoch: int, holder: str) -> None:
        self._store = store
        self.holder = holder
        self._session_id = session_id
        self._epoch = epoch
        self._until = trio.current_time() + store.lease_ttl_s

    @property
    def session_id(self) -> str:
        """The session that this lease is for."""
        return self._session_id

    @property
    def epoch(self) -> int:
        """How often the session's lease has been taken, this time included."""
        return self._epoch

    @property
    def valid_for_s(self) -> float:
        """Seconds of trio's clock until another holder may take over; 0 when lost."""
        return max(0.0, self._until - trio.current_time()) if self._store.holds(self) else 0.0

    async def renew(self) -> None:
        """Extend the lease. Raises StaleWriter when another holder has taken over."""
        await trio.lowlevel.checkpoint()
        self._store.check_lease(self)
        self._store.commit("renew")
        self._until = trio.current_time() + self._store.lease_ttl_s

    async def release(self) -> None:
        """Give the lease up; the next opener gets it at once."""
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        if self._store.holds(self):
            self._store.commit("release")
            self._store.drop_lease(self._session_id)


class MemoryStore:
    """A store in memory.

    fail: called with the method's name just before each change becomes visible; what it raises is what the method
    raises, and nothing is changed then.
    lease_ttl_s: seconds of trio's clock that a lease outlives its last renewal.
    """

    def __init__(self, *, fail: Callable[[str], None] | None = None, lease_ttl_s: float = LEASE_TTL_S) -> None:
        self.fail = fail
        self.lease_ttl_s = lease_ttl_s
        self._sessions: dict[str, _Session] = {}
        self._blobs: dict[str, bytes] = {}
        self._watch = Watch()
        self._activity = 0

    @property
    def location(self) -> str:
        """Where the store is, for people."""
        return ":memory:"

    async def create(
        self, session_id: str, records: Sequence[NewRecord], *, created_at: str, title: str
    ) -> SessionInfo:
        """Make a session whose log starts with `records`. Raises SessionExists."""
        await trio.lowlevel.checkpoint()
        root = SessionInfo(
            session_id, FORMAT_VERSION, created_at, title, None, None, 0, chain.seed(session_id), created_at
        )
        return self._add("create", root, records)

    async def fork(
        self, parent_id: str, branch_id: str, records: Sequence[NewRecord], *, at: int, created_at: str, title: str
    ) -> SessionInfo:
        """Make a branch that inherits events 1 to `at`. Raises UnknownSession, UnknownSequence, SessionExists."""
        await trio.lowlevel.checkpoint()
        if branch_id in self._sessions:
            raise SessionExists(branch_id)
        length = self._find(parent_id).info.length
        if not 1 <= at <= length:
            raise UnknownSequence(parent_id, at, length)
        tip = self._records(parent_id, at - 1, at)[0].hash
        branch = SessionInfo(branch_id, FORMAT_VERSION, created_at, title, parent_id, at, at, tip, created_at)
        return self._add("fork", branch, records)

    async def session(self, session_id: str) -> SessionInfo:
        """One session's row. Raises UnknownSession, UnsupportedVersion."""
        await trio.lowlevel.checkpoint()
        return self._described(self._find(session_id))

    async def sessions(self) -> list[SessionInfo]:
        """Every session, last active first."""
        await trio.lowlevel.checkpoint()
        by_creation = reversed(self._sessions.values())
        return [self._described(found) for found in sorted(by_creation, key=lambda found: -found.activity)]

    async def ancestors(self, session_id: str) -> list[tuple[str, int]]:
        """(session id, last inherited seq) from the root to the parent; empty for a root."""
        await trio.lowlevel.checkpoint()
        return [(owner, last) for owner, _, last in self._segments(session_id)[:-1]]

    async def acquire(self, session_id: str, holder: str = "") -> Lease:
        """Take the session's lease. Raises SessionBusy, UnknownSession."""
        await trio.lowlevel.checkpoint()
        found = self._find(session_id)
        if found.lease is not None and (left_s := found.lease.valid_for_s) > 0:
            raise SessionBusy(session_id, found.lease.holder or "this process", left_s)
        self.commit("acquire")
        found.epoch += 1
        found.lease = MemoryLease(self, session_id, found.epoch, holder)
        return found.lease

    async def append(self, lease: Lease, records: Sequence[NewRecord], *, expected_seq: int) -> list[Record]:
        """Append all of `records` or none. Raises StaleWriter, SequenceConflict."""
        await trio.lowlevel.checkpoint()
        prepared = chain.prepare(records)
        self.check_lease(lease)
        found = self._find(lease.session_id)
        info = found.info
        if info.length != expected_seq:
            raise SequenceConflict(info.id, expected_seq, info.length)
        added = chain.committed(info.id, info.last_hash, info.length + 1, prepared)
        self.commit("append")
        self._extend(found, added)
        return added

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """Records after `after` up to and including `upto`, at most `limit`, ancestors' included."""
        await trio.lowlevel.checkpoint()
        length = self._find(session_id).info.length
        after = max(after, 0)
        end = length if upto is None else min(upto, length)
        return self._records(session_id, after, end if limit is None else min(end, after + max(limit, 0)))

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[Record]:
        """Committed records for ever, each once, in order."""
        return Follower(self._watch, self.read, session_id, max(after, 0))

    async def wait_for_change(self, session_id: str, *, after: int) -> None:
        """Return once the log is longer than `after`."""

        async def length() -> int:
            return (await self.session(session_id)).length

        await self._watch.wait("log", session_id, after, length)

    async def submit(self, session_id: str, input_id: str, data: bytes, *, received_at: str) -> bool:
        """Add to the inbox. False when this id is there with the same data, CallerError with other data."""
        await trio.lowlevel.checkpoint()
        chain.prepare([NewRecord(input_id, 0, received_at, data)])
        inbox = self._find(session_id).inputs
        if input_id in inbox:
            if inbox[input_id].data != data:
                raise CallerError(f"input id {input_id!r} is taken by other content. Use a new id for a new input.")
            return False
        self.commit("submit")
        inbox[input_id] = StoredInput(session_id, input_id, len(inbox) + 1, received_at, data)
        self._watch.notify([("inbox", session_id, len(inbox))])
        return True

    async def inputs(self, session_id: str, *, after: int = 0) -> list[StoredInput]:
        """Inbox entries with a position above `after`, in order."""
        await trio.lowlevel.checkpoint()
        return [entry for entry in self._find(session_id).inputs.values() if entry.position > after]

    async def wait_for_input(self, session_id: str, *, after: int) -> None:
        """Return once the inbox has an entry with a position above `after`."""

        async def newest() -> int:
            await trio.lowlevel.checkpoint()
            return len(self._find(session_id).inputs)

        await self._watch.wait("inbox", session_id, after, newest)

    async def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        """Store byte strings and return their digests, in the same order."""
        await trio.lowlevel.checkpoint()
        self.commit("put_blobs")
        named = [(chain.blob_digest(data), bytes(data)) for data in blobs]
        self._blobs.update(named)
        return [digest for digest, _ in named]

    async def blob(self, digest: str) -> bytes:
        """The bytes of a blob. Raises CorruptBlob when missing."""
        await trio.lowlevel.checkpoint()
        if digest not in self._blobs:
            raise CorruptBlob(digest, missing=True)
        return self._blobs[digest]

    async def restore(
        self, copies: Sequence[SessionCopy], inputs: Sequence[StoredInput], blobs: Sequence[bytes]
    ) -> SessionInfo:
        """Add the last of `copies`, a lineage from its root on. Raises SessionExists, CallerError, CorruptLog."""
        await trio.lowlevel.checkpoint()
        made: list[_Session] = []
        for copy in copies:
            wanted, here = copy.info, self._sessions.get(copy.info.id)
            if here is None:
                tip = made[-1].info.last_hash if made else self._tip(wanted)
                made.append(_restored(copy, tip))
            elif copy is copies[-1]:
                raise SessionExists(wanted.id)
            elif self._hash_at(wanted.id, wanted.length) != wanted.last_hash:
                raise CallerError(f"session {wanted.id!r} is here with another history. Import into another store.")
        self.commit("restore")
        for found in made:
            self._sessions[found.info.id] = found
            self._activity += 1
            found.activity = self._activity
        made[-1].inputs = {entry.input_id: entry for entry in inputs}
        self._blobs.update((chain.blob_digest(data), data) for data in blobs)
        return made[-1].info

    async def verify(self, session_id: str | None = None) -> list[Damage]:
        """Nothing: memory is taken to be healthy. Raises UnknownSession."""
        await trio.lowlevel.checkpoint()
        if session_id is not None:
            self._find(session_id)
        return []

    def drop_lease(self, session_id: str) -> None:
        """Free a session at once, as when its holder's process has died."""
        self._find(session_id).lease = None

    def commit(self, name: str) -> None:
        """The moment before a change becomes visible: the last at which it can fail."""
        if self.fail is not None:
            self.fail(name)

    def holds(self, lease: Lease) -> bool:
        """Whether this very lease is the session's."""
        found = self._sessions.get(lease.session_id)
        return found is not None and found.lease is lease

    def check_lease(self, lease: Lease) -> None:
        """Raise StaleWriter unless this very lease is the session's."""
        if not self.holds(lease):
            raise StaleWriter(lease.session_id, lease.epoch, self._find(lease.session_id).epoch)

    def _find(self, session_id: str) -> _Session:
        if session_id not in self._sessions:
            raise UnknownSession(session_id)
        found = self._sessions[session_id]
        if found.info.format_version > FORMAT_VERSION:
            raise UnsupportedVersion(f"session {session_id!r}", found.info.format_version, FORMAT_VERSION)
        return found

    def _described(self, found: _Session) -> SessionInfo:
        held = found.lease is not None and found.lease.valid_for_s > 0
        return msgspec.structs.replace(
            found.info, holder=(found.lease.holder or "this process") if held and found.lease else None
        )

    def _add(self, method: str, info: SessionInfo, records: Sequence[NewRecord]) -> SessionInfo:
        if not info.id:
            raise CallerError("a session id must not be empty. Choose another id.")
        if info.id in self._sessions:
            raise SessionExists(info.id)
        added = chain.committed(info.id, info.last_hash, info.length + 1, chain.prepare(records))
        self.commit(method)
        found = self._sessions[info.id] = _Session(info, [])
        found.activity = self._activity
        self._extend(found, added)
        return found.info

    def _extend(self, found: _Session, added: list[Record]) -> None:
        if not added:
            return
        found.records += added
        last = added[-1]
        found.info = msgspec.structs.replace(
            found.info, length=last.seq, last_hash=last.hash, last_recorded_at=last.recorded_at
        )
        self._activity += 1
        found.activity = self._activity
        self._watch.notify([("log", found.info.id, last.seq)])

    def _tip(self, info: SessionInfo) -> bytes:
        """The hash before a session's own first record."""
        if info.parent_id is None:
            return chain.seed(info.id)
        tip = self._hash_at(info.parent_id, info.parent_seq or 0)
        if tip is None:
            raise UnknownSequence(info.parent_id, info.parent_seq or 0, self._find(info.parent_id).info.length)
        return tip

    def _hash_at(self, session_id: str, seq: int) -> bytes | None:
        found = self._records(session_id, max(seq - 1, 0), seq) if seq <= self._find(session_id).info.length else []
        return found[0].hash if found else None

    def _segments(self, session_id: str) -> list[tuple[str, int, int]]:
        """(owner, first, last) from the root's part to the session's own."""
        info = self._find(session_id).info
        last, parts = info.length, []
        while True:
            inherited = info.parent_seq or 0
            parts.append((info.id, inherited + 1, last))
            if info.parent_id is None:
                return parts[::-1]
            last = min(last, inherited)
            info = self._find(info.parent_id).info

    def _records(self, session_id: str, after: int, end: int) -> list[Record]:
        records: list[Record] = []
        for owner, first, last in self._segments(session_id):
            start, stop = max(first - 1, after), min(last, end)
            if start < stop:
                records += self._sessions[owner].records[start - first + 1 : stop - first + 1]
        return records


def _restored(copy: SessionCopy, tip: bytes) -> _Session:
    try:
        chain.copied(copy.records, tip)
    except chain.Altered as altered:
        raise CorruptLog(copy.info.id, altered.seq, altered.problem) from None
    return _Session(copy.info, list(copy.records))
