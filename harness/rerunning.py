"""Running a session's inputs again: what would another model, policy or set of tools have cost?

Belongs here: answering operations from a log, and giving a new session the inputs of an old one.
Must not know: how sessions, models or real operations work; it only puts recorded work in the place of real work.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from harness import events as ev
from harness.errors import BadInput
from harness.folding import apply
from harness.history import read_events
from harness.llm import UnknownModel
from harness.llm.model import Model
from harness.opening import remade
from harness.result import RunResult
from harness.runtime import open_store
from harness.session import Session, open_session
from harness.skill_files import SkillsRequest
from harness.state import Config, SessionState
from harness.tools.function import RecordedFunction
from harness.tools.registry import Tool
from operations import (
    TERMINAL,
    Context,
    Ended,
    Handler,
    Operation,
    OperationManager,
    OperationSpec,
    Status,
    default_handlers,
)
from store import CorruptBlob, MemoryStore, Store


class Rerun(msgspec.Struct, frozen=True):
    """What came of it. results: of each run, in order. unmatched: operations that the old log had no result for."""

    session_id: str
    results: tuple[RunResult, ...]
    unmatched: tuple[str, ...]

    @property
    def turns(self) -> int:
        """Turns of all runs."""
        return sum(result.turns for result in self.results)


async def rerun(
    store: str | Path | Store,
    session_id: str,
    *,
    model: str | Model | None = None,
    tools: Sequence[Tool | SkillsRequest] | None = None,
    policy: ev.Policy | None = None,
    execute: Collection[str] = (),
    into: str | Path | Store | None = None,
) -> Rerun:
    """Give a new session the inputs of an old one, and its tool calls the results that the same work had then.

    model, tools, policy: instead of the old session's, which count for each run as they stood when it began. execute:
    names of operation types ("shell", "function", ...) to run for real where the log has no result; any other such
    operation fails and is named. A recorded result takes as long as it took, so that turns come out as they would have:
    run it under a virtual clock to skip the waiting. into: where the new session goes; by default a store in memory.
    The old session is only read.
    Raises BadInput where the old model was an object and no `model` is given.
    """
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_store(store, create=False))
        log = await read_events(source, session_id)
        target = MemoryStore() if into is None else await stack.enter_async_context(open_store(into))
        memory = await _Memory.of(log, source)
        manager = OperationManager([Recorded(handler, memory, execute) for handler in default_handlers()])
        await _copy_images(log, source, target)
        new_id: str | None = None
        results: list[RunResult] = []
        for config, runs in groupby(_runs(log), key=lambda run: run.config):
            opened = open_session(
                target,
                session_id=new_id,
                model=config.model if model is None else model,
                tools=_tools(config) if tools is None else tools,
                instructions=config.instructions,
                workspace=config.workspace,
                policy=_policy(config, model) if policy is None else policy,
                settings=config.settings,
                title=f"rerun of {session_id}" if new_id is None else "",
                manager=manager,
            )
            async with AsyncExitStack() as one:
                try:
                    session = await one.enter_async_context(opened)
                except UnknownModel as error:
                    if model is not None:
                        raise
                    line = f"the session's model {config.model!r} cannot be made from its name. Pass model=."
                    raise BadInput(line) from error
                new_id = session.id
                results += [await _run_again(session, run.inputs) for run in runs]
        if new_id is None:
            raise BadInput(f"session {session_id!r} has no run that could be run again.")
        return Rerun(new_id, tuple(results), tuple(memory.unmatched))


def _tools(config: Config) -> Sequence[Tool]:
    return [RecordedFunction(record) if record.kind == "function" else remade(record) for record in config.tools]


def _policy(config: Config, model: str | Model | None) -> ev.Policy:
    """The recorded one; its window is that of the recorded model, and a limit that no tool is under held nothing."""
    tools = {record.schema.name for record in config.tools}
    calls = {tool: most for tool, most in config.policy.limits.calls.items() if tool in tools}
    policy = replace(config.policy, limits=replace(config.policy.limits, calls=calls))
    return policy if model is None else replace(policy, window_tokens=None)


async def _copy_images(log: Iterable[ev.Logged], source: Store, target: Store) -> None:
    """What the messages show has to be in the new session's store as well; results bring their own."""
    messages = [logged.event.content for logged in log if isinstance(logged.event, ev.InputAccepted)]
    digests = {image.digest for message in messages if isinstance(message, ev.Message) for image in message.images}
    for digest in digests:
        await target.put_blobs([await source.blob(digest)])


