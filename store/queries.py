"""What is read from the database, and how it is checked on the way.  No I/O of its own.

Belongs here: SELECTs, rows to records, lineage, and the order in which a read asks for things. Each read is a plan: a
generator that yields (SQL, arguments), is sent the rows, and returns its result. `run` drives it over sqlite3, and
`store.asyncio_reader` over aiosqlite, so that both give the same records and find the same damage.
Must not know: connections, threads, transactions, trio or asyncio. The driver holds one snapshot for a whole plan.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from typing import Any, TypeVar

import msgspec

from store import chain, lease
from store.records import (
    FORMAT_VERSION,
    CorruptBlob,
    CorruptLog,
    Record,
    SessionInfo,
    StoredInput,
    UnknownSession,
    UnsupportedVersion,
)

T = TypeVar("T")
Row = tuple[Any, ...]
Query = tuple[str, tuple[Any, ...]]
Plan = Generator[Query, list[Row], T]

PAGE_ROWS = 2000
"""Rows asked for at once: bounds what a read of a long log holds in raw form beside the records it has made."""

PAGES_ROWS = (PAGE_ROWS, 200, 20, 1)
"""Where a part of the file is lost, ever fewer: what is before the damage is read, and the event at it is named."""

_SESSION = (
    "SELECT s.id, s.format_version, s.created_at, s.title, s.parent_id, s.parent_seq, s.length, s.last_hash,"
    f" s.last_recorded_at, {lease.COLUMNS} FROM sessions s LEFT JOIN leases l ON l.session_id = s.id"
)
_EVENTS = (
    "SELECT seq, kind, version, recorded_at, data, hash FROM events"
    " WHERE session_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
)


class Segment(msgspec.Struct, frozen=True):
    """The part of a log that one session owns: events `first` to `last`, none when `last` is before `first`."""

    owner: str
    first: int
    last: int


class Lineage(msgspec.Struct, frozen=True):
    """A session and where its events are: segments from the root's to its own, together 1 to `info.length`."""

    info: SessionInfo
    ancestors: tuple[tuple[str, int], ...]
    segments: tuple[Segment, ...]

    @property
    def root(self) -> str:
        """The id of the session whose log the hash chain starts with."""
        return self.segments[0].owner

    def owner(self, seq: int) -> str:
        """The id of the session that owns event `seq`."""
        return next(part.owner for part in self.segments if part.first <= seq <= part.last)


def run(connection: sqlite3.Connection, plan: Plan[T]) -> T:
    """Drive a plan over a sqlite3 connection. The caller holds a transaction when the plan needs one snapshot.

    SQLite's errors are raised where the plan asks, so that one that looks for damage can go on.
    """
    try:
        query = next(plan)
        while True:
            try:
                rows = connection.execute(*query).fetchall()
            except sqlite3.Error as error:
                query = plan.throw(error)
            else:
                query = plan.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


def session(session_id: str) -> Plan[SessionInfo]:
    """One session's row. Raises UnknownSession, UnsupportedVersion, CorruptLog."""
    rows = yield f"{_SESSION} WHERE s.id = ?", (session_id,)
    if not rows:
        raise UnknownSession(session_id)
    info = session_info(session_id, rows[0])
    if info.format_version > FORMAT_VERSION:
        raise UnsupportedVersion(f"session {session_id!r}", info.format_version, FORMAT_VERSION)
    return info


def sessions() -> Plan[list[SessionInfo]]:
    """Every session, last active first. By order of commits and not by times, which a changed clock would mix up.

    A row that is damaged is listed as far as it can be read: the other sessions are not to be lost with it. Whoever
    reads that session is told.
    """
    rows = yield f"{_SESSION} ORDER BY s.activity DESC, s.number DESC", ()
    found: list[SessionInfo] = []
    for row in rows:
        info = yield from _listed(row)
        found.append(info)
    return found


def _listed(row: Row) -> Plan[SessionInfo]:
    texts = [value.decode(errors="replace") if type(value) is bytes else "" for value in row[:9]]
    try:
        return session_info(texts[0], row)
    except CorruptLog:
        ((last,),) = yield "SELECT max(seq) FROM events WHERE session_id = ?", (texts[0],)
        length, version = (value if type(value) is int else 0 for value in (last, row[1]))
        return SessionInfo(texts[0], version, texts[2], texts[3], None, None, length, b"", texts[8])


def session_info(session_id: str, row: Row) -> SessionInfo:
    """A row of sessions, checked for what damage can put there. Raises CorruptLog."""
    try:
        parent_id = None if row[4] is None else row[4].decode()
        texts = [text.decode() for text in (row[0], row[2], row[3], row[8])]
        info = SessionInfo(texts[0], row[1], texts[1], texts[2], parent_id, row[5], row[6], row[7], texts[3])
        numbers = [info.format_version, info.length] + ([] if parent_id is None else [info.parent_seq])
        if any(type(number) is not int or number < 0 for number in numbers) or type(info.last_hash) is not bytes:
            raise TypeError("a value has another type")
        return msgspec.structs.replace(info, holder=lease.live_holder(row[9:]))
    except (UnicodeError, AttributeError, TypeError) as error:
        raise CorruptLog(session_id, None, f"its row in sessions cannot be read ({error})") from None


