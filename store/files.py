"""The files that an open store is made of, and whether they are still those that were opened.

Belongs here: noticing that the database, its write-ahead log or the log's index was removed, replaced or cut short.
Must not know: what is read from them or written to them.

SQLite goes on in the files that it has open, wherever their names lead by now: an append would be acknowledged that
nobody who opens the store ever finds. The index is mapped into memory, and touching a page of it that was cut off is
SIGBUS, which ends the process without a word. So the files are looked at around every commit and every read; that takes
some microseconds. After the first refusal everything is refused: nobody knows what became of the log meanwhile.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from store.records import StoreUnavailable

_DATABASE: Final = ""
_LOG: Final = "-wal"
_INDEX: Final = "-shm"
_NAMES: Final = {_DATABASE: "the store file", _LOG: "its write-ahead log", _INDEX: "the index of its write-ahead log"}

_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24


LOG_LOOK_S: Final = 0.05
"""Seconds between two looks at whether the log is still the same file; that it is there, and its length, are asked each
time. Asking a file for its times makes Linux write them at the next change: 65 µs of a commit of 400 here."""


class _File(msgspec.Struct):
    """One file as it was opened, and the size that it had at the last look. `name` is its absolute path."""

    kind: str
    name: str
    device: int
    inode: int
    size: int


class OpenFiles:
    """The files behind one store's connections. Made before the first connection, so that nothing slips in between."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._location = str(path)
        self._files: list[_File] = []
        self._absent: Path | None = None
        self._refusal: str | None = None
        self._log: int | None = None
        self._log_due_s = 0.0
        self._add(_DATABASE, self._path)

    def opened(self, *, writing: bool) -> None:
        """Take note of the write-ahead log and its index. Called once a connection has read from the database.

        They stay as they are from then on: only the last connection that is closed removes them.
        writing: whether `check` will be asked around commits; then `close` has to be called.
        """
        # Beside the database itself, where its own name is a link. A store that cannot be written may have neither.
        for kind in (_LOG, _INDEX):
            with suppress(FileNotFoundError):
                self._add(kind, Path(f"{self._path.resolve()}{kind}"))
        if writing:
            # A descriptor of our own: SQLite has no locks on this file that closing it could drop.
            self._log = os.open(f"{self._path.resolve()}{_LOG}", os.O_RDONLY)

    def stays_unwritten(self) -> None:
        """Take note that the file is read as it is, which is right only as long as nobody makes a log beside it."""
        log = Path(f"{self._path.resolve()}{_LOG}")
        self._absent = None if log.exists() else log

    def _add(self, kind: str, path: Path) -> None:
        found = path.stat()
        self._files.append(_File(kind, str(path), found.st_dev, found.st_ino, found.st_size))

    def check(self, connection: sqlite3.Connection | None = None) -> None:
        """Raise StoreUnavailable when a file is not the one that was opened, now or at any time before.

        connection: one of the store's, outside a transaction: then also the database and its log have to be as long as
        SQLite knows them to be.
        """
        if self._refusal is not None:
            raise StoreUnavailable(self._refusal)
        if self._absent is not None and self._absent.exists():
            self._refuse(_DATABASE, "changed by another process")
        for file in self._files:
            known = file.size  # before the look: what another thread learns meanwhile is no size that it had before
            size = self._size_of_log(file, connection) if file.kind == _LOG else self._size_of(file)
            if size != known:
                self._check_size(file, known, size, connection)

    def check_database(self) -> None:
        """`check` of the database's name alone: a third of its cost, between a commit and its acknowledgement."""
        self._size_of(self._files[0])

    def _size_of(self, file: _File) -> int:
        try:
            found = os.stat(file.name)  # noqa: PTH116  # twice as fast as Path.stat, and this is on every commit's way
        except OSError:
            self._refuse(file.kind, "removed or replaced")
        if found.st_ino != file.inode or found.st_dev != file.device:
            self._refuse(file.kind, "removed or replaced")
        return found.st_size

    def _size_of_log(self, file: _File, connection: sqlite3.Connection | None) -> int:
        now_s, log = time.monotonic(), self._log
        if log is not None and connection is not None and now_s >= self._log_due_s:
            self._log_due_s = now_s + LOG_LOOK_S
            return self._size_of(file)
        if not os.access(file.name, os.F_OK):
            self._refuse(file.kind, "removed or replaced")
        return file.size if log is None else os.lseek(log, 0, os.SEEK_END)

    def _check_size(self, file: _File, known: int, size: int, connection: sqlite3.Connection | None) -> None:
        if size < known:
            if file.kind == _INDEX:
                self._refuse(file.kind, "cut short")
            if connection is None:
                return
            if not self._holds_all(connection, file):
                self._refuse(file.kind, "cut short")
        file.size = size

    def _holds_all(self, connection: sqlite3.Connection, file: _File) -> bool:
        """Whether a file that has become smaller is large enough: VACUUM and a checkpoint may shrink it rightly."""
        try:
            (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
            if file.kind == _DATABASE:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                needed = pages * page_bytes
            else:
                _, frames, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                needed = _LOG_HEADER_BYTES + frames * (page_bytes + _FRAME_HEADER_BYTES) if frames > 0 else 0
        except sqlite3.Error:
            return False
        return bool(self._size_of(file) >= needed)  # asked last: others may have written since it was found smaller

    def _refuse(self, kind: str, what: str) -> NoReturn:
        self._refusal = (
            f"{self._location}: {_NAMES[kind]} was {what} while it was open. "
            "Nothing more is read or written. Put back what was there, then open it again."
        )
        raise StoreUnavailable(self._refusal)

    def close(self, connection: sqlite3.Connection) -> None:
        """Close the connection that writes, or leave it open for ever when the files are not those it opened.

        Closing it would copy its log into the database and remove the log, by names that now mean other files.
        """
        self._log_due_s = 0.0
        try:
            self.check(connection)
        except StoreUnavailable:
            # One reference too many, so that not even the interpreter's end closes it. The kernel does, without a copy.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        else:
            connection.close()
        finally:
            if self._log is not None:
                os.close(self._log)
                self._log = None