# --- inputs


class _Input(msgspec.Struct):
    """A message of a run, and how many turns of it had started when it came."""

    message: ev.Message
    after_turns: int


class _Run(msgspec.Struct):
    """What the session was when a run began, and what it was told."""

    config: Config
    inputs: list[_Input]


def _runs(log: Iterable[ev.Logged]) -> list[_Run]:
    runs: list[_Run] = []
    state = SessionState()
    for logged in log:
        before, state = state, apply(state, logged)
        if isinstance(logged.event, ev.InputAccepted) and isinstance(logged.event.content, ev.Message):
            if before.run is None:
                runs.append(_Run(state.config, []))
            turns = 0 if state.run is None else state.run.turns
            runs[-1].inputs.append(_Input(logged.event.content, turns))
    return runs


async def _run_again(session: Session, inputs: list[_Input]) -> RunResult:
    first, *steers = inputs
    run = await session.start_run(first.message)
    for steer in steers:
        async for _ in session.events(follow=True):
            state = session.state
            if state.run is None or state.run.turns >= steer.after_turns:
                break
        run = await session.send(steer.message)
    return await run.result()


# --- recorded work


class _Memory:
    """Results of a log by the work that gave them, each to be given once, in order."""

    def __init__(self) -> None:
        self.results: defaultdict[bytes, deque[Ended]] = defaultdict(deque)
        self.unmatched: list[str] = []

    @classmethod
    async def of(cls, log: Iterable[ev.Logged], store: Store) -> _Memory:
        memory = cls()
        specs: dict[str, OperationSpec] = {}
        for logged in log:
            match logged.event:
                case ev.ToolCallPending() as event:
                    specs.update({operation.id: operation.spec for operation in event.operations})
                case ev.OperationUpdated() as event if event.status in TERMINAL and event.status is not Status.UNKNOWN:
                    spec, result = specs[event.operation_id], event.result or {}
                    blobs = await _blobs(spec, result, store)
                    memory.results[_key(spec)].append(Ended(event.status, result, blobs, event.seconds))
                case _:
                    pass
        return memory

    def take(self, spec: OperationSpec) -> Ended | None:
        found = self.results.get(_key(spec))
        return found.popleft() if found else None


async def _blobs(spec: OperationSpec, result: dict[str, Any], store: Store) -> tuple[bytes, ...]:
    """The bytes that a result refers to. Only an image's has to be there: elsewhere `digest` may mean anything."""
    digest = result.get("digest")
    if not isinstance(digest, str):
        return ()
    try:
        return (await store.blob(digest),)
    except CorruptBlob:
        if spec.type == "image":
            raise
        return ()


def _key(spec: OperationSpec) -> bytes:
    args: dict[str, Any] = {name: value for name, value in spec.args.items() if name != "cwd"}
    return msgspec.json.encode([spec.type, spec.version, args], order="sorted")


class Recorded:
    """A handler that answers from a log what it can, and does the rest only where it is asked to."""

    def __init__(self, real: Handler, memory: _Memory, execute: Collection[str]) -> None:
        self.type, self.version, self.limit = real.type, real.version, real.limit
        self._real, self._memory, self._execute = real, memory, execute
        self._running_for_real: set[str] = set()

    async def start(self, operation: Operation, context: Context) -> Ended:
        """The recorded end, after the recorded time."""
        ended = self._memory.take(operation.spec)
        if ended is not None:
            await context.running()
            await trio.sleep(ended.seconds or 0.0)
            return ended
        named = f"{operation.spec.type} {msgspec.json.encode(operation.spec.args).decode()}"
        self._memory.unmatched.append(named)
        if self.type in self._execute:
            self._running_for_real.add(operation.id)
            return await self._real.start(operation, context)
        return Ended(Status.FAILED, {"error": "the recorded session has no result for this, and it was not to be run"})

    async def cancel(self, operation: Operation) -> bool:
        """Left to the manager, unless the work is real."""
        return operation.id in self._running_for_real and await self._real.cancel(operation)

    async def recover(self, operation: Operation, context: Context) -> Ended:
        """Never needed: a rerun is one process."""
        return Ended(Status.UNKNOWN, {"error": "a rerun cannot be taken up again"})
