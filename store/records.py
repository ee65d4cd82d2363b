"""What a log is made of, what a store promises, and the errors it raises.

Belongs here: the data types and the `Store` contract, which every implementation and `check_store` share.
Must not know: SQL, files, threads, or what the bytes of a record mean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

FORMAT_VERSION = 1
"""Version of a session's layout that this code writes; a session with a newer one is refused."""

LEASE_TTL_S = 10.0
"""Seconds a lease outlives its last renewal when nothing can be known about its holder."""


class NewRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that has not been appended yet. `data` is JSON text in UTF-8, opaque to the store."""

    kind: str
    version: int
    recorded_at: str  # UTC, ISO 8601 with "Z"; informative, never used for order
    data: bytes


class Record(msgspec.Struct, frozen=True, gc=False):
    """One committed record. `session_id` is the session that owns the row: an ancestor's below a fork point."""

    session_id: str
    seq: int
    kind: str
    version: int
    recorded_at: str
    data: bytes
    hash: bytes


class SessionInfo(msgspec.Struct, frozen=True, gc=False):
    """One session's row. `length` counts inherited records too: it is the last sequence number."""

    id: str
    format_version: int
    created_at: str
    title: str
    parent_id: str | None
    parent_seq: int | None
    length: int
    last_hash: bytes
    last_recorded_at: str
    holder: str | None = None  # who holds the lease now, for people; None when nobody does


class StoredInput(msgspec.Struct, frozen=True, gc=False):
    """One entry of a session's durable inbox. `position` grows in the order of commits."""

    session_id: str
    input_id: str
    position: int
    received_at: str
    data: bytes


class SessionCopy(msgspec.Struct, frozen=True, gc=False):
    """A session on its way from one store to another: its row, and the records that it owns itself, hashes included."""

    info: SessionInfo
    records: tuple[Record, ...]


class Damage(msgspec.Struct, frozen=True, gc=False):
    """One thing that `verify` found wrong.

    session_id: empty when it concerns the store. seq: None when it concerns the session as a whole.
    """

    session_id: str
    seq: int | None
    problem: str


class StoreError(Exception):
    """Base of everything a store raises on purpose."""


class StoreUnavailable(StoreError):
    """The store's file cannot be opened, read or written (missing folder, permission, disk full, not a database)."""


class CallerError(StoreError):
    """The caller asked for something that cannot be; the store is fine and unchanged."""


class UnknownSession(CallerError):
    """No session has this id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"no session {session_id!r} in this store. `turnlog sessions` lists them.")


class SessionExists(CallerError):
    """A session with this id is already there."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} exists already. Choose another id, or resume it.")


class UnknownSequence(CallerError):
    """The sequence number is not in the session's log."""

    def __init__(self, session_id: str, seq: int, length: int) -> None:
        self.session_id, self.seq, self.length = session_id, seq, length
        super().__init__(f"session {session_id!r} has events 1 to {length}, not {seq}.")


class SequenceConflict(CallerError):
    """`expected_seq` is not the log's last sequence number: the caller's view is stale. Nothing was written."""

    def __init__(self, session_id: str, expected: int, actual: int) -> None:
        self.session_id, self.expected, self.actual = session_id, expected, actual
        super().__init__(f"session {session_id!r} ends at event {actual}, not {expected}. Read it again and retry.")


class SessionBusy(CallerError):
    """Another live holder has this session open. Nothing was read or written."""

    def __init__(self, session_id: str, holder: str, lease_left_s: float) -> None:
        self.session_id, self.holder, self.lease_left_s = session_id, holder, lease_left_s
        super().__init__(f"session {session_id!r} is open in {holder}. Wait until it ends, or fork it.")


class StaleWriter(StoreError):
    """This writer's lease was taken over. Nothing was written; it must stop."""

    def __init__(self, session_id: str, epoch: int, current: int) -> None:
        self.session_id, self.epoch, self.current = session_id, epoch, current
        super().__init__(f"session {session_id!r} was taken over by another process. This one has stopped writing.")


class UnsupportedVersion(StoreError):
    """The database, session or record was written by newer code. Nothing was loaded."""

    def __init__(self, what: str, found: int, known: int) -> None:
        self.what, self.found, self.known = what, found, known
        super().__init__(f"{what} has version {found}, but this turnlog knows up to {known}. Upgrade turnlog.")


class CorruptLog(StoreError):
    """The log is damaged at `seq`. It is never read past the damage as if it were whole."""

    def __init__(self, session_id: str, seq: int | None, problem: str) -> None:
        self.session_id, self.seq, self.problem = session_id, seq, problem
        where = "" if seq is None else f" at event {seq}"
        super().__init__(f"session {session_id!r} is damaged{where}: {problem}. `turnlog verify` tells more.")


