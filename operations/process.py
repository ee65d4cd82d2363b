"""Detached, supervised processes that outlive us and can be taken up again.

Belongs here: starting a supervisor, reading what it left, waiting for it, ending a command and all that it started.
Must not know: arguments of operations, how output reads, updates.

Files in an operation's folder, all written by `supervisor.sh`:
    claim         "pid began uptime boot-id" of the supervisor. Its exclusive creation is the claim: see below
    status        "running", then "exit CODE UPTIME" in the same bytes, so that a full disk cannot hide it
    command       "pid began" of the command, which leads a session and a process group of its own
    relay         "pid began" of the process that writes the output
    output.N      the output: segments of SEGMENT_BYTES, the first HEAD_SEGMENTS and the last TAIL_SEGMENTS of them
    lost          exists when output could not be written
    no-workspace  exists when the folder to run in could not be entered
Written by us: `script`, a command too long to be an argument.

Never twice: a supervisor's first act is to create `claim`, which only one can do, and it runs the command only then.
Whoever wants the command to run may therefore start a supervisor at any time; if the claim was taken it leaves with
status CLAIMED and the caller attaches to what there is. Whoever wants a command that was perhaps never begun *not* to
run takes the claim itself (`burn`). That, or the empty claim of a supervisor that died between two lines, is all that
is ever known of such a command. The claim is not synced to disk: after a power cut the boot mark of the folder
(`operations.boot`) tells that its absence proves nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.resources
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import trio

from operations.boot import boot_id, uptime_s
from operations.process_table import MARK, Family, Process, Scanner, Table, is_alive, look_up, open_pidfd, send

SEGMENT_BYTES: Final = 8 * 1024 * 1024
HEAD_SEGMENTS: Final = 4
TAIL_SEGMENTS: Final = 4
"""64 MiB a command at most: 32 of its head and 24 to 32 of its tail."""

CLAIMED: Final = 75
NOT_BEGUN: Final = 74
"""Exit statuses of a supervisor that ran nothing."""

TERM_GRACE_S: Final = 2.0
KILL_ROUNDS: Final = 20
SETTLE_S: Final = 1.0
STRAY_DRAIN_S: Final = 0.2
DRAIN_S: Final = 5.0
ARGUMENT_BYTES: Final = 100_000
"""Linux takes 128 KiB in one argument; longer commands go through a file."""


class CannotStart(Exception):
    """The command did not begin: the text says why."""


class Claim(msgspec.Struct, frozen=True):
    """Who runs the command, since when (seconds after the machine started) and in which boot."""

    supervisor: Process
    uptime_s: float
    boot: str


class Exit(msgspec.Struct, frozen=True):
    """How the command ended, and when (seconds after the machine started)."""

    code: int
    uptime_s: float


class Traces:
    """What a supervisor left in a folder, read anew at each question. Damaged or half-written is the same as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def mark(self) -> str:
        """What tells the command's processes from all others of this machine."""
        # Of the folder, not of the operation's id alone: two owners that name alike must not end each other's work.
        return hashlib.blake2b(os.fsencode(self.folder.absolute()), digest_size=12).hexdigest()

    def _words(self, name: str) -> list[str]:
        try:
            text = (self.folder / name).read_text()
        except (OSError, UnicodeDecodeError):
            return []
        return text.split() if text.endswith("\n") else []

    @property
    def is_claimed(self) -> bool:
        """Whether some supervisor has come this far, or the claim was burnt."""
        return (self.folder / "claim").exists()

    def claim(self) -> Claim | None:
        """The claim, once its holder has written it."""
        match self._words("claim"):
            case [pid, began, up, boot]:
                with suppress(ValueError):
                    return Claim(Process(int(pid), int(began)), float(up), boot)
        return None

    @property
    def claim_is_written(self) -> bool:
        """Whether more words will not come: a claim has been written, or burnt."""
        return bool(self._words("claim"))

    def exit(self) -> Exit | None:
        """The exit status, once there is one."""
        match self._words("status"):
            case ["exit", code, up]:
                with suppress(ValueError):
                    return Exit(int(code), float(up))
        return None

    def process(self, name: str) -> Process | None:
        """The process that is recorded as `command` or `relay`."""
        match self._words(name):
            case [pid, began]:
                with suppress(ValueError):
                    return Process(int(pid), int(began))
        return None

    def has(self, name: str) -> bool:
        """Whether the empty file that says so exists."""
        return (self.folder / name).exists()


