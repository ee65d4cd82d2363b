"""The one thread that writes, and group commit.

Belongs here: the queue, batches and their savepoints, who is told what when a commit succeeds or fails, and noticing
other processes' commits, because this thread's connection is the one that is always open.
Must not know: what a piece of work writes.

Everything that waits when the thread is free becomes one transaction and one fsync. A caller is woken when that commit
is on disk, never before; a piece of work that is refused is undone by its own savepoint and fails alone; a commit that
fails fails for everyone in it.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import trio

from store.records import StoreUnavailable
from store.schema import Opened, unavailable
from store.watch import Change, Watch

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

POLL_S = 0.025
"""Between two looks for other processes' commits, while somebody waits. A look costs some microseconds."""

MAX_BATCH = 500
"""Pieces of work in one commit: keeps the first of a long queue from waiting for the last."""


class _Request(Generic[T]):
    """One piece of work and the task that waits for it."""

    __slots__ = ("_claim", "changed", "error", "result", "task", "work")

    def __init__(self, work: Work[T], changed: Callable[[T], Change | None] | None, task: trio.lowlevel.Task) -> None:
        self.work, self.changed, self.task = work, changed, task
        self.result: T | None = None
        self.error: BaseException | None = None
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """True for the first who asks: the writer that starts it, or the cancellation that withdraws it."""
        return self._claim.acquire(blocking=False)


