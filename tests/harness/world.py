"""A session whose every outside is in a test's hand: a model and an operation handler that wait to be told.

Virtual time, an in-memory store, no process and no thread. What a test leaves untold stays as it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import trio
import trio.testing

import harness
from harness import events as ev
from harness.llm.model import (
    Emit,
    ModelRequest,
    ModelResponse,
    OutputItem,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)
from operations import Context, Ended, Operation, OperationManager, Status
from store import MemoryStore

SOME_TOKENS = Usage(input=10, output=1)


class TestModel:
    """Each request waits until the test answers it."""

    __test__ = False
    name = "test"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.emit: Emit | None = None
        self._answer: trio.Event | None = None
        self._response: ModelResponse | Exception | None = None

    @property
    def asked(self) -> bool:
        """Whether a request waits for its answer."""
        return self._answer is not None and not self._answer.is_set()

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        self.requests.append(request)
        self.emit, self._answer, self._response = emit, trio.Event(), None
        try:
            await self._answer.wait()
        finally:
            self.emit = self._answer = None
        if isinstance(self._response, Exception):
            raise self._response
        assert self._response is not None
        return self._response

    def says(self, text: str) -> None:
        """A piece of the answer streams in."""
        assert self.emit is not None
        self.emit(TextDelta(text))

    def answer(
        self,
        text: str = "",
        calls: Sequence[ToolCall] = (),
        *,
        stop: StopReason | None = None,
        usage: Usage = SOME_TOKENS,
    ) -> None:
        """The request that waits is answered."""
        output: tuple[OutputItem, ...] = (*([Text(text)] if text else []), *calls)
        self._give(ModelResponse(output, stop or (StopReason.TOOL_CALLS if calls else StopReason.END), usage))

    def fail(self, error: Exception) -> None:
        """The request that waits fails."""
        self._give(error)

    def _give(self, response: ModelResponse | Exception) -> None:
        assert self._answer is not None and not self._answer.is_set(), "no request waits"
        self._response = response
        self._answer.set()


class TestHandler:
    """Operations of type `shell` that run until the test ends them."""

    __test__ = False
    type, version, limit = "shell", 1, 1000

    def __init__(self) -> None:
        self.started: list[str] = []
        self.recovered: list[str] = []
        self.running: dict[str, trio.Event] = {}
        self.outcomes: dict[str, Ended] = {}
        self.obeys_cancel = True

    async def start(self, operation: Operation, context: Context) -> Ended:
        self.started.append(operation.id)
        await context.running({"place": operation.id})
        return await self._wait(operation)

    async def recover(self, operation: Operation, context: Context) -> Ended:
        self.recovered.append(operation.id)
        return await self._wait(operation)

    async def cancel(self, operation: Operation) -> bool:
        if not self.obeys_cancel:
            return True
        self.end(operation.id, Status.CANCELLED)
        return True

    async def _wait(self, operation: Operation) -> Ended:
        # What ended while nobody watched has an outcome already, as a detached command has.
        if operation.id not in self.outcomes:
            event = self.running.setdefault(operation.id, trio.Event())
            await event.wait()
        self.running.pop(operation.id, None)
        return self.outcomes[operation.id]

    def end(self, operation_id: str, status: Status = Status.COMPLETED, exit_status: int = 0) -> None:
        """The operation ends."""
        result: dict[str, Any] = {"output": f"output of {operation_id}", "exit_status": exit_status}
        self.outcomes[operation_id] = Ended(status, result, seconds=1.0)
        event = self.running.get(operation_id)
        if event is not None:
            event.set()


def call(command: str = "true", *, wake: str | None = None, name: str = "bash", raw: str | None = None) -> ToolCall:
    """A tool call as a model makes it."""
    arguments: dict[str, Any] = {"command": command, **({"wake": wake} if wake else {})}
    return ToolCall(name, msgspec.json.encode(arguments).decode() if raw is None else raw)


class World:
    """The store and the outsides, which outlive any one opening of a session."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.model = TestModel()
        self.handler = TestHandler()
        self.manager = OperationManager([self.handler])

    @asynccontextmanager
    async def open(self, session_id: str | None = None, **options: Any) -> AsyncIterator[harness.Session]:
        """Open a session of this world."""
        options.setdefault("model", self.model)
        if session_id is None:
            options.setdefault("tools", [harness.bash()])
            # A fixed wait: nothing here takes any time, so that an adaptive one would always be none.
            options.setdefault("policy", harness.Policy(coalesce_s=1.0))
        async with harness.open_session(self.store, session_id=session_id, manager=self.manager, **options) as session:
            await trio.testing.wait_all_tasks_blocked()
            yield session

    async def log(self, session_id: str) -> list[ev.Logged]:
        """The committed log."""
        return await harness.read_events(self.store, session_id)

    async def checked(self, session_id: str) -> list[ev.Logged]:
        """The committed log, which keeps every trace rule and would be sent again as it was."""
        log = await self.log(session_id)
        assert harness.check(log) == []
        assert harness.Replay(session_id, log).check() == []
        return log


async def settle() -> None:
    """Everything that can happen without the test has happened."""
    await trio.testing.wait_all_tasks_blocked()


class Reopened:
    """An open session that a test can close like a crash (everything in flight is dropped) and open again."""

    def __init__(self, world: World, session_id: str | None = None, **options: Any) -> None:
        self.world, self.id, self._options = world, session_id, options
        self._stack = AsyncExitStack()
        self.session: harness.Session

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        options = self._options if self.id is None else {}
        self.session = await self._stack.enter_async_context(self.world.open(self.id, **options))
        self.id = self.session.id

    async def close(self) -> None:
        await self._stack.aclose()