class CorruptBlob(CorruptLog):
    """A blob is not there (`missing`), or its bytes do not have its digest."""

    def __init__(self, digest: str, *, missing: bool) -> None:
        self.digest, self.missing = digest, missing
        self.session_id, self.seq = "", None
        self.problem = f"blob {digest} is {'missing' if missing else 'altered'}"
        StoreError.__init__(self, f"{self.problem}. Restore the store from a backup.")


@runtime_checkable
class Lease(Protocol):
    """The right to append to one session, with the epoch that fences earlier holders off."""

    @property
    def session_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def valid_for_s(self) -> float:
        """Seconds (elapsed time, suspension included) until another process may take over; 0 when lost."""
        ...

    async def renew(self) -> None:
        """Extend the lease. Raises StaleWriter when another holder has taken over."""
        ...

    async def release(self) -> None:
        """Give the lease up; the next opener gets it at once. Releasing twice, or after a takeover, does nothing."""
        ...


class Store(Protocol):
    """A versioned, append-only log of many sessions. `check_store` in `store.testing` is its executable contract.

    Every method is a trio checkpoint. Every error is a StoreError; a failed call changes nothing.
    """

    @property
    def location(self) -> str:
        """Where the store is, for people: a path, or ":memory:"."""
        ...

    async def create(
        self, session_id: str, records: Sequence[NewRecord], *, created_at: str, title: str
    ) -> SessionInfo:
        """Make a session whose log starts with `records`, in one transaction. Raises SessionExists."""
        ...

    async def fork(
        self, parent_id: str, branch_id: str, records: Sequence[NewRecord], *, at: int, created_at: str, title: str
    ) -> SessionInfo:
        """Make a branch that inherits events 1 to `at` and goes on with `records`, in O(1) whatever the length.

        Raises UnknownSession, UnknownSequence, SessionExists. The parent may be open and running elsewhere.
        """
        ...

    async def session(self, session_id: str) -> SessionInfo: ...

    async def sessions(self) -> list[SessionInfo]:
        """Every session, last active first (ties by creation order, latest first)."""
        ...

    async def ancestors(self, session_id: str) -> list[tuple[str, int]]:
        """(session id, last inherited seq) from the root to the parent; empty for a root."""
        ...

    async def acquire(self, session_id: str, holder: str = "") -> Lease:
        """Take the session's lease. Raises SessionBusy while a live holder has it."""
        ...

    async def append(self, lease: Lease, records: Sequence[NewRecord], *, expected_seq: int) -> list[Record]:
        """Append all of `records` or none, durably: they are on disk when this returns.

        Raises StaleWriter, SequenceConflict, StoreUnavailable. Cancelled: either all are committed or none; a
        caller that needs to know reads the log again.
        """
        ...

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """Records after `after` up to and including `upto`, in order, ancestors' included. Verifies hashes.

        Raises CorruptLog at the first missing, altered or reordered record.
        """
        ...

    def follow(self, session_id: str, *, after: int = 0) -> AsyncIterator[Record]:
        """Committed records for ever, each once, in order. May be left at any point (it holds no nursery)."""
        ...

    async def wait_for_change(self, session_id: str, *, after: int) -> None:
        """Return once the log is longer than `after`; at once in process, within 100 ms from another process."""
        ...

    async def submit(self, session_id: str, input_id: str, data: bytes, *, received_at: str) -> bool:
        """Add to the durable inbox. False when this input id is already there (its first data stays).

        Raises CallerError when the id is there with other data: the same id must mean the same input.
        """
        ...

    async def inputs(self, session_id: str, *, after: int = 0) -> list[StoredInput]:
        """Inbox entries with a position above `after`, in order of commit."""
        ...

    async def wait_for_input(self, session_id: str, *, after: int) -> None:
        """Return once the inbox has an entry with a position above `after`; timing as wait_for_change."""
        ...

    async def put_blobs(self, blobs: Sequence[bytes]) -> list[str]:
        """Store byte strings under their blake2b-128 digest (hex), durably. Storing one twice is one blob."""
        ...

    async def blob(self, digest: str) -> bytes:
        """The bytes of a blob. Raises CorruptLog when missing or altered."""
        ...

    async def restore(
        self, copies: Sequence[SessionCopy], inputs: Sequence[StoredInput], blobs: Sequence[bytes]
    ) -> SessionInfo:
        """Add the last of `copies`, a lineage from its root on, with its inbox and blobs, in one transaction.

        An ancestor that is here already is used as it is, if its history is the same up to the fork. Raises
        SessionExists, CallerError (an ancestor with another history), CorruptLog (hashes that do not match).
        """
        ...

    async def verify(self, session_id: str | None = None) -> list[Damage]:
        """Every damaged place of one session (ancestors included), or of the whole store. Empty means healthy."""
        ...


JSON = dict[str, Any]
