"""Events to store records and back.  Pure.

Belongs here: encoding, decoding, upcasting, and refusing what is newer than this code.
Must not know: how a store works, or what an event means.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, TypeVar, cast

import msgspec

from harness.errors import Unrecordable
from harness.events import BY_KIND, UPCASTERS, VERSIONS, Event, Logged
from harness.nesting import is_deeper
from store import CorruptLog, NewRecord, Record, UnsupportedVersion

E = TypeVar("E", bound=Event)

_encode: Final = msgspec.json.Encoder().encode
_decoders: Final = {kind: msgspec.json.Decoder(event_type).decode for kind, event_type in BY_KIND.items()}
_decode_any: Final = msgspec.json.Decoder(dict[str, Any]).decode

MOST_DEPTH: Final = 200
"""Arrays and objects inside one another in one event. A reader deep in its own stack has to get through them."""


def encode(event: Event, recorded_at: str) -> NewRecord:
    """The record of an event, at the version that this code writes."""
    kind = event.kind()
    return NewRecord(kind=kind, version=VERSIONS[kind], recorded_at=recorded_at, data=_encode(event))


def recorded(event: E, recorded_at: str) -> tuple[NewRecord, E]:
    """The record of an event, and the event as every reader of that record will find it.

    Events are partly made of what models and tools give, which no type check has seen: what is taken into the state
    has to be what the log says, or the next opener cannot read it. Raises Unrecordable.
    """
    try:
        record = encode(event, recorded_at)
        read = cast("E", _decoders[record.kind](record.data))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unrecordable(str(error) or type(error).__name__) from error
    if is_deeper(record.data, MOST_DEPTH):
        raise Unrecordable(f"it is nested more than {MOST_DEPTH} levels deep")
    return record, read


def decode(record: Record) -> Logged:
    """The event of a record, lifted to today's shape.

    Raises UnsupportedVersion for a kind or version that this code does not know, CorruptLog for data it cannot read.
    """
    known = VERSIONS.get(record.kind)
    if known is None or record.version > known:
        raise UnsupportedVersion(
            f"event {record.seq} ({record.kind}) of session {record.session_id!r}", record.version, known or 0
        )
    try:
        event = _decoders[record.kind](record.data) if record.version == known else _upcast(record, known)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CorruptLog(record.session_id, record.seq, f"its data is not a {record.kind} event ({error})") from error
    return Logged(record.seq, record.recorded_at, event)


def decode_all(records: Iterable[Record]) -> list[Logged]:
    """Every event, or none: a log that cannot be read whole is not read."""
    return [decode(record) for record in records]


def _upcast(record: Record, known: int) -> Event:
    data = _decode_any(record.data)
    for version in range(record.version, known):
        data = UPCASTERS[record.kind, version](data)
    return msgspec.convert(data, BY_KIND[record.kind])


def timestamp(moment: datetime) -> str:
    """A UTC moment as it stands in the log, to the millisecond: 2026-03-01T12:00:00.000Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