class Writer:
    """Runs pieces of work in batches on its own thread. Made, used and closed in one trio run."""

    def __init__(self, opened: Opened, location: str) -> None:
        self._connection = opened.connection
        self._files = opened.files
        self._unwritable = opened.unwritable
        self._location = location
        self._token = trio.lowlevel.current_trio_token()
        self._queue: queue.SimpleQueue[_Request[Any] | None] = queue.SimpleQueue()
        self.watch = Watch(on_first=lambda: self._queue.put(None))
        self._closing = False
        self._data_version = -1
        self._event_cursor, self._input_cursor = self._newest()
        self._ended = trio.Event()
        self._thread = threading.Thread(target=self._run, name="turnlog writer", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T], changed: Callable[[T], Change | None] | None = None) -> T:
        """Run `work` in a write transaction and return its result once that is on disk.

        changed: says what grew, for the waiters in this process. Raises what `work` raises, and StoreUnavailable.
        Cancelled: withdrawn when the writer has not started it, otherwise it runs to its end and returns normally.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closing:
            raise StoreUnavailable(f"{self._location}: this store is closed. Open it again.")
        if self._unwritable is not None:
            raise StoreUnavailable(str(self._unwritable))
        request: _Request[T] = _Request(work, changed, trio.lowlevel.current_task())

        def abort(_: object) -> trio.lowlevel.Abort:
            return trio.lowlevel.Abort.SUCCEEDED if request.claim() else trio.lowlevel.Abort.FAILED

        self._queue.put(request)
        await trio.lowlevel.wait_task_rescheduled(abort)
        if request.error is not None:
            raise request.error
        return request.result  # type: ignore[return-value]  # set whenever there is no error

    async def aclose(self) -> None:
        """Finish what was queued, end the thread and close the connection. Doing it twice is doing it once."""
        with trio.CancelScope(shield=True):
            if not self._closing:
                self._closing = True
                self.watch.close(f"{self._location}: this store was closed.")
                self._queue.put(None)
            await self._ended.wait()
            self._thread.join()  # it has said its last word, so this is immediate

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            # Also after an error of our own: a waiter must hear of it, not wait for ever.
            self._closing = True
            self._files.close(self._connection)
            self._tell(self._fail_rest)

    def _serve(self) -> None:
        next_poll = 0.0
        while True:
            batch, told = self._take()
            if batch:
                self._commit(batch)
                self._tell(self._deliver, batch)
                batch = []  # its callers' records and errors are not to stay until somebody writes again
            elif told and self._closing:
                return
            if self.watch.active and time.monotonic() >= next_poll:
                next_poll = time.monotonic() + POLL_S
                self._look_for_foreign_commits()

    def _fail_rest(self) -> None:
        """In trio's thread, after the last batch: nobody is left waiting."""
        while not self._queue.empty():
            request = self._queue.get_nowait()
            if request is not None and request.claim():
                request.error = StoreUnavailable(f"{self._location}: this store is closed. Open it again.")
                trio.lowlevel.reschedule(request.task)
        self._ended.set()

    def _take(self) -> tuple[list[_Request[Any]], bool]:
        """What waits now, up to a batch, and whether a bare wake-up ended it. Blocks when nothing does."""
        batch: list[_Request[Any]] = []
        try:
            item = self._queue.get(timeout=POLL_S if self.watch.active else None)
            while item is not None:
                if item.claim():
                    batch.append(item)
                if len(batch) == MAX_BATCH:
                    return batch, False
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch, False
        if batch:
            self._queue.put(None)  # a wake-up behind work is for the round after it
        return batch, True

    def _commit(self, batch: Sequence[_Request[Any]]) -> None:
        """Run a batch as one transaction. Afterwards every request has its result, durable, or its error."""
        connection = self._connection
        try:
            self._files.check(connection)
            connection.execute("BEGIN IMMEDIATE")
            alone = len(batch) == 1
            for request in batch:
                self._attempt(request, alone=alone)
            # With nothing to keep, a rollback saves the disk's turn.
            connection.execute("ROLLBACK" if all(request.error for request in batch) else "COMMIT")
            # Asked again, because what went into a file that had just been removed is not to be acknowledged.
            self._files.check_database()
        except StoreUnavailable as refusal:
            for request in batch:
                request.error = request.error or StoreUnavailable(str(refusal))
            self._tell(self.watch.close, str(refusal))
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # refused by the same broken disk: the next BEGIN will say so
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            for request in batch:
                # Each gets its own exception: one shared by many tasks would collect all their tracebacks.
                request.error = request.error or unavailable(self._location, error)

    def _attempt(self, request: _Request[Any], *, alone: bool) -> None:
        """Run one request so that its failure leaves no trace. Raises sqlite3.Error when the whole batch is lost."""
        connection = self._connection
        if not alone:
            connection.execute("SAVEPOINT request")
        try:
            request.result = request.work(connection)
        except sqlite3.Error as error:
            # A full disk makes SQLite roll everything back, also what earlier requests of the batch had written.
            if not connection.in_transaction:
                raise
            request.error = unavailable(self._location, error)
        except Exception as error:  # noqa: BLE001  # handed to the task that asked, which raises it
            request.error = error
        if not alone:
            if request.error is not None:
                connection.execute("ROLLBACK TO request")
            connection.execute("RELEASE request")

    def _deliver(self, batch: Sequence[_Request[Any]]) -> None:
        """Wake a whole batch at once, in trio's thread: one hand-over between threads for all of them."""
        changes = []
        for request in batch:
            trio.lowlevel.reschedule(request.task)
            if request.error is None and request.changed is not None:
                change = request.changed(request.result)
                if change is not None:
                    changes.append(change)
        self.watch.notify(changes)

    def _tell(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            self._closing = True  # nobody is left to tell; the next round ends the thread
            self._queue.put(None)

    def _newest(self) -> tuple[int, int]:
        try:
            (self._data_version,) = self._connection.execute("PRAGMA data_version").fetchone()
            row = self._connection.execute(
                "SELECT coalesce((SELECT max(position) FROM events), 0), coalesce((SELECT max(arrival) FROM inputs), 0)"
            ).fetchone()
        except sqlite3.Error:
            return 0, 0  # damaged there: who reads it is told, and what comes first is looked at again
        return row[0], row[1]

    def _look_for_foreign_commits(self) -> None:
        """Tell the waiters what other processes have committed. Costs as much as there is new, however many wait."""
        try:
            self._files.check(self._connection)
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
            if version == self._data_version:
                return
            changes: list[Change] = []
            for what, sql, cursor in (
                ("log", "SELECT session_id, max(seq), max(position) FROM events WHERE position > ?", "_event_cursor"),
                (
                    "inbox",
                    "SELECT session_id, max(position), max(arrival) FROM inputs WHERE arrival > ?",
                    "_input_cursor",
                ),
            ):
                rows = self._connection.execute(f"{sql} GROUP BY session_id", (getattr(self, cursor),)).fetchall()
                if rows:
                    setattr(self, cursor, max(row[2] for row in rows))
                changes += [(what, row[0].decode(errors="replace"), row[1]) for row in rows]  # type: ignore[misc]
        except StoreUnavailable as refusal:
            self._tell(self.watch.close, str(refusal))
            return
        except sqlite3.Error:
            return  # busy or damaged: the next look, or the next read, tells
        self._data_version = version
        if changes:
            self._tell(self.watch.notify, changes)
