"""The outsides of a simulated session, which outlive any process: the disk's moods, commands, and what really happened.

Belongs here: the chances of everything that is not ours, and the account of effects that promises are checked against.
Must not know: the order of events in a test (story.py), how a process is opened and killed (process.py).
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import trio

from operations import Status
from store import MemoryStore, NewRecord, StoreUnavailable
from tests.simulation.chance import Steps

FAILING = ("append", "submit", "put_blobs", "renew", "acquire", "create", "fork", "release")
REASONS = ("database or disk is full", "disk I/O error", "database is locked")


class Broken(AssertionError):
    """A promise that did not hold."""


class Command:
    """A detached command: it goes on whatever happens to us, except that the machine stops. ends_at: trio's clock."""

    def __init__(self, ends_at: float, status: Status, exit_status: int, obeys: str) -> None:
        self.ends_at, self.status, self.exit_status, self.obeys = ends_at, status, exit_status, obeys
        self.lost = False
        self.changed = trio.Event()

    def end_at(self, ends_at: float, status: Status) -> None:
        """It is going to end otherwise than it would have."""
        self.ends_at, self.status = ends_at, status
        self._tell()

    def lose(self) -> None:
        """The machine was restarted: nobody will ever know."""
        self.lost = True
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = trio.Event()

    async def wait(self) -> None:
        """Return once it has ended or is lost."""
        while not self.lost and (left_s := self.ends_at - trio.current_time()) > 0:
            with trio.move_on_after(left_s):
                await self.changed.wait()


class World:
    """calm: no more disasters, so that everything can come to rest. point: called where a process may be killed."""

    def __init__(self, chance: random.Random, steps: Steps, folder: Path) -> None:
        self.chance, self.steps, self.folder = chance, steps, folder
        self.location = str(folder / "store")
        self.store = MemoryStore(fail=self._fail)
        self.counts: Counter[str] = Counter()
        self.calm = False
        self.broken: list[str] = []  # what was found inside of code whose errors are somebody's to handle
        self.crash_point: Callable[[], None] = lambda: None
        self.commands: dict[str, Command] = {}
        self.starts: Counter[str] = Counter()  # of commands, by operation id
        self.effects: Counter[str] = Counter()  # of functions, by the key in their arguments
        self.heard: set[str] = set()
        self.requests = 0
        self.leases: dict[str, tuple[int, float]] = {}  # epoch of the latest one, and when it was taken
        self._announced: set[str] = set()
        self._turns_announced = 0
        self._failing: frozenset[str] = frozenset()
        self._failing_until = 0.0
        self._slow = chance.choice([0.0, 0.0, 0.1, 0.4])
        self._ambiguous = chance.choice([0.0, 0.0, 0.01])

    # --- the disk

    def delay_s(self, name: str) -> float:
        if self.calm or self.chance.random() >= self._slow:
            return 0.0
        return self.chance.choice([0.001, 0.01, 0.3, 2.0])

    def fails_after(self, name: str) -> bool:
        if self.calm or self._ambiguous == 0.0 or self.chance.random() >= self._ambiguous:
            return False
        self.counts["failures told after a commit"] += 1
        return True

    def point(self) -> None:
        self.crash_point()

    def committed(self, records: Sequence[NewRecord]) -> None:
        for record in records:
            if record.kind == "tool_call_pending":
                self._announced.update(op["id"] for op in msgspec.json.decode(record.data)["operations"])
            elif record.kind == "turn_started":
                self._turns_announced += 1
        self.counts["commits"] += 1

    def acquired(self, session_id: str, epoch: int) -> None:
        self.leases[session_id] = (epoch, trio.current_time())

    def fail_for(self, seconds: float) -> None:
        """From now on some kinds of change are refused."""
        self._failing = frozenset(self.chance.sample(FAILING, self.chance.randint(1, len(FAILING))))
        self._failing_until = trio.current_time() + seconds

    def _fail(self, name: str) -> None:
        if self.calm or name not in self._failing or trio.current_time() >= self._failing_until:
            return
        self.counts["store failures"] += 1
        raise StoreUnavailable(f"simulated: {self.chance.choice(REASONS)} ({name})")

    # --- what really happens

    def requested(self, texts: Sequence[str]) -> None:
        """A model is asked, and can read these texts."""
        self.requests += 1
        self.heard.update(texts)
        if self.requests > self._turns_announced:
            self.broken.append(f"model request {self.requests} was made, but {self._turns_announced} are announced")

    def begin(self, operation_id: str) -> Command:
        """The command starts; a second start of the same one finds the first one's claim."""
        if operation_id not in self._announced:
            self.broken.append(f"operation {operation_id} starts, but no log announces it")
        if operation_id in self.commands:
            return self.commands[operation_id]
        self.starts[operation_id] += 1
        chance = self.chance
        takes_s = 0.1 if self.calm else chance.choice([0.0, 0.01, 0.5, 1.0, 4.0, 30.0, 700.0])
        status = chance.choice([Status.COMPLETED] * 6 + [Status.FAILED])
        command = Command(
            trio.current_time() + takes_s,
            status,
            chance.choice([0, 0, 1]),
            chance.choice(["at once", "at once", "later", "never", "by task", "with an error"]),
        )
        self.commands[operation_id] = command
        return command

    def effect(self, key: str) -> None:
        """A function does something that cannot be undone."""
        self.effects[key] += 1

    def restart_machine(self) -> None:
        """Commands are gone with what they had written about themselves."""
        for command in self.commands.values():
            if command.ends_at > trio.current_time():
                command.lose()
        for mark in Path(self.location + ".operations").glob("*/boot"):
            mark.unlink()

    def close(self) -> None:
        """Nothing of it stays on the real disk."""
        shutil.rmtree(self.folder, ignore_errors=True)