def burn(folder: Path) -> bool:
    """Take the claim so that the command never runs. False when a supervisor has it, or had it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with (folder / "claim").open("x") as file:
            file.write("burnt\n")
    except FileExistsError:
        return False
    return True


@cache
def _script() -> str:
    # Passed as text: a shell reads its file as it goes, and an upgrade would change it under a running command.
    text = importlib.resources.files("operations").joinpath("supervisor.sh").read_text()
    # Every list of processes shows it, so without what only a reader of the source needs.
    return "".join(line for line in text.splitlines(True) if line.strip() and not line.lstrip().startswith("#"))


@cache
def _unbuffer() -> str:
    # Without it `head` holds back up to 4 KiB, which a background process with an open pipe would keep from us.
    return "stdbuf -o0" if shutil.which("stdbuf") else ""


def spawn(
    folder: Path, command: Sequence[str], *, cwd: str, env: Mapping[str, str], segment_bytes: int
) -> tuple[int, int]:
    """Start a supervisor for `command`; (its process id, a descriptor that tells its end). Both are the caller's.

    Raises CannotStart when the system refuses.
    """
    marks = ":".join(filter(None, (env.get(MARK), Traces(folder).mark)))
    layout = map(str, (folder, cwd, boot_id(), marks, segment_bytes, HEAD_SEGMENTS, TAIL_SEGMENTS, _unbuffer()))
    ends: list[int] = []
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for end in os.pipe():
            # Above the numbers that the supervisor expects them at.
            ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10))
            os.close(end)
        pid = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _script(), "turnlog-supervisor", *layout, *command],
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, ends[0], 3),
                (os.POSIX_SPAWN_DUP2, ends[1], 4),
            ],
            setsid=True,
            setsigmask=(),
            # Python ignores these two, and a program that inherits that does not end at a closed pipe.
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
        )
    except (OSError, ValueError) as error:
        raise CannotStart(f"the command could not be started: {error}") from error
    finally:
        for end in ends:
            os.close(end)
    try:
        return pid, os.pidfd_open(pid)
    except OSError as error:
        raise CannotStart(f"the command could not be watched: {error}") from error


class Watched:
    """A supervisor that we wait for: our own child, or one that a predecessor started."""

    def __init__(self, supervisor: Process, pidfd: int, *, is_child: bool) -> None:
        self.process = supervisor
        self._pidfd, self._is_child = pidfd, is_child
        self.code: int | None = None

    async def wait(self) -> None:
        """Wait until it has ended. `code` is its exit status if it was our child."""
        await trio.lowlevel.wait_readable(self._pidfd)
        self.code = _reap(self.process.pid) if self._is_child else None
        self._is_child = False

    def let_go(self) -> None:
        """Stop watching; it goes on. As long as this trio run lasts it is reaped when it ends."""
        pidfd, self._pidfd = self._pidfd, -1
        if self._is_child:
            trio.lowlevel.spawn_system_task(_reap_later, self.process.pid, pidfd)
        elif pidfd >= 0:
            os.close(pidfd)


def _reap(pid: int) -> int | None:
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if reaped else None


async def _reap_later(pid: int, pidfd: int) -> None:
    try:
        await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)
        _reap(pid)


def start(
    folder: Path, command: str, *, cwd: str, env: Mapping[str, str], segment_bytes: int = SEGMENT_BYTES
) -> Watched:
    """Have a shell run `command`, unless somebody has claimed it: then the supervisor ends at once with CLAIMED.

    Raises CannotStart.
    """
    shell = shutil.which("bash") or "/bin/sh"
    words = [shell, "-c", "--", command]  # a command may begin with a dash
    if len(os.fsencode(command)) > ARGUMENT_BYTES:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (folder / "script").write_bytes(os.fsencode(command))
        except OSError as error:
            raise CannotStart(f"the command could not be written down: {error}") from error
        words = [shell, str(folder / "script")]
    pid, pidfd = spawn(folder, words, cwd=cwd, env=env, segment_bytes=segment_bytes)
    row = look_up(pid)
    return Watched(row.process if row else Process(pid, 0), pidfd, is_child=True)


def attach(traces: Traces) -> Watched | None:
    """Watch the supervisor that holds the claim; None when it is gone, with this boot or before."""
    claim = traces.claim()
    if claim is None or claim.boot != boot_id():
        return None
    pidfd = open_pidfd(claim.supervisor)
    return None if pidfd is None else Watched(claim.supervisor, pidfd, is_child=False)


def ran_for_s(traces: Traces) -> float | None:
    """Seconds from the claim to the exit, or until now; suspended time included. None when that is not known."""
    claim, ended = traces.claim(), traces.exit()
    if claim is None:
        return None
    if ended is not None:
        return max(0.0, ended.uptime_s - claim.uptime_s)
    return max(0.0, uptime_s() - claim.uptime_s) if claim.boot == boot_id() else None


def family(traces: Traces) -> Family:
    """What tells the command's processes from others."""
    claim = traces.claim()
    same_boot = claim is not None and claim.boot == boot_id()
    return Family(traces.process("command") if same_boot else None, traces.mark)


