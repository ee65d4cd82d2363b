"""The lines of an exported session.  Pure.

Belongs here: what each line holds, and reading them back with every check that needs no store.
Must not know: stores, files. A released version of this format can be read for ever.

An export is JSON lines: a header with the lineage (root first, the session itself last), one line an event in order of
sequence (those that a branch inherits first, under their owner's id), the session's inbox, the blobs that its events
mention, and an end line with the digest of all that is before it. Event data is a JSON string, so its bytes survive.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from store.records import CallerError, CorruptLog, Record, SessionCopy, SessionInfo, StoredInput, UnsupportedVersion

EXPORT_VERSION: Final = 1


class Member(msgspec.Struct, frozen=True):
    """One session of the lineage, as far as it is exported: an ancestor only up to the fork, and without its inbox."""

    id: str
    format_version: int
    created_at: str
    title: str
    parent_id: str | None
    parent_seq: int | None


class Header(msgspec.Struct, frozen=True, tag="turnlog_export"):
    """The first line."""

    version: int
    session_id: str
    lineage: list[Member]


class Event(msgspec.Struct, frozen=True, tag="event"):
    """One event. `session_id` is its owner."""

    session_id: str
    seq: int
    kind: str
    version: int
    recorded_at: str
    data: str
    hash: str


class Input(msgspec.Struct, frozen=True, tag="input"):
    """One entry of the session's inbox."""

    input_id: str
    position: int
    received_at: str
    data: str


class Blob(msgspec.Struct, frozen=True, tag="blob"):
    """One blob, its bytes in base64."""

    data: bytes


class End(msgspec.Struct, frozen=True, tag="end"):
    """The last line. `damaged_at` is the first event that could not be exported, None for a whole log."""

    events: int
    digest: str
    damaged_at: int | None


class Contents(msgspec.Struct, frozen=True):
    """What an export holds, ready for `Store.restore`."""

    copies: list[SessionCopy]
    inputs: list[StoredInput]
    blobs: list[bytes]


_DECODER = msgspec.json.Decoder(Header | Event | Input | Blob | End)


class Digest:
    """The running digest over an export's lines."""

    def __init__(self) -> None:
        self._state = blake2b(digest_size=16)

    def add(self, line: bytes) -> None:
        """Count one line in, without its line feed."""
        self._state.update(len(line).to_bytes(8, "big") + line)

    @property
    def hex(self) -> str:
        """The digest of what was added so far."""
        return self._state.hexdigest()


def parse(lines: Iterable[bytes], *, salvaged: bool) -> Contents:
    """Read a whole export. Raises UnsupportedVersion, CallerError (not an export, or a damaged one's remains)."""
    digest = Digest()
    header: Header | None = None
    events: list[Event] = []
    inputs: list[Input] = []
    blobs: list[bytes] = []
    end: End | None = None
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip(b"\r\n")
        if number == 1:
            _check_version(line)
        if end is not None:
            raise CallerError(f"line {number} of the export is after its end. Export the session again.")
        try:
            item = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise CallerError(f"line {number} of the export cannot be read: {error}.") from None
        if isinstance(item, Header) != (number == 1):
            raise CallerError(f"line {number} of the export is out of place. Export the session again.")
        match item:
            case Header():
                header = item
            case Event():
                events.append(item)
            case Input():
                inputs.append(item)
            case Blob():
                blobs.append(item.data)
            case End():
                end = item
        if end is None:
            digest.add(line)
    if header is None:
        raise CallerError("the export is empty. Export the session again.")
    if end is None:
        raise CallerError("the export is cut off: its end line is missing. Export the session again.")
    if end.damaged_at is not None and (not salvaged or not events):
        raise CorruptLog(header.session_id, end.damaged_at, "the export holds only what is before it")
    contents = _contents(header, events, inputs, blobs)
    if (end.events, end.digest) != (len(events), digest.hex):
        raise CallerError("the export was altered: its digest does not match. Export the session again.")
    return contents


def _check_version(line: bytes) -> None:
    """Ask for the version before anything else: a newer format may have lines that this code cannot even read."""

    class Mark(msgspec.Struct):
        type: str
        version: int

    try:
        mark = msgspec.json.decode(line, type=Mark)
    except (msgspec.DecodeError, UnicodeError):
        raise CallerError("this is not an exported session: its first line is no header.") from None
    if mark.type != "turnlog_export":
        raise CallerError("this is not an exported session: its first line is no header.")
    if mark.version > EXPORT_VERSION:
        raise UnsupportedVersion("the export", mark.version, EXPORT_VERSION)


def _contents(header: Header, events: list[Event], inputs: list[Input], blobs: list[bytes]) -> Contents:
    """Give each member its records. Raises CorruptLog where the events are not one log."""
    session_id = header.session_id
    if not header.lineage or header.lineage[-1].id != session_id:
        raise CallerError("the export's header does not lead to its session. Export the session again.")
    owned: dict[str, list[Record]] = {member.id: [] for member in header.lineage}
    for seq, event in enumerate(events, 1):
        if event.seq != seq or event.session_id not in owned:
            raise CorruptLog(session_id, seq, "it is missing from the export, or out of place")
        owned[event.session_id].append(_record(session_id, event))
    copies: list[SessionCopy] = []
    length = len(events)
    for member in reversed(header.lineage):
        copies.insert(0, _copy(member, length, owned[member.id], events))
        # A branch may start before its parent's own fork: then that is where the grandparent is cut, too.
        length = min(length, length if member.parent_seq is None else member.parent_seq)
    stored = [StoredInput(session_id, i.input_id, i.position, i.received_at, i.data.encode()) for i in inputs]
    return Contents(copies, stored, blobs)


def _record(session_id: str, event: Event) -> Record:
    try:
        data, stored = event.data.encode(), bytes.fromhex(event.hash)
    except ValueError:
        raise CorruptLog(session_id, event.seq, "it cannot be read") from None
    return Record(event.session_id, event.seq, event.kind, event.version, event.recorded_at, data, stored)


def _copy(member: Member, length: int, records: list[Record], events: list[Event]) -> SessionCopy:
    """A member cut to `length`. One that was forked later than that inherits all of it."""
    last = events[length - 1] if length else None
    info = SessionInfo(
        id=member.id,
        format_version=member.format_version,
        created_at=member.created_at,
        title=member.title,
        parent_id=member.parent_id,
        parent_seq=None if member.parent_seq is None else min(member.parent_seq, length),
        length=length,
        last_hash=bytes.fromhex(last.hash) if last else b"",
        last_recorded_at=records[-1].recorded_at if records else member.created_at,
    )
    return SessionCopy(info, tuple(records))
