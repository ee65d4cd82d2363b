"""Read and follow a store from an asyncio program, beside whatever writes it.

Belongs here: driving the plans of `store.queries` over aiosqlite. The same records, checks and errors as `SqliteStore`.
Must not know: writing, leases, trio. Only this module imports aiosqlite, and `import store` does not import it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiosqlite

from store import queries, schema
from store.files import OpenFiles
from store.records import CorruptLog, Record, SessionInfo, StoredInput
from store.watch import FOLLOW_RECORDS, Following

T = TypeVar("T")

POLL_S = 0.05
"""Seconds between two looks for new records while a follower waits."""


@asynccontextmanager
async def open_reader(path: str | Path) -> AsyncIterator[Reader]:
    """Open the store in the file `path` for reading. Neither makes nor changes it, and keeps nobody from writing.

    Raises StoreUnavailable, UnsupportedVersion.
    """
    where = Path(path)
    opened = await asyncio.to_thread(schema.open_reading, where)
    connection = await aiosqlite.Connection(lambda: opened.connection, iter_chunk_size=queries.PAGE_ROWS)
    try:
        yield Reader(connection, opened.files, where)
    finally:
        await connection.close()


class Reader:
    """An open store, for reading. Calls of one reader run one after the other."""

    def __init__(self, connection: aiosqlite.Connection, files: OpenFiles, path: Path) -> None:
        self._connection = connection
        self._files = files
        self._path = path
        self._one_at_a_time = asyncio.Lock()

    async def sessions(self) -> list[SessionInfo]:
        """Every session, last active first."""
        return await self._run(queries.sessions())

    async def session(self, session_id: str) -> SessionInfo:
        """One session's row. Raises UnknownSession, UnsupportedVersion, CorruptLog."""
        return await self._run(queries.session(session_id))

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int | None = None
    ) -> list[Record]:
        """Records after `after` up to and including `upto`, checked. Raises as `SqliteStore.read`."""
        return await self._run(queries.read(session_id, max(after, 0), upto, limit), session_id)

    async def inputs(self, session_id: str, *, after: int = 0) -> list[StoredInput]:
        """Inbox entries with a position above `after`."""
        return await self._run(queries.inputs(session_id, after), session_id)

    def follow(self, session_id: str, *, after: int = 0) -> Follower:
        """Committed records for ever, each once, in order. May be left at any point."""
        return Follower(self, session_id, max(after, 0))

    async def data_version(self) -> int:
        """A number that changes when another connection has committed."""
        return await self._run(_data_version())

    async def _run(self, plan: queries.Plan[T], session_id: str = "") -> T:
        """Drive a plan over one snapshot."""
        async with self._one_at_a_time:
            self._files.check()
            try:
                await self._connection.execute("BEGIN")
                try:
                    query = next(plan)
                    while True:
                        try:
                            rows = await self._connection.execute_fetchall(*query)
                        except sqlite3.Error as error:
                            query = plan.throw(error)
                        else:
                            query = plan.send([tuple(row) for row in rows])
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                finally:
                    await self._connection.rollback()
            except sqlite3.OperationalError as error:
                raise schema.unavailable(str(self._path), error) from error
            except sqlite3.DatabaseError as error:
                if not session_id:
                    raise schema.unavailable(str(self._path), error) from error
                raise CorruptLog(session_id, None, f"the database file is damaged ({error})") from error


class Follower(Following):
    """Follows a log by asking again and again: nothing else tells an asyncio program of other processes' commits."""

    def __init__(self, reader: Reader, session_id: str, after: int) -> None:
        super().__init__(after)
        self._reader, self._session_id = reader, session_id

    async def _more(self, after: int) -> list[Record]:
        # Asked before the read: a commit that lands in between shows as a change afterwards.
        seen = await self._reader.data_version()
        records = await self._reader.read(self._session_id, after=after, limit=FOLLOW_RECORDS)
        while not records and await self._reader.data_version() == seen:  # noqa: ASYNC110  # no event reaches us
            await asyncio.sleep(POLL_S)
        return records


def _data_version() -> queries.Plan[int]:
    rows = yield "PRAGMA data_version", ()
    return int(rows[0][0])