async def drain(traces: Traces, scanner: Scanner) -> list[Process]:
    """After the command's end: let its output settle; what it left running.

    Ends with the relay, which has then written everything. While a process that was left behind holds the pipe, the
    relay never ends: then a moment has to do.
    """
    relay = traces.process("relay")
    pidfd = None if relay is None else open_pidfd(relay)
    strays = await scanner.members(family(traces))
    if pidfd is None:
        return strays
    try:
        with trio.move_on_after(STRAY_DRAIN_S if strays else DRAIN_S):
            await trio.lowlevel.wait_readable(pidfd)
    finally:
        os.close(pidfd)
    return strays


async def end(traces: Traces, scanner: Scanner, supervisor: Watched | None) -> list[Process]:
    """End the command and everything that it started; what survived even SIGKILL.

    SIGTERM, up to TERM_GRACE_S, then SIGKILL until a scan finds nothing. Its group is signalled as one, against
    processes that multiply; then each member, for those that left the group.
    """
    if supervisor is not None:
        send(supervisor.process, signal.SIGCONT)  # its command may have stopped it, and it would record no end
        await _begun(traces, supervisor)
    ours = family(traces)
    # A stopped process cannot act on SIGTERM until it goes on.
    gently = (signal.SIGTERM, signal.SIGCONT)
    for number in gently:
        _signal_group(ours.leader, number)
    members = await scanner.members(ours)
    for member in members:
        for number in gently:
            send(member, number)
    with trio.move_on_after(TERM_GRACE_S):
        if supervisor is not None:
            await supervisor.wait()
        pause_s = 0.02
        while members := [member for member in members if is_alive(member)]:
            await trio.sleep(pause_s)
            pause_s = min(0.2, 1.5 * pause_s)  # hundreds may be waited for at once
    for _ in range(KILL_ROUNDS):
        ours = family(traces)
        members = await scanner.members(ours)
        if not members:
            break
        _signal_group(ours.leader, signal.SIGKILL)
        for member in members:
            send(member, signal.SIGKILL)
        await trio.sleep(0.02)
    with trio.move_on_after(TERM_GRACE_S):
        if supervisor is not None:
            await supervisor.wait()
    return members


async def _begun(traces: Traces, supervisor: Watched) -> None:
    """A supervisor that is just starting has its command soon; ended before, it would be found by nobody yet."""
    with trio.move_on_after(SETTLE_S):
        while traces.process("command") is None and is_alive(supervisor.process):  # noqa: ASYNC110  (it writes that)
            await trio.sleep(0.01)


async def end_strays(folders: Sequence[Path], scanner: Scanner) -> None:
    """End what the commands of these folders, which have ended, left running."""
    table = await scanner.table()
    left = await trio.to_thread.run_sync(_with_strays, folders, table)
    async with trio.open_nursery() as nursery:
        for traces in left:
            nursery.start_soon(end, traces, scanner, None)


def _with_strays(folders: Sequence[Path], table: Table) -> list[Traces]:
    # Of thousands of commands only a few have any, and a look at each by itself would be a scan.
    return [traces for traces in map(Traces, folders) if table.members(family(traces))]


def _signal_group(leader: Process | None, number: signal.Signals) -> None:
    # Only while its leader lives is the number of a group surely the command's.
    if leader is not None and is_alive(leader):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid, number)
