"""The single-writer lease: who may append to a session, and when the next one may take over.

Belongs here: what identifies a holder, when it counts as gone, and the rows that say so. An epoch that only grows
fences earlier holders off: an append names its epoch, and a taken-over writer's append is refused in its transaction.
Must not know: threads, and what is appended.

A holder is gone when its process has ended (same boot, same process namespace: asked at once), when its machine was
started again, or when it has not renewed for its time to live. That time is elapsed time on the boot's own clock, which
runs on while the machine is suspended and does not move when the wall clock is set. Between machines there is no shared
clock, so there, and only there, the wall clock decides.
"""

from __future__ import annotations

import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import trio

from store.records import FORMAT_VERSION, SessionBusy, StaleWriter, UnknownSession, UnsupportedVersion

T = TypeVar("T")

COLUMNS = (
    "l.epoch, l.token, l.holder, l.host, l.machine, l.boot_id, l.namespace, l.pid, l.pid_started,"
    " l.renewed_boottime_s, l.ttl_s, l.expires_unix_s"
)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Place(msgspec.Struct, frozen=True):
    """Where a process runs, as far as another process can compare it with its own place."""

    host: str
    machine: str
    boot_id: str
    namespace: str


class Holding(msgspec.Struct, frozen=True):
    """A row of leases. `token` is None once it was released; the epoch stays and never goes back."""

    epoch: int
    token: str | None
    holder: str
    place: Place
    pid: int
    pid_started: str
    renewed_boottime_s: float
    ttl_s: float
    expires_unix_s: float

    def describe(self) -> str:
        """The holder for people: what it said it is, its process and its host."""
        process = f"process {self.pid} on {self.place.host}"
        return f"{self.holder} ({process})" if self.holder else process


def boottime_s() -> float:
    """Seconds since the machine was started, the same in every process of it, suspension included."""
    return time.clock_gettime(_CLOCK)


def here() -> Place:
    """This process's place. What the system does not tell is empty, which never equals another place's."""
    return Place(
        host=socket.gethostname(),
        machine=_text("/etc/machine-id"),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        namespace=_linked("/proc/self/ns/pid") + _linked("/proc/self/ns/time"),
    )


