"""The database's tables, their versions, and opening a file only when it is ours to open.

Belongs here: DDL, migrations, connection settings, the checks before the first read, the words for SQLite's errors.
Must not know: threads, leases' rules, what is read from or written to the tables.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from store.files import OpenFiles
from store.records import StoreError, StoreUnavailable, UnsupportedVersion

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


def unavailable(location: str, error: sqlite3.Error | OSError) -> StoreUnavailable:
    """One line for what SQLite or the system said about the store's file: where, what, and what to do."""
    name = getattr(error, "sqlite_errorname", "") or ""
    advice = {
        "SQLITE_FULL": "the disk is full. Free some space, then try again",
        "SQLITE_IOERR": "the disk failed to read or write. Check it, then try again",
        "SQLITE_BUSY": f"another process kept it locked for {BUSY_TIMEOUT_S:.0f} s. End that process, or try again",
        "SQLITE_READONLY": "it cannot be written. Check its permissions and its folder's",
        "SQLITE_CANTOPEN": "it cannot be opened. Check that its folder exists and can be written",
        "SQLITE_NOTADB": "it is not a turnlog store. Name another file",
        "SQLITE_CORRUPT": "the database file is damaged. Restore a backup, or export what can be read",
    }
    for start, words in advice.items():
        if name.startswith(start):
            return StoreUnavailable(f"{location}: {words}.")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return StoreUnavailable(f"{location}: {reason}.")


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection with our settings: manual transactions, texts as bytes, and patience with other processes."""
    connection = _connect(path, "mode=ro" if readonly else "mode=rw")
    # A damaged text must reach the hash check as it is, not fail while SQLite's driver decodes it.
    connection.text_factory = bytes
    # Whatever SQLite was built with: a file that is cut short must be an error, and where it is mapped it is SIGBUS.
    connection.execute("PRAGMA mmap_size = 0")
    return connection


def _connect(path: Path, parameters: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{parameters}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )


def open_writer(path: Path, *, create: bool = True) -> tuple[sqlite3.Connection, OpenFiles]:
    """Open a store for writing, after checking that it is one, and bring its schema up to date.

    create: make a new store where there is no file, or an empty one (an interrupted creation leaves that).
    Raises StoreUnavailable, UnsupportedVersion; the file is untouched then.
    """
    try:
        inspect(path, create=create)
        if create and not path.exists():
            path.touch(mode=0o600)
        files = OpenFiles(path)
        connection = connect(path)
    except (OSError, sqlite3.Error) as error:
        raise unavailable(str(path), error) from error
    try:
        check_version(connection, path)
        _set_wal(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        if _user_version(connection) < SCHEMA_VERSION:
            _migrate(path)
        files.opened()
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise unavailable(str(path), error) from error
    except StoreError:
        connection.close()
        raise
    return connection, files


def inspect(path: Path, *, create: bool) -> None:
    """Look at the file's first bytes, so that a file that is not ours is refused without SQLite touching it."""
    if not path.parent.is_dir():
        raise StoreUnavailable(f"{path}: its folder does not exist. Create {path.parent}, or name another file.")
    if not path.exists():
        if not create:
            raise StoreUnavailable(f"{path}: there is no store here. Check the path.")
        return
    if not path.is_file():
        raise StoreUnavailable(f"{path}: this is not a file. Name the store's file.")
    size = path.stat().st_size
    if not size and create and not _has_log(path):
        return
    if not size:
        raise StoreUnavailable(f"{path}: the file is empty, its contents are lost. Restore a backup.")
    # In WAL mode the header may be older than the log beside it: a mismatch is final, a zero is asked again later.
    version, application = _header(path)
    if application not in (0, APPLICATION_ID):
        raise StoreUnavailable(f"{path}: it is another program's database. Name another file.")
    if application == APPLICATION_ID and version > SCHEMA_VERSION:
        raise UnsupportedVersion(f"store {path}", version, SCHEMA_VERSION)


def _has_log(path: Path) -> bool:
    """Whether commits wait in a log beside the database. SQLite would delete it when the database is empty."""
    log = Path(f"{path.resolve()}-wal")
    return log.exists() and log.stat().st_size > 0


def _header(path: Path) -> tuple[int, int]:
    """(user version, application id) as they stand in the file's header.

    By SQLite and not by reading the file: closing a file drops every lock that this process has on it, and another
    process would then take the write-ahead log away from under the store. Immutable: nothing is made beside the file.
    """
    with closing(_connect(path, "mode=ro&immutable=1")) as connection:
        try:
            return _user_version(connection), connection.execute("PRAGMA application_id").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorname == "SQLITE_CORRUPT":  # perhaps only without the log beside it
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


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write. The schema has been checked by whoever opened the store."""
    return connect(path, readonly=True)


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
def transaction(connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit on leaving, roll back on any error. SQLite may have rolled back by itself already."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
