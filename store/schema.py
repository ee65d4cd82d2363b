"""The database's tables, their versions, and opening a file only when it is ours to open.

Belongs here: DDL, migrations, connection settings, the checks before the first read, the words for SQLite's errors.
Must not know: threads, leases' rules, what is read from or written to the tables.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from store.files import OpenFiles
from store.log_check import is_in_use, lost_commits
from store.records import StoreUnavailable, UnsupportedVersion

APPLICATION_ID: Final = 0x54524E4C  # "TRNL", in the file's header: tells our file from another program's
BUSY_TIMEOUT_S: Final = 20.0
"""Seconds to wait for other processes' commits. One takes milliseconds, so this is only reached by a stuck process."""

# No STRICT tables: SQLite before 3.37 cannot even open a file that has one, and a store may move between machines.
_TABLES: Final = """
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    format_version INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    title TEXT NOT NULL,
    parent_id TEXT REFERENCES sessions (id),
    parent_seq INTEGER,
    length INTEGER NOT NULL,
    last_hash BLOB NOT NULL,
    last_recorded_at TEXT NOT NULL,
    activity INTEGER NOT NULL,
    CHECK ((parent_id IS NULL) = (parent_seq IS NULL))
);
CREATE TABLE events (
    position INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    recorded_at TEXT NOT NULL,
    data TEXT NOT NULL,
    hash BLOB NOT NULL,
    UNIQUE (session_id, seq)
);
CREATE TABLE inputs (
    arrival INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    input_id TEXT NOT NULL,
    received_at TEXT NOT NULL,
    data TEXT NOT NULL,
    hash BLOB NOT NULL,
    UNIQUE (session_id, input_id),
    UNIQUE (session_id, position)
);
CREATE TABLE blobs (
    digest TEXT NOT NULL PRIMARY KEY,
    data BLOB NOT NULL
);
CREATE TABLE leases (
    session_id TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL,
    token TEXT,
    holder TEXT NOT NULL,
    host TEXT NOT NULL,
    machine TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_started TEXT NOT NULL,
    renewed_boottime_s REAL NOT NULL,
    ttl_s REAL NOT NULL,
    expires_unix_s REAL NOT NULL
);
"""

_APPEND_ONLY: Final = {
    "events": "SELECT 1 FROM events WHERE session_id = NEW.session_id AND seq = NEW.seq OR position = NEW.position",
    "inputs": "SELECT 1 FROM inputs WHERE session_id = NEW.session_id"
    " AND (input_id = NEW.input_id OR position = NEW.position) OR arrival = NEW.arrival",
    "blobs": "SELECT 1 FROM blobs WHERE digest = NEW.digest",
}


def _triggers() -> Iterator[str]:
    for table, same in _APPEND_ONLY.items():
        refuse = f"BEGIN SELECT RAISE(ABORT, '{table} are append-only'); END"
        yield f"CREATE TRIGGER {table}_refuse_update BEFORE UPDATE ON {table} {refuse}"
        yield f"CREATE TRIGGER {table}_refuse_delete BEFORE DELETE ON {table} {refuse}"
        # INSERT OR REPLACE deletes the old row without asking the trigger above, unless recursive_triggers is on.
        yield f"CREATE TRIGGER {table}_refuse_replace BEFORE INSERT ON {table} WHEN EXISTS ({same}) {refuse}"


def _create_tables(db: Any) -> None:
    for statement in (*_TABLES.split(";\n"), *_triggers()):
        if statement.strip():
            db.execute(statement)


# In order, never reordered or edited once released. `PRAGMA user_version` counts how many a file has had.
MIGRATIONS: Final = (("0001_create_tables", _create_tables),)
SCHEMA_VERSION: Final = len(MIGRATIONS)


_CANNOT_BE_WRITTEN: Final = "it cannot be written. Check its permissions and its folder's"
_DAMAGED: Final = "the database file is damaged. Restore a backup, or export what can be read"
_LOST: Final = "{}. Restore a backup, or export what can be read"


