"""The processes of this machine, as far as telling ours from strangers takes.

Belongs here: reading /proc, identity by id and start time, finding what belongs to a command, signalling it.
Must not know: operations, files of output, or when anything is to be ended.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec
import trio

MARK: Final = "TURNLOG_OPERATION"
"""Environment variable of a command and all that it starts: the operation's mark, after those of any around it."""

ENVIRON_BYTES: Final = 4 * 1024 * 1024
"""More than Linux allows for an environment by default; a bound, since a process may rewrite its own."""


class Process(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for a later one with the same id. began: clock ticks after the machine did."""

    pid: int
    began: int


class Row(msgspec.Struct, frozen=True):
    """One line of the table."""

    process: Process
    state: str
    group: int
    session: int


def look_up(pid: int) -> Row | None:
    """The process with this id, None when there is none."""
    line = _read(f"/proc/{pid}/stat", 4096)
    # The name in the second field may hold anything, so count from its last bracket.
    fields = line[line.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Row(Process(pid, int(fields[19])), fields[0].decode(), int(fields[2]), int(fields[3]))


def is_alive(process: Process) -> bool:
    """Whether it runs: not another one with its id, and not one that waits to be reaped."""
    row = look_up(process.pid)
    return row is not None and row.process == process and row.state not in "ZX"


def open_pidfd(process: Process) -> int | None:
    """A descriptor that becomes readable when the process ends; None when it has ended. The caller closes it."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return None
    # Checked after opening: if it is this process now, it is this process that the descriptor is of.
    if is_alive(process):
        return pidfd
    os.close(pidfd)
    return None


def send(process: Process, number: signal.Signals) -> None:
    """Signal it, unless it has ended. A process that is not ours to signal is left alone."""
    pidfd = open_pidfd(process)
    if pidfd is None:
        return
    try:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(pidfd, number)
    finally:
        os.close(pidfd)


class Family(msgspec.Struct, frozen=True):
    """What tells the processes of one command: its first process, if known, and the mark in their environment."""

    leader: Process | None
    mark: str


class Table:
    """The live processes of a moment, by what tells families. Made once for many: each costs the reading of a file."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._by_id: dict[int, Process] = {}
        self._by_number: defaultdict[int, list[Process]] = defaultdict(list)
        self._by_mark: defaultdict[str, list[Process]] = defaultdict(list)
        for row in rows:
            if row.state in "ZX":
                continue
            self._by_id[row.process.pid] = row.process
            for number in {row.group, row.session}:
                self._by_number[number].append(row.process)
            for mark in set(_marks(row.process.pid)):
                self._by_mark[mark].append(row.process)

    def members(self, family: Family) -> list[Process]:
        """Its live processes: the leader, those in its session or group, and those that carry the mark."""
        found = list(self._by_mark.get(family.mark, ()))
        leader = family.leader
        if leader is None:
            return found
        there = self._by_id.get(leader.pid)
        if there == leader:
            found.append(leader)  # by itself: it is recorded a moment before it leads anything
        if there in (None, leader):  # else the id has come again, and a session or group of that number is a stranger's
            found.extend(self._by_number.get(leader.pid, ()))
        return [process for process in dict.fromkeys(found) if process.began >= leader.began]


def _marks(pid: int) -> list[str]:
    start = MARK.encode() + b"="
    for variable in _read(f"/proc/{pid}/environ", ENVIRON_BYTES).split(b"\0"):
        if variable.startswith(start):
            return variable[len(start) :].decode("utf-8", "replace").split(":")
    return []


def _read(path: str, most: int) -> bytes:
    """What a file of /proc says, empty when its process has ended or is not ours to see.

    By hand: a file object costs four times as much, and one scan reads a file for each process of the machine.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    pieces = []
    try:
        while most > 0 and (piece := os.read(descriptor, min(most, 65_536))):
            pieces.append(piece)
            most -= len(piece)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return b"".join(pieces)


def scan() -> Table:
    """Every process. Reads two files for each: call it in a thread."""
    rows = (look_up(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return Table(row for row in rows if row is not None)


class Scanner:
    """Scans for many at once: who asks while one scan runs shares the next, so that 500 ends cost a few scans."""

    def __init__(self) -> None:
        self._lock = trio.Lock()
        self._begun = 0
        self._done = 0
        self._table = Table(())

    async def table(self) -> Table:
        """A table that was read entirely after this call."""
        needed = self._begun + 1
        async with self._lock:
            if self._done < needed:
                self._begun += 1
                number = self._begun
                self._table = await trio.to_thread.run_sync(scan)
                self._done = number
            return self._table

    async def members(self, family: Family) -> list[Process]:
        """The live processes of a command."""
        return (await self.table()).members(family)
