"""The loops that are not ours, in virtual time: serial, barrier, polling.

Belongs here: when such a loop calls the model and what its transcript then holds.
Must not know: the harness, prices, statistics. HEAD_CHARS comes in, so that all loops carry the same instructions.
"""

from __future__ import annotations

import heapq
from typing import Final

from bench.outcome import Outcome, Turn
from bench.tasks import Step, Task
from bench.worker import ANSWER, WAITING, WORDS, Worker, arguments_of

HANDLE: Final = "started; read its output with read_output"
NO_NEWS: Final = "still running"


class _Loop:
    """The clock and the transcript of a loop."""

    def __init__(self, task: Task, head_chars: int) -> None:
        self.worker = Worker(task)
        self.now_s = 0.0
        self.chars = head_chars + task.prompt_chars
        self.turns: list[Turn] = []
        self.delays_s: list[float] = []

    def turn(self, calls: list[Step], said: str, *, looks: int = 0) -> None:
        """One request and its response; the clock stands at its end afterwards."""
        started_s, chars = self.now_s, self.chars
        said_chars = len(said) + sum(len(step.tool) + len(arguments_of(step)) for step in calls)
        said_chars += looks * len('read_output{"handle": "s00"}')
        self.now_s += self.worker.think_s()
        self.chars += said_chars
        self.turns.append(Turn(started_s, self.now_s, chars, said_chars, len(calls)))

    def reads(self, landed: list[tuple[float, Step]]) -> None:
        """These results are in the transcript from now on, so the next request shows them."""
        for at_s, step in landed:
            self.chars += step.result_chars
            self.delays_s.append(self.now_s - at_s)
        self.worker.read(step.id for _, step in landed)

    def outcome(self) -> Outcome:
        self.turn([], ANSWER)
        return Outcome(tuple(self.turns), tuple(self.delays_s), self.now_s)


def blocking(task: Task, head_chars: int, *, calls_a_turn: int | None) -> Outcome:
    """Serial with one call a turn, barrier with None: the next request waits for the last of the turn's calls."""
    loop = _Loop(task, head_chars)
    while not loop.worker.finished:
        calls = loop.worker.next_calls(calls_a_turn)
        loop.turn(calls, WORDS)
        landed = [(loop.now_s + step.seconds, step) for step in calls]
        loop.now_s = max(at_s for at_s, _ in landed)
        loop.reads(landed)
    return loop.outcome()


def polling(task: Task, head_chars: int, *, waits_s: float) -> Outcome:
    """Calls return a handle; the model looks at what runs, all of it in one turn, until it has what it needs.

    waits_s: how long a look waits for news before it answers.
    """
    loop = _Loop(task, head_chars)
    running: list[tuple[float, int, Step]] = []
    while not loop.worker.finished:
        calls = loop.worker.next_calls()
        looks = len(running)
        loop.turn(calls, WORDS if calls else WAITING, looks=looks)
        for number, step in enumerate(calls):
            heapq.heappush(running, (loop.now_s + step.seconds, len(loop.turns) * 100 + number, step))
        loop.chars += len(calls) * len(HANDLE)
        if looks:  # the turn that only started calls cannot have looked at them
            loop.now_s = max(loop.now_s, min(loop.now_s + waits_s, running[0][0]))
            landed = _landed(running, loop.now_s)
            loop.chars += max(0, looks - len(landed)) * len(NO_NEWS)
            loop.reads(landed)
    return loop.outcome()


def _landed(running: list[tuple[float, int, Step]], now_s: float) -> list[tuple[float, Step]]:
    landed = []
    while running and running[0][0] <= now_s:
        at_s, _, step = heapq.heappop(running)
        landed.append((at_s, step))
    return landed
