"""Taking sessions out of a store, putting them into another, and backing a store up.

Belongs here: export, import and online backup. They work while sessions run.
Must not know: tables, locks. Export and import use the `Store` contract only, so they work on every store.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import AsyncIterable, Awaitable, Generator, Iterable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from store import export_format, schema
from store.records import (
    FORMAT_VERSION,
    CallerError,
    CorruptBlob,
    CorruptLog,
    Record,
    SessionInfo,
    Store,
    StoreUnavailable,
    UnsupportedVersion,
)

PAGE = 500
"""Events read at once by an export."""

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")

Step = bytes | Awaitable[Any]


def export_session(store: Store, session_id: str) -> Export:
    """The lines of one session as it is now, as an async iterator of bytes, each with its line feed.

    A branch's export holds the events that it inherits and its ancestors' names, not what they did after the fork. A
    damaged session's export holds the events before the damage, ends properly, and then raises CorruptLog: what was
    written so far can be imported with `salvaged`. Raises UnknownSession, UnsupportedVersion.
    """
    return Export(store, session_id)


class Export:
    """An export in progress. It holds nothing between two lines, so it may be left at any point."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._steps = _exported(store, session_id)

    def __aiter__(self) -> Export:
        """Itself: an export is one pass."""
        return self

    async def __anext__(self) -> bytes:
        """The next line."""
        try:
            step = next(self._steps)
            while not isinstance(step, bytes):
                try:
                    answer = await step
                except CorruptLog as error:
                    step = self._steps.throw(error)
                else:
                    step = self._steps.send(answer)
        except StopIteration:
            raise StopAsyncIteration from None
        return step

    async def aclose(self) -> None:
        """End the export. Not necessary."""
        self._steps.close()


def _exported(store: Store, session_id: str) -> Generator[Step, Any, None]:
    """Yields lines to hand out, and awaitables to be answered. A plain generator needs no closing by an event loop."""
    digest = export_format.Digest()

    def line(item: msgspec.Struct) -> bytes:
        encoded = msgspec.json.encode(item)
        digest.add(encoded)
        return encoded + b"\n"

    info: SessionInfo = yield store.session(session_id)
    lineage: list[tuple[str, int]] = yield store.ancestors(session_id)
    members = []
    for ancestor, _ in lineage:
        members.append(_member((yield store.session(ancestor))))
    yield line(export_format.Header(export_format.EXPORT_VERSION, session_id, [*members, _member(info)]))

    mentioned: dict[bytes, None] = {}
    done, damage = 0, None
    while done < info.length and damage is None:
        records, damage = yield from _healthy(store, session_id, done, info.length)
        for record in records:
            mentioned.update(dict.fromkeys(_DIGEST.findall(record.data)))
            yield line(_event(record))
        done += len(records)
    try:
        for entry in (yield store.inputs(session_id)):
            data = entry.data.decode()
            yield line(export_format.Input(entry.input_id, entry.position, entry.received_at, data))
        for name in mentioned:
            try:
                yield line(export_format.Blob((yield store.blob(name.decode()))))
            except CorruptBlob as error:
                # Most digests in an event name something else; one that is here but altered is damage.
                if not error.missing:
                    raise
    except CorruptLog as error:
        damage = damage or error
    damaged_at = None if damage is None else (damage.seq or done + 1)
    yield msgspec.json.encode(export_format.End(done, digest.hex, damaged_at)) + b"\n"
    if damage is not None:
        raise damage


def _healthy(
    store: Store, session_id: str, done: int, length: int
) -> Generator[Step, Any, tuple[list[Record], CorruptLog | None]]:
    """The next page of records, or what of it is before the damage, with the damage."""
    try:
        page: list[Record] = yield store.read(session_id, after=done, upto=length, limit=PAGE)
        return page, None
    except CorruptLog:
        healthy: list[Record] = []
    while True:  # one by one, until the damaged one: it is inside this page
        try:
            healthy += yield store.read(session_id, after=done + len(healthy), upto=length, limit=1)
        except CorruptLog as damage:
            return healthy, damage
        if done + len(healthy) >= length:
            return healthy, None


