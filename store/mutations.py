"""What is written to the database. Each function runs inside the writer's transaction, whole or not at all.

Belongs here: INSERTs and UPDATEs, and the conditions under which they are refused. A refusal comes before the first
change wherever it can, so that the savepoint around it has nothing to undo.
Must not know: threads, commits, batches. Reading for its own sake is in `store.queries`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from store import chain, lease, queries
from store.records import (
    FORMAT_VERSION,
    CallerError,
    CorruptLog,
    Record,
    SequenceConflict,
    SessionCopy,
    SessionExists,
    SessionInfo,
    StoredInput,
    UnknownSequence,
    UnknownSession,
    UnsupportedVersion,
)

_TIP = (
    "SELECT s.number, s.length, s.last_hash, s.format_version, l.epoch, l.token"
    " FROM sessions s LEFT JOIN leases l ON l.session_id = s.id WHERE s.id = ?"
)
_INSERT_EVENT = (
    "INSERT INTO events (session_id, seq, kind, version, recorded_at, data, hash) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_INPUT = "INSERT INTO inputs (session_id, position, input_id, received_at, data, hash) VALUES (?, ?, ?, ?, ?, ?)"


class NewSession(msgspec.Struct, frozen=True):
    """A session to be made: what its row says, and the records that it owns itself."""

    id: str
    created_at: str
    title: str
    prepared: list[chain.Prepared]
    parent_id: str | None = None
    parent_seq: int | None = None
    format_version: int = FORMAT_VERSION


class Append(msgspec.Struct, frozen=True):
    """One append: its records and the conditions under which they may enter the log."""

    session_id: str
    epoch: int
    token: str
    expected_seq: int
    prepared: list[chain.Prepared]


def append(connection: sqlite3.Connection, request: Append) -> list[Record]:
    """Add the records. Raises StaleWriter, SequenceConflict, UnknownSession, UnsupportedVersion, CorruptLog."""
    session_id = request.session_id
    row = connection.execute(_TIP, (session_id,)).fetchone()
    if row is None:
        raise UnknownSession(session_id)
    number, length, last_hash, format_version, epoch, token = row
    if format_version > FORMAT_VERSION:
        raise UnsupportedVersion(f"session {session_id!r}", format_version, FORMAT_VERSION)
    # The lease is asked about before the sequence: one that was taken over must stop, not read again and retry.
    if epoch != request.epoch or token is None or token.decode() != request.token:
        raise lease.stale(connection, session_id, request.epoch)
    if length != request.expected_seq:
        raise SequenceConflict(session_id, request.expected_seq, length)
    records = chain.committed(session_id, last_hash, length + 1, request.prepared)
    if records:
        activity = _insert_events(connection, session_id, records, request.prepared)
        last = records[-1]
        connection.execute(
            "UPDATE sessions SET length = ?, last_hash = ?, last_recorded_at = ?, activity = ? WHERE number = ?",
            (last.seq, last.hash, last.recorded_at, activity, number),
        )
    return records


def create(connection: sqlite3.Connection, new: NewSession) -> SessionInfo:
    """Make a session or a branch with its first records.

    Raises SessionExists, UnknownSession (the parent), UnknownSequence, CorruptLog (the parent at the fork point).
    """
    if not new.id:
        raise CallerError("a session id must not be empty. Choose another id.")
    if connection.execute("SELECT 1 FROM sessions WHERE id = ?", (new.id,)).fetchone():
        raise SessionExists(new.id)
    if new.parent_id is None:
        inherited, tip = 0, chain.seed(new.id)
    else:
        inherited = new.parent_seq or 0
        tip = _fork_point(connection, new.parent_id, inherited)
    records = chain.committed(new.id, tip, inherited + 1, new.prepared)
    if records:
        activity = _insert_events(connection, new.id, records, new.prepared)
    else:
        (activity,) = connection.execute("SELECT coalesce(max(position), 0) FROM events").fetchone()
    length, last_hash = (records[-1].seq, records[-1].hash) if records else (inherited, tip)
    last_recorded_at = records[-1].recorded_at if records else new.created_at
    columns = (new.id, new.format_version, new.created_at, new.title, new.parent_id, new.parent_seq)
    connection.execute(
        "INSERT INTO sessions (id, format_version, created_at, title, parent_id, parent_seq,"
        " length, last_hash, last_recorded_at, activity) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*columns, length, last_hash, last_recorded_at, activity),
    )
    return SessionInfo(new.id, *columns[1:], length, last_hash, last_recorded_at)


def _fork_point(connection: sqlite3.Connection, parent_id: str, at: int) -> bytes:
    """The hash that a branch goes on from. Checks that one event and no more: a fork costs the same at any length."""
    tree = queries.run(connection, queries.lineage(parent_id))
    if not 1 <= at <= tree.info.length:
        raise UnknownSequence(parent_id, at, tree.info.length)
    previous = queries.run(connection, queries.hash_at(tree, at - 1))
    owner = tree.owner(at)
    rows = connection.execute(
        "SELECT seq, kind, version, recorded_at, data, hash FROM events WHERE session_id = ? AND seq = ?", (owner, at)
    ).fetchall()
    try:
        if not rows:
            raise chain.Altered(at, "it is missing")
        return chain.one_checked(owner, previous, at, rows[0]).hash
    except chain.Altered as altered:
        raise CorruptLog(parent_id, at, altered.problem) from None


def _insert_events(
    connection: sqlite3.Connection, session_id: str, records: Sequence[Record], prepared: Sequence[chain.Prepared]
) -> int:
    """Insert the records and return the position of the last: the store-wide order of commits."""
    position = 0
    for record, item in zip(records, prepared, strict=True):
        values = (session_id, record.seq, record.kind, record.version, record.recorded_at, item.text, record.hash)
        try:
            position = connection.execute(_INSERT_EVENT, values).lastrowid or 0
        except sqlite3.IntegrityError:
            raise CorruptLog(session_id, record.seq, "it is there already, beyond the end that its row says") from None
    return position


def restore(
    connection: sqlite3.Connection,
    copies: Sequence[SessionCopy],
    inputs: Sequence[StoredInput],
    blobs: Sequence[tuple[str, bytes]],
) -> SessionInfo:
    """Add a lineage as `Store.restore` says. Raises SessionExists, CallerError, CorruptLog."""
    info = copies[-1].info
    for copy in copies:
        if copy is not copies[-1] and _is_here(connection, copy.info):
            continue
        info = copy.info
        tip = chain.seed(info.id)
        if info.parent_id is not None:
            tip = _fork_point(connection, info.parent_id, info.parent_seq or 0)
        try:
            prepared = chain.copied(copy.records, tip)
        except chain.Altered as altered:
            raise CorruptLog(info.id, altered.seq, altered.problem) from None
        row = (info.id, info.created_at, info.title, prepared, info.parent_id, info.parent_seq, info.format_version)
        info = create(connection, NewSession(*row))
    for entry in inputs:
        add_input(connection, entry)
    put_blobs(connection, blobs)
    return info


def _is_here(connection: sqlite3.Connection, wanted: SessionInfo) -> bool:
    """Whether an ancestor is in this store, with the same history up to its last event that is needed."""
    if not connection.execute("SELECT 1 FROM sessions WHERE id = ?", (wanted.id,)).fetchone():
        return False
    tree = queries.run(connection, queries.lineage(wanted.id))
    if tree.info.length < wanted.length or (
        queries.run(connection, queries.hash_at(tree, wanted.length)) != wanted.last_hash
    ):
        raise CallerError(f"session {wanted.id!r} is here with another history. Import into another store.")
    return True


def submit(connection: sqlite3.Connection, session_id: str, input_id: str, data: bytes, received_at: str) -> int:
    """Add an inbox entry and return its position, or 0 when the same entry is there. Raises CallerError otherwise."""
    queries.run(connection, queries.session(session_id))
    same = connection.execute(
        "SELECT data FROM inputs WHERE session_id = ? AND input_id = ?", (session_id, input_id)
    ).fetchone()
    if same is not None:
        if same[0] != data:
            raise CallerError(f"input id {input_id!r} is taken by other content. Use a new id for a new input.")
        return 0
    (last,) = connection.execute("SELECT max(position) FROM inputs WHERE session_id = ?", (session_id,)).fetchone()
    position = (last or 0) + 1
    add_input(connection, StoredInput(session_id, input_id, position, received_at, data))
    return position


def add_input(connection: sqlite3.Connection, entry: StoredInput) -> None:
    """Insert an inbox entry at its position."""
    digest = chain.input_hash(entry.session_id, entry.position, entry.input_id, entry.received_at, entry.data)
    connection.execute(
        _INSERT_INPUT,
        (entry.session_id, entry.position, entry.input_id, entry.received_at, entry.data.decode(), digest),
    )


def put_blobs(connection: sqlite3.Connection, blobs: Sequence[tuple[str, bytes]]) -> None:
    """Store (digest, bytes) pairs that are not there yet."""
    for digest, data in blobs:
        if connection.execute("SELECT 1 FROM blobs WHERE digest = ?", (digest,)).fetchone() is None:
            connection.execute("INSERT INTO blobs (digest, data) VALUES (?, ?)", (digest, data))
