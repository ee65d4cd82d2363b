"""The hash chain that makes an altered, missing or reordered record visible.  Pure.

Belongs here: what a hash covers, how a record is framed for it, and the check of a row against its predecessor.
Must not know: SQL, files, sessions' relations. The bytes that a hash covers never change within a format version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from store.records import CallerError, NewRecord, Record

DIGEST_BYTES = 16
_SEQ = struct.Struct(">Q")
# Lengths go first, so that moving a byte from one field to its neighbour is another message.
_FRAME = struct.Struct(">qIIQ")


class Altered(Exception):
    """A row is not what was committed. Carries the sequence number expected there and the problem in words."""

    def __init__(self, seq: int, problem: str) -> None:
        self.seq, self.problem = seq, problem
        super().__init__(f"event {seq}: {problem}")


class Prepared(msgspec.Struct, frozen=True):
    """A new record, checked and framed by its caller so that the writer only has to chain it."""

    record: NewRecord
    text: str  # `data` decoded: SQLite keeps it as TEXT, which other tools can query
    frame: bytes


def seed(session_id: str) -> bytes:
    """The hash before a root session's first record. Bound to the id: a log under another id does not verify."""
    return blake2b(b"turnlog session\0" + session_id.encode(), digest_size=DIGEST_BYTES).digest()


def frame(kind: bytes, version: int, recorded_at: bytes, data: bytes) -> bytes:
    """Everything of a record that its hash covers, apart from its place in the log."""
    return _FRAME.pack(version, len(kind), len(recorded_at), len(data)) + kind + recorded_at + data


def link(previous: bytes, seq: int, framed: bytes) -> bytes:
    """The hash of the record `framed` at `seq`, after a record whose hash is `previous`."""
    return blake2b(previous + _SEQ.pack(seq) + framed, digest_size=DIGEST_BYTES).digest()


def prepare(records: Sequence[NewRecord]) -> list[Prepared]:
    """Check and frame records on their way in. Raises CallerError for what could not be read back as it was given."""
    prepared = []
    for record in records:
        try:
            text = record.data.decode()
            framed = frame(record.kind.encode(), record.version, record.recorded_at.encode(), record.data)
        except (UnicodeError, struct.error, AttributeError, TypeError) as error:
            raise CallerError(f"a {record.kind!r} record cannot be stored: {error}. Data must be UTF-8 text.") from None
        prepared.append(Prepared(record, text, framed))
    return prepared


def committed(session_id: str, previous: bytes, first_seq: int, prepared: Iterable[Prepared]) -> list[Record]:
    """The records as they will stand in the log, from `first_seq` on, after a record whose hash is `previous`."""
    records = []
    for seq, item in enumerate(prepared, first_seq):
        new = item.record
        previous = link(previous, seq, item.frame)
        records.append(Record(session_id, seq, new.kind, new.version, new.recorded_at, new.data, previous))
    return records


def checked(session_id: str, previous: bytes, first_seq: int, rows: Iterable[Sequence[Any]]) -> list[Record]:
    """Turn rows (seq, kind, version, recorded_at, data, hash; texts as bytes) into records, each checked.

    previous: hash of the record before `first_seq`. Raises Altered at the first row that is not as committed.
    """
    records = []
    for seq, row in enumerate(rows, first_seq):
        records.append(one_checked(session_id, previous, seq, row))
        previous = row[5]
    return records


def one_checked(session_id: str, previous: bytes, seq: int, row: Sequence[Any]) -> Record:
    """One row as a record. Raises Altered when its place, type or hash is wrong."""
    found, kind, version, recorded_at, data, stored = row
    if found != seq:
        raise Altered(seq, "it is missing" if type(found) is int and found > seq else "it is out of order")
    try:
        # A damaged row can hold any SQLite type and any bytes: whatever cannot be framed was not committed by us.
        expected = link(previous, seq, frame(kind, version, recorded_at, data))
        if stored == expected and type(stored) is bytes:
            return Record(session_id, seq, kind.decode(), version, recorded_at.decode(), data, stored)
    except (TypeError, struct.error, AttributeError, UnicodeError):
        raise Altered(seq, "it cannot be read") from None
    raise Altered(seq, "it was altered or moved (its hash does not match)")


def copied(records: Sequence[Record], previous: bytes) -> list[Prepared]:
    """Records from another store, ready to be committed here. Raises Altered at the first whose hash does not match."""
    prepared = []
    for record in records:
        new = NewRecord(record.kind, record.version, record.recorded_at, record.data)
        try:
            prepared += prepare([new])
        except CallerError:
            raise Altered(record.seq, "it cannot be read") from None
        previous = link(previous, record.seq, prepared[-1].frame)
        if previous != record.hash:
            raise Altered(record.seq, "it was altered or moved (its hash does not match)")
    return prepared


def input_hash(session_id: str, position: int, input_id: str, received_at: str, data: bytes) -> bytes:
    """The hash of one inbox entry. Entries are not chained: any process may add one without knowing the last."""
    return link(seed(session_id), position, frame(input_id.encode(), 0, received_at.encode(), data))


def blob_digest(data: bytes) -> str:
    """The name of a blob: blake2b-128 of its bytes, in hexadecimal."""
    return blake2b(data, digest_size=DIGEST_BYTES).hexdigest()