def process_started(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None when there is none here, or a zombie."""
    try:
        # The command name stands in brackets and may hold anything, so fields are counted from its end: state first.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def left_s(row: Holding, place: Place, *, boottime: float, unix: float, started: Callable[[int], str | None]) -> float:
    """Seconds that a holder still has, seen from `place`; 0 when its session may be taken over now."""
    if row.token is None:
        return 0.0
    theirs = row.place
    if theirs.boot_id and theirs.boot_id == place.boot_id:
        # A process number means nothing in another container, though it shares the boot and its clock.
        if theirs.namespace == place.namespace and started(row.pid) != row.pid_started:
            return 0.0
        return max(0.0, row.renewed_boottime_s + row.ttl_s - boottime)
    if theirs.boot_id and (theirs.host, theirs.machine) == (place.host, place.machine) and place.machine:
        return 0.0  # the same machine, started again since
    return max(0.0, row.expires_unix_s - unix)


def holding(row: tuple[Any, ...]) -> Holding | None:
    """The columns `COLUMNS` as a value, None without a row. Raises TypeError or AttributeError for a damaged one."""
    if row[0] is None:
        return None
    token = None if row[1] is None else row[1].decode()
    holder, host, machine, boot_id, namespace = (text.decode() for text in row[2:7])
    return Holding(
        row[0], token, holder, Place(host, machine, boot_id, namespace), row[7], row[8].decode(), *map(float, row[9:12])
    )


def remaining_s(row: Holding) -> float:
    """`left_s` from here and now."""
    return left_s(row, here(), boottime=boottime_s(), unix=time.time(), started=process_started)


def live_holder(row: tuple[Any, ...]) -> str | None:
    """The description of whoever holds the lease in these columns now, None when nobody does."""
    found = holding(row)
    return found.describe() if found is not None and found.token is not None and remaining_s(found) > 0 else None


def acquire(connection: sqlite3.Connection, session_id: str, holder: str, ttl_s: float) -> Holding:
    """Take the lease inside the caller's transaction. Raises SessionBusy, UnknownSession, UnsupportedVersion."""
    row = connection.execute(
        f"SELECT s.format_version, {COLUMNS} FROM sessions s LEFT JOIN leases l ON l.session_id = s.id WHERE s.id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        raise UnknownSession(session_id)
    if row[0] > FORMAT_VERSION:
        raise UnsupportedVersion(f"session {session_id!r}", row[0], FORMAT_VERSION)
    before = holding(row[1:])
    if before is not None and (busy_s := remaining_s(before)) > 0:
        raise SessionBusy(session_id, before.describe(), busy_s)
    now, pid = boottime_s(), os.getpid()
    mine = Holding(
        epoch=1 if before is None else before.epoch + 1,
        token=secrets.token_hex(8),
        holder=holder,
        place=here(),
        pid=pid,
        pid_started=process_started(pid) or "",
        renewed_boottime_s=now,
        ttl_s=ttl_s,
        expires_unix_s=time.time() + ttl_s,
    )
    place = (mine.place.host, mine.place.machine, mine.place.boot_id, mine.place.namespace)
    connection.execute(
        "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session_id, mine.epoch, mine.token, holder, *place, pid, mine.pid_started, now, ttl_s, mine.expires_unix_s),
    )
    return mine


def renew(connection: sqlite3.Connection, session_id: str, mine: Holding, now_boottime_s: float) -> None:
    """Extend the lease to `now_boottime_s` plus its time to live. Raises StaleWriter when it is no longer ours."""
    changed = connection.execute(
        "UPDATE leases SET renewed_boottime_s = ?, expires_unix_s = ? WHERE session_id = ? AND epoch = ? AND token = ?",
        (now_boottime_s, time.time() + mine.ttl_s, session_id, mine.epoch, mine.token),
    ).rowcount
    if not changed:
        raise stale(connection, session_id, mine.epoch)


def release(connection: sqlite3.Connection, session_id: str, mine: Holding) -> None:
    """Give the lease up if it is still ours."""
    connection.execute(
        "UPDATE leases SET token = NULL WHERE session_id = ? AND epoch = ? AND token = ?",
        (session_id, mine.epoch, mine.token),
    )


def stale(connection: sqlite3.Connection, session_id: str, epoch: int) -> StaleWriter:
    """The error of a writer whose lease is gone, with the epoch that stands now."""
    row = connection.execute("SELECT epoch FROM leases WHERE session_id = ?", (session_id,)).fetchone()
    return StaleWriter(session_id, epoch, 0 if row is None else row[0])


class Runner(Protocol):
    """Whatever runs a piece of work inside a write transaction."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]: ...


class SqliteLease:
    """A held lease of a SqliteStore. Made by `SqliteStore.acquire`, which is told through `on_lost` of its end."""

    def __init__(self, run: Runner, session_id: str, mine: Holding, on_lost: Callable[[SqliteLease], object]) -> None:
        self._run = run
        self._on_lost = on_lost
        self._session_id = session_id
        self.holding = mine
        self._renewed_boottime_s = mine.renewed_boottime_s
        self._lost = False

    @property
    def session_id(self) -> str:
        """The session that this lease is for."""
        return self._session_id

    @property
    def epoch(self) -> int:
        """How often the session's lease has been taken, this time included."""
        return self.holding.epoch

    @property
    def token(self) -> str:
        """Stands in the row while this one holds it, and in no other holder's."""
        return self.holding.token or ""

    @property
    def valid_for_s(self) -> float:
        """Seconds (elapsed time, suspension included) until another process may take over; 0 when lost."""
        if self._lost:
            return 0.0
        return max(0.0, self._renewed_boottime_s + self.holding.ttl_s - boottime_s())

    def lose(self) -> None:
        """Remember that it is held no longer, so that `valid_for_s` is 0 from now on."""
        self._lost = True
        self._on_lost(self)

    async def renew(self) -> None:
        """Extend the lease. Raises StaleWriter when another holder has taken over, StoreUnavailable."""
        # Stamped before it waits for the disk: a late commit must not lengthen what others will grant us.
        now = boottime_s()
        try:
            await self._run(lambda connection: renew(connection, self._session_id, self.holding, now))
        except StaleWriter:
            self.lose()
            raise
        self._renewed_boottime_s = now

    async def release(self) -> None:
        """Give the lease up, also when cancelled: a cancelled holder's session must be free at once."""
        if self._lost:
            return
        self.lose()
        with trio.CancelScope(shield=True):
            await self._run(lambda connection: release(connection, self._session_id, self.holding))


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeError):
        return ""


def _linked(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