def unavailable(location: str, error: sqlite3.Error | OSError) -> StoreUnavailable:
    """One line for what SQLite or the system said about the store's file: where, what, and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    advice = {
        "SQLITE_FULL": "the disk is full. Free some space, then try again",
        "SQLITE_IOERR": "the disk failed to read or write. Check it, then try again",
        "SQLITE_BUSY": f"another process kept it locked for {BUSY_TIMEOUT_S:.0f} s. End that process, or try again",
        "SQLITE_READONLY": _CANNOT_BE_WRITTEN,
        "SQLITE_CANTOPEN": "it cannot be opened. Check its permissions and its folder's, or name another file",
        "SQLITE_NOTADB": "it is not a turnlog store. Name another file",
        "SQLITE_CORRUPT": _DAMAGED,
    }
    for start, words in advice.items():
        if name.startswith(start):
            return StoreUnavailable(f"{location}: {words}.")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    hint = "Check the path, its permissions and the disk, or name another file."
    return StoreUnavailable(f"{location}: {reason}. {hint}")


class Opened(NamedTuple):
    """A store's file that was checked and opened.

    connection: the one that writes, or the only one of a reader. open_reader: makes one more that cannot write.
    unwritable: why nothing can be written, None when it can: then all connections only read.
    lost: what is known to be missing although no session shows it, in words.
    """

    connection: sqlite3.Connection
    files: OpenFiles
    open_reader: Callable[[], sqlite3.Connection]
    unwritable: StoreUnavailable | None = None
    lost: str = ""


def open_store(path: Path, *, create: bool = True) -> Opened:
    """Open a store for writing, after checking that it is one, and bring its schema up to date.

    create: make a new store where there is no file, or an empty one (an interrupted creation leaves that).
    A file that cannot be written, or that is damaged, is opened as far as it can be read.
    Raises StoreUnavailable, UnsupportedVersion; the file is untouched then.
    """
    return _open(path, create=create, damaged=True, opened=_opened_for_writing)


def open_reading(path: Path, *, damaged: bool = True) -> Opened:
    """Open a store with one connection that cannot write, and changes nothing.

    damaged: open also a file that is so damaged that SQLite refuses it, as far as it can be read.
    Raises StoreUnavailable, UnsupportedVersion.
    """
    return _open(path, create=False, damaged=damaged, opened=_opened_for_reading)


def _open(path: Path, *, create: bool, damaged: bool, opened: Callable[[Path, OpenFiles], Opened]) -> Opened:
    try:
        inspect(path, create=create)
        if create and not path.exists():
            path.touch(mode=0o600)
        files = OpenFiles(path)
        # With a log beside it somebody who can write has it open, or has left commits there that belong to it.
        if not _is_writable(path) and not _log(path).exists():
            return _opened_as_it_is(path, files, _CANNOT_BE_WRITTEN)
        try:
            lost = _check_log(path)
            if lost and damaged:
                return _opened_as_it_is(path, files, _LOST.format(lost))._replace(lost=lost)
            if lost:
                raise StoreUnavailable(f"{path}: {_LOST.format(lost)}.")
            return opened(path, files)
        except sqlite3.DatabaseError as error:
            if not (damaged and error.sqlite_errorname.startswith("SQLITE_CORRUPT")):
                raise
            try:
                return _opened_as_it_is(path, files, _DAMAGED)
            except sqlite3.Error:
                raise error from None  # the first says what is wrong; the second only that nothing is left
    except (OSError, sqlite3.Error) as error:
        raise unavailable(str(path), error) from error


def _opened_for_writing(path: Path, files: OpenFiles) -> Opened:
    with _closed_on_error(_connect(path, "mode=rw")) as connection:
        check_version(connection, path)
        _set_wal(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        if _user_version(connection) < SCHEMA_VERSION:
            _migrate(path)
        files.opened(writing=True)
    return Opened(connection, files, partial(_open_reader, path))


def _opened_for_reading(path: Path, files: OpenFiles) -> Opened:
    with _closed_on_error(_open_reader(path)) as connection:
        check_version(connection, path)
        files.opened(writing=False)
    return Opened(connection, files, partial(_open_reader, path))


def _opened_as_it_is(path: Path, files: OpenFiles, why: str) -> Opened:
    """Open a file that nobody may write to. Immutable: neither a log nor its index has to be made beside it."""
    parameters = "mode=ro" if _has_log(path) else "mode=ro&immutable=1"

    def open_reader() -> sqlite3.Connection:
        with _closed_on_error(_connect(path, parameters)) as connection:
            if why == _DAMAGED:
                # SQLite refuses a database that was cut short as a whole. With this it reads the pages that are left.
                connection.execute("PRAGMA writable_schema = ON")
            return connection

    with _closed_on_error(open_reader()) as connection:
        check_version(connection, path)
        if _user_version(connection) < SCHEMA_VERSION:
            raise StoreUnavailable(f"{path}: {why}.")
        connection.execute("SELECT id FROM sessions LIMIT 1").fetchall()
        files.stays_unwritten()
    return Opened(connection, files, open_reader, StoreUnavailable(f"{path}: {why}."))


def _connect(path: Path, parameters: str) -> sqlite3.Connection:
    """A connection with our settings: manual transactions, texts as bytes, and patience with other processes."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{parameters}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    # A damaged text must reach the hash check as it is, not fail while SQLite's driver decodes it.
    connection.text_factory = bytes
    # Whatever SQLite was built with: a file that is cut short must be an error, and where it is mapped it is SIGBUS.
    connection.execute("PRAGMA mmap_size = 0")
    return connection


