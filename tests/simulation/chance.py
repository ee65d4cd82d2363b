"""Where every choice of a simulation comes from: one seed.

Belongs here: what has to be seeded outside of the simulation itself, and counting the scheduler's steps.
Must not know: sessions, stores, or what is chosen.

trio starts the runnable tasks of each pass in an order of its own random generator. Sorted first (the switch that trio
has for Hypothesis) and with that generator seeded, the same seed gives the same order, on every machine.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio
from trio._core import _run as scheduler

from harness import ids

TOO_MANY = 200_000
"""Steps of a story that goes round in circles: the longest ones take a tenth of it."""


@contextmanager
def seeded(seed: int) -> Iterator[random.Random]:
    """A generator for the simulation's own choices, while trio's and the ids' are seeded too."""
    before = scheduler._r.getstate(), scheduler._ALLOW_DETERMINISTIC_SCHEDULING, ids.source
    scheduler._r.seed(f"scheduler {seed}")
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    ids.source = random.Random(f"ids {seed}")
    try:
        yield random.Random(f"choices {seed}")
    finally:
        state, scheduler._ALLOW_DETERMINISTIC_SCHEDULING, ids.source = before  # type: ignore[misc]
        scheduler._r.setstate(state)


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks, remembers their order as a checksum, and acts before one that was chosen."""

    def __init__(self) -> None:
        self.count = 0
        self.order = 0
        self._at = -1
        self._act: Callable[[], None] = lambda: None
        self.on_too_many: Callable[[], None] = lambda: None

    def before(self, steps: int, act: Callable[[], None]) -> None:
        """Call `act` once, `steps` steps from now, between two steps of whatever runs then."""
        self._at, self._act = self.count + steps, act

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """trio is about to run `task` up to its next await."""
        self.count += 1
        self.order = zlib.crc32(task.name.encode(), self.order)
        if self.count == self._at:
            self._act()
        if self.count == TOO_MANY:
            self.on_too_many()
