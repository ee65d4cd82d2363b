"""The loops that are ours: the harness itself, from `open_session` on, in virtual time.

Belongs here: a model and tools that sleep on trio's clock as a task says, and reading the figures from the log.
Must not know: when the model is called. That is what is measured, and it is the product's own code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
import trio
import trio.testing

import harness
from bench.outcome import Outcome, Turn
from bench.tasks import Step, Task
from bench.worker import ANSWER, WAITING, WORDS, Worker, arguments_of, mark, result_of
from harness import events as ev
from harness.llm.model import (
    AssistantItem,
    Emit,
    Item,
    ModelRequest,
    ModelResponse,
    OutputItem,
    StopReason,
    Text,
    ToolCall,
    Usage,
)
from store import MemoryStore

INSTRUCTIONS: Final = "You work on a task with tools. " * 60


class ScriptedModel:
    """A `Worker` behind the model protocol. It knows what the request tells it and nothing else."""

    name = "scripted worker"

    def __init__(self, task: Task, *, uses_wake: bool) -> None:
        self.worker = Worker(task)
        self.seen_s: dict[str, float] = {}
        self._uses_wake = uses_wake
        self._items_read = 0

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        """Think for the task's time and make the calls that follow from what the request shows."""
        self._read(request.items)
        await trio.sleep(self.worker.think_s())
        calls = self.worker.next_calls()
        output: list[OutputItem] = [Text(self._words(calls))]
        for step in calls:
            wake = self.worker.wake_of(step) if self._uses_wake else None
            output.append(ToolCall(step.tool, arguments_of(step, wake)))
        return ModelResponse(tuple(output), StopReason.TOOL_CALLS if calls else StopReason.END, Usage())

    def _words(self, calls: list[Step]) -> str:
        return WORDS if calls else ANSWER if self.worker.finished else WAITING

    def _read(self, items: Sequence[Item]) -> None:
        new = "".join(_text(item) for item in items[self._items_read :])
        self._items_read = len(items)
        found = [step.id for step in self.worker.task.steps if mark(step.id) in new]
        self.seen_s.update(dict.fromkeys(found, trio.current_time()))
        self.worker.read(found)


def _text(item: Item) -> str:
    if isinstance(item, AssistantItem):
        return ""
    return "".join(part.text for part in item.parts if isinstance(part, Text))


class _Tools:
    """A function tool for each tool of a task; landed_s says when each step's result was there."""

    def __init__(self, task: Task) -> None:
        self.landed_s: dict[str, float] = {}
        self._steps = {step.id: step for step in task.steps}
        self._names = sorted({step.tool for step in task.steps})

    def made(self) -> list[Any]:
        return [harness.tool(name=name, description=f"{name} something")(self._function()) for name in self._names]

    def _function(self) -> Callable[..., Any]:
        async def call(step: str, detail: str = "") -> str:
            await trio.sleep(self._steps[step].seconds)
            self.landed_s[step] = trio.current_time()
            return result_of(self._steps[step])

        return call


async def work(task: Task, policy: harness.Policy, *, uses_wake: bool) -> tuple[Outcome, list[ev.Logged]]:
    """Work a task in a session of its own, by trio's clock. Returns the log too."""
    store, model, tools = MemoryStore(), ScriptedModel(task, uses_wake=uses_wake), _Tools(task)
    async with harness.open_session(
        store,
        model=model,
        tools=tools.made(),
        instructions=INSTRUCTIONS,
        workspace=tempfile.gettempdir(),
        policy=policy,
    ) as session:
        started_s = trio.current_time()
        result = await session.run("p" * task.prompt_chars)
        wall_s = trio.current_time() - started_s
        log = await harness.read_events(store, session.id)
    if result.outcome is not ev.Outcome.COMPLETED or not model.worker.finished:
        raise RuntimeError(f"the task {task.name!r} was not done: {result.outcome.value} {result.error}")
    delays = [model.seen_s[step] - at_s for step, at_s in tools.landed_s.items()]
    return Outcome(tuple(_turns(log)), tuple(delays), wall_s), log


def _turns(log: Iterable[ev.Logged]) -> list[Turn]:
    """The turns as the log tells them; a run's clock is in each turn_started."""
    turns: list[Turn] = []
    started: ev.TurnStarted | None = None
    for logged in log:
        match logged.event:
            case ev.TurnStarted() as event:
                started = event
            case ev.TurnFinished() as event if started is not None:
                calls = [item for item in event.output if isinstance(item, ToolCall)]
                said = sum(len(call.name) + len(call.arguments) for call in calls)
                said += sum(len(item.text) for item in event.output if isinstance(item, Text))
                turns.append(Turn(started.run_s, started.run_s + event.seconds, started.chars, said, len(calls)))
            case _:
                pass
    return turns


def head_chars(task: Task) -> int:
    """Characters of instructions and schemas that every request carries, the same for all loops."""
    schemas = [tool.record().schema for tool in _Tools(task).made()]
    return len(msgspec.json.encode([INSTRUCTIONS, schemas]))


def in_virtual_time(task: Task, policy: harness.Policy, *, uses_wake: bool) -> tuple[Outcome, list[ev.Logged]]:
    """`work` with a clock that jumps to the next thing that happens."""

    async def main() -> tuple[Outcome, list[ev.Logged]]:
        return await work(task, policy, uses_wake=uses_wake)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