def _open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, but may tidy up: one that is read-only would leave the log and its index."""
    connection = _connect(path, "mode=rw")
    connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield connection
    except BaseException:
        connection.close()
        raise


def inspect(path: Path, *, create: bool) -> None:
    """Look at the file's first bytes, so that a file that is not ours is refused without SQLite touching it."""
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path}: its folder does not exist. Create {path.parent}, or name another file.")
    has_log = _has_log(path)  # asked first: another process may be making the file, and then its log, right now
    if not path.exists():
        if not create:
            raise StoreUnavailable(f"{path}: there is no store here. Check the path.")
        if has_log:
            raise StoreUnavailable(f"{path}: the file is gone, its log {_log(path).name} is not. Put the file back.")
        return
    if not path.is_file():
        raise StoreUnavailable(f"{path}: this is not a file. Name the store's file.")
    size = path.stat().st_size
    if not size and create and not has_log:
        return
    if not size:
        raise StoreUnavailable(f"{path}: the file is empty, its contents are lost. Restore a backup.")
    # In WAL mode the header may be older than the log beside it: a mismatch is final, a zero is asked again later.
    version, application = _header(path)
    if application not in (0, APPLICATION_ID):
        raise StoreUnavailable(f"{path}: it is another program's database. Name another file.")
    if application == APPLICATION_ID and version > SCHEMA_VERSION:
        raise UnsupportedVersion(f"store {path}", version, SCHEMA_VERSION)


def _log(path: Path) -> Path:
    """The write-ahead log, which SQLite keeps beside the database itself where its name is a link."""
    return Path(f"{path.resolve()}-wal")


def _has_log(path: Path) -> bool:
    """Whether commits wait in a log beside the database. SQLite would delete it when the database is empty."""
    log = _log(path)
    return log.exists() and log.stat().st_size > 0


def _check_log(path: Path) -> str:
    """Look at what a log beside the database makes of it, while nothing can be changed.

    Any connection that may write copies the log into the database when it is closed, whatever its contents are.
    Returns what is lost of it, in words, or nothing.
    """
    if not _has_log(path):
        return ""
    # Asked before a connection of ours is one that has it open. Who has it knows its commits, and adds to it meanwhile.
    in_use = is_in_use(Path(f"{path.resolve()}-shm"))
    with closing(_connect(path, "mode=ro")) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != APPLICATION_ID and _header(path)[1] == APPLICATION_ID:
            raise StoreUnavailable(f"{path}: {_log(path).name} beside it is another database's log. Move that away.")
        check_version(connection, path)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if in_use:
            return ""
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        problem = lost_commits(_log(path), page_bytes)
    return f"commits in {_log(path).name} are lost ({problem})" if problem else ""


def _is_writable(path: Path) -> bool:
    """Whether commits can be made: the log has to be made in the same folder."""
    return os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)


def _header(path: Path) -> tuple[int, int]:
    """(user version, application id) as they stand in the file's header.

    By SQLite and not by reading the file: closing a file drops every lock that this process has on it, and another
    process would then take the write-ahead log away from under the store. Immutable: nothing is made beside the file.
    """
    with closing(_connect(path, "mode=ro&immutable=1")) as connection:
        try:
            return _user_version(connection), connection.execute("PRAGMA application_id").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname.startswith("SQLITE_CORRUPT"):  # perhaps only without the log beside it
                return 0, 0
            raise


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse another program's tables and a newer schema. Reads only."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application or tables:
            raise StoreUnavailable(f"{path}: it is another program's database. Name another file.")
    version = _user_version(connection)
    if version > SCHEMA_VERSION:
        raise UnsupportedVersion(f"store {path}", version, SCHEMA_VERSION)


def _user_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _set_wal(connection: sqlite3.Connection, path: Path) -> None:
    """Turn write-ahead logging on, and believe only SQLite's answer: it declines without an error."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            # SQLite does not use its busy handler here, so two processes that make a store at once meet this.
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    if mode != b"wal":
        raise StoreUnavailable(f"{path}: this file system cannot share a write-ahead log. Use a local disk.")


def _migrate(path: Path) -> None:
    """Apply what is missing, whole or not at all. sqlite-utils is slow to import, so only a file that needs it pays."""
    import sqlite_utils
    from sqlite_utils.migrations import Migrations

    migrations = Migrations("turnlog")
    for name, function in MIGRATIONS:
        migrations(name=name)(function)
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection):
            # Asked again inside the transaction: another process may have migrated while this one waited.
            if _user_version(connection) < SCHEMA_VERSION:
                migrations.apply(sqlite_utils.Database(connection, execute_plugins=False))
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Reads inside see one state. Rolled back on leaving: in a damaged file a commit may fail, even of nothing."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write inside. Commit on leaving, roll back on any error. SQLite may have rolled back by itself already."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