def lineage(session_id: str) -> Plan[Lineage]:
    """Where a session's events are, through its ancestors. Raises as `session`, also for an ancestor."""
    info = yield from session(session_id)
    limit, current = info.length, info
    ancestors: list[tuple[str, int]] = []
    segments: list[Segment] = []
    seen = {session_id}
    while True:
        inherited = 0 if current.parent_id is None else current.parent_seq or 0
        segments.append(Segment(current.id, inherited + 1, limit))
        if current.parent_id is None:
            break
        if inherited > current.length or current.parent_id in seen:
            raise CorruptLog(session_id, None, f"the parent of {current.id!r} cannot be its parent")
        seen.add(current.parent_id)
        # A fork of a fork below its parent's own fork point inherits nothing that this parent owns.
        limit = min(limit, inherited)
        try:
            current = yield from session(current.parent_id)
        except UnknownSession:
            raise CorruptLog(session_id, None, f"its ancestor {current.parent_id!r} is missing") from None
        if current.length < inherited:
            raise CorruptLog(session_id, current.length + 1, f"its ancestor {current.id!r} has lost events")
        ancestors.append((current.id, limit))
    return Lineage(info, tuple(reversed(ancestors)), tuple(reversed(segments)))


def read(session_id: str, after: int, upto: int | None, limit: int | None) -> Plan[list[Record]]:
    """Records in order, each checked against its predecessor. Raises as `lineage`, and CorruptLog at the damage."""
    tree = yield from lineage(session_id)
    end = tree.info.length if upto is None else min(upto, tree.info.length)
    if limit is not None:
        end = min(end, after + max(limit, 0))
    if after > end:
        return []
    previous = yield from hash_at(tree, after)
    records: list[Record] = []
    try:
        for part in tree.segments:
            seq = max(part.first - 1, after)
            while seq < min(part.last, end):
                rows = yield from page(part.owner, seq, min(part.last, end))
                if not rows:
                    raise chain.Altered(seq + 1, "it is missing")
                records += chain.checked(part.owner, previous, seq + 1, rows)
                previous, seq = records[-1].hash, records[-1].seq
    except chain.Altered as altered:
        raise CorruptLog(session_id, altered.seq, altered.problem) from None
    if end == tree.info.length and previous != tree.info.last_hash:
        raise CorruptLog(session_id, end, "the log does not end as its session's row says")
    return records


def page(owner: str, after: int, last: int) -> Plan[list[Row]]:
    """The next rows of events after `after` up to `last`. Raises chain.Altered at one that SQLite cannot read."""
    for rows in PAGES_ROWS:
        try:
            return (yield _EVENTS, (owner, after, last, rows))
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            problem = f"the database file is damaged there ({error})"
    raise chain.Altered(after + 1, problem)


def hash_at(tree: Lineage, seq: int) -> Plan[bytes]:
    """The stored hash of event `seq`, or what the root's chain starts from for 0. Raises CorruptLog."""
    if seq == 0:
        return chain.seed(tree.root)
    rows = yield "SELECT hash FROM events WHERE session_id = ? AND seq = ?", (tree.owner(seq), seq)
    if not rows:
        raise CorruptLog(tree.info.id, seq, "it is missing")
    value: bytes = rows[0][0]
    if type(value) is not bytes:
        raise CorruptLog(tree.info.id, seq, "it cannot be read")
    return value


def inputs(session_id: str, after: int) -> Plan[list[StoredInput]]:
    """Inbox entries, each checked. Raises UnknownSession, UnsupportedVersion, CorruptLog."""
    yield from session(session_id)
    rows = yield (
        "SELECT position, input_id, received_at, data, hash FROM inputs"
        " WHERE session_id = ? AND position > ? ORDER BY position",
        (session_id, after),
    )
    return [_input(session_id, row) for row in rows]


def _input(session_id: str, row: Row) -> StoredInput:
    position, stored = row[0], row[4]
    try:
        entry = StoredInput(session_id, row[1].decode(), position, row[2].decode(), row[3])
        if stored == chain.input_hash(session_id, position, entry.input_id, entry.received_at, entry.data):
            return entry
    except (UnicodeError, AttributeError, TypeError):
        pass  # reported below: unreadable and altered are one thing to the caller
    raise CorruptLog(session_id, None, f"entry {position} of its inbox was altered")


def newest_input(session_id: str) -> Plan[int]:
    """The last position of a session's inbox, 0 when it is empty. Raises UnknownSession, UnsupportedVersion."""
    yield from session(session_id)
    rows = yield "SELECT max(position) FROM inputs WHERE session_id = ?", (session_id,)
    return int(rows[0][0] or 0)


def blob(digest: str) -> Plan[bytes]:
    """The bytes of a blob. Raises CorruptBlob when they are missing or altered."""
    rows = yield "SELECT data FROM blobs WHERE digest = ?", (digest,)
    if not rows:
        raise CorruptBlob(digest, missing=True)
    data: bytes = rows[0][0]
    if type(data) is not bytes or chain.blob_digest(data) != digest:
        raise CorruptBlob(digest, missing=False)
    return data
