"""The scripted model of the turn benchmark: one policy that works a task in any loop.

Belongs here: which calls follow from what has been read, what `wake` a model that knows its task would give them, and
the size of what it says.
Must not know: loops, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from bench.tasks import Step, Task

WORDS: Final = (
    "I go on with what these results allow, and say briefly what I expect of each call before I make it. " * 2
)
WAITING: Final = "Nothing to do until more results are there."
ANSWER: Final = "All of it is done. " * 20
QUICK_TOOLS: Final = frozenset({"read", "search", "edit", "check"})
"""What a model knows without a clock: these take no longer than a thought or two, tests and builds may."""


class Worker:
    """What one model has read and asked for. Loops call `read` and then `next_calls`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.known: set[str] = set()
        self.asked: set[str] = set()
        self.turns = 0
        self._leads_on = {step.id: any(step.id in other.needs for other in task.steps) for step in task.steps}

    @property
    def finished(self) -> bool:
        return len(self.known) == len(self.task.steps)

    def read(self, results: Iterable[str]) -> None:
        """These results are in the request."""
        self.known.update(results)

    def think_s(self) -> float:
        """Seconds of this turn; every loop has the same ones in the same order."""
        seconds = self.task.thinking_s[self.turns % len(self.task.thinking_s)]
        self.turns += 1
        return seconds

    def ready(self) -> list[Step]:
        """Calls that can be written now and were not yet."""
        return [step for step in self.task.steps if step.id not in self.asked and self.known.issuperset(step.needs)]

    def next_calls(self, most: int | None = None) -> list[Step]:
        """The calls of this turn: all that are possible, or the first `most`."""
        calls = self.ready()[:most]
        self.asked.update(step.id for step in calls)
        return calls

    def wake_of(self, step: Step) -> str:
        """What a model that knows its task says about a call. It does not know how long this one will take.

        quiet: nothing follows from its result. batch: it is of a quick kind, and what follows can wait for the other
        quick ones of the response. each: nothing quick should wait for it.
        """
        if not self._leads_on[step.id]:
            return "quiet"
        return "batch" if step.tool in QUICK_TOOLS else "each"


def arguments_of(step: Step, wake: str | None = None) -> str:
    """The text of a call's arguments, as long as the task says."""
    arguments = {"step": step.id, "detail": "x" * step.argument_chars, **({"wake": wake} if wake else {})}
    return msgspec.json.encode(arguments).decode()


def mark(step_id: str) -> str:
    """How a result says which step it is of."""
    return f"<{step_id}>"


def result_of(step: Step) -> str:
    """A result's text, as long as the task says."""
    return mark(step.id) + "r" * max(0, step.result_chars - len(mark(step.id)))