def _member(info: SessionInfo) -> export_format.Member:
    return export_format.Member(
        info.id, info.format_version, info.created_at, info.title, info.parent_id, info.parent_seq
    )


def _event(record: Record) -> export_format.Event:
    return export_format.Event(
        session_id=record.session_id,
        seq=record.seq,
        kind=record.kind,
        version=record.version,
        recorded_at=record.recorded_at,
        data=record.data.decode(),
        hash=record.hash.hex(),
    )


async def import_session(
    store: Store, lines: Iterable[bytes] | AsyncIterable[bytes], *, salvaged: bool = False
) -> SessionInfo:
    """Add an exported session to `store`, all of it or nothing, with its numbers, hashes and times as they were.

    A branch brings the ancestors that are not here, cut at the fork; those that are here are used if their history is
    the same up to there. Leases are not part of an export.
    salvaged: take an export that ends before damage; the session then ends there.
    Raises SessionExists, UnsupportedVersion, CorruptLog, CallerError (not an export, altered, cut off).
    """
    if isinstance(lines, AsyncIterable):
        lines = [line async for line in lines]
    contents = export_format.parse(lines, salvaged=salvaged)
    for copy in contents.copies:
        if copy.info.format_version > FORMAT_VERSION:
            raise UnsupportedVersion(f"session {copy.info.id!r}", copy.info.format_version, FORMAT_VERSION)
    return await store.restore(contents.copies, contents.inputs, contents.blobs)


async def backup(source: str | Path, target: str | Path) -> None:
    """Copy a store's file to the new file `target`, consistent, while any process goes on writing.

    The copy appears under its name only when it is whole and on disk. Raises CallerError when `target` is there,
    StoreUnavailable, UnsupportedVersion. Cancelled: the copy is finished first.
    """
    await trio.to_thread.run_sync(partial(_backup, Path(source), Path(target)))


def _backup(source: Path, target: Path) -> None:
    if not target.parent.is_dir():
        raise StoreUnavailable(f"{target}: its folder does not exist. Create {target.parent}, or name another file.")
    if target.exists():
        raise CallerError(f"{target} exists already. Name another file for the backup.")
    partial_copy = target.with_name(f"{target.name}.{os.getpid()}.partial")
    with closing(schema.open_reading(source, damaged=False).connection) as origin:
        try:
            # A copy is as private as what it is a copy of, from its first byte on. SQLite takes an empty file as new.
            partial_copy.unlink(missing_ok=True)
            partial_copy.touch(mode=0o600, exist_ok=False)
            with closing(sqlite3.connect(partial_copy)) as copy:
                origin.backup(copy)
                # One file is what a backup should be: no log beside it that is forgotten when it is moved.
                copy.execute("PRAGMA journal_mode = DELETE")
            _flush(partial_copy)
            # A link fails where a rename would replace what somebody else has put there meanwhile.
            os.link(partial_copy, target)
            _flush(target.parent)
        except FileExistsError:
            raise CallerError(f"{target} exists already. Name another file for the backup.") from None
        except (OSError, sqlite3.Error) as error:
            raise _not_made(source, target, error) from error
        finally:
            with suppress(OSError):
                partial_copy.unlink(missing_ok=True)


def _not_made(source: Path, target: Path, error: OSError | sqlite3.Error) -> StoreUnavailable:
    """The source was open by then: unless its pages cannot be read, it is the copy that something is wrong with."""
    name = getattr(error, "sqlite_errorname", "") or ""
    reading = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_IOERR_READ")
    of_source = name.startswith(reading)
    why = schema.unavailable(str(source if of_source else target), error)
    return StoreUnavailable(f"the backup {target} was not made. {why}" if of_source else why)


def _flush(path: Path) -> None:
    """Wait until a file's or folder's contents are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
