"""A session as an asyncio program uses it: the same names and promises as `harness.session`.

Belongs here: crossing into trio with each call, and what becomes of calls and iterators when the session closes.
Must not know: how a session works.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import trio

import harness.session as native
from harness import deltas as native_deltas
from harness import events as ev
from harness import history as native_history
from harness.aio.guest import Crossing, Guest, Hosted, Stopped, enter
from harness.errors import RunInProgress, SessionClosed
from harness.llm.model import Model, ModelSettings
from harness.result import RunResult
from harness.skill_files import SkillsRequest
from harness.state import SessionState
from harness.tools.registry import Tool
from operations import OperationManager
from store import Store

T = TypeVar("T")

BATCH = 256
"""Items that one crossing of an iterator brings along at most, when they are there already."""


class Run:
    """One run of a session: the work from an input until the session is idle again. Its id is that input's."""

    def __init__(self, session: Session, run: native.Run) -> None:
        self.id = run.id
        self._session, self._run = session, run

    @property
    def ended(self) -> bool:
        """Whether the run has finished."""
        return self._run.ended

    async def result(self) -> RunResult:
        """Wait until the run has finished, and return how. Raises what stopped the session, if something did."""
        return await self._session.cross(self._run.result)

    async def steer(self, content: str | ev.Message, *, input_id: str | None = None) -> str:
        """Say something to the model while it works; returns the input's id. Raises RunEnded when the run is over."""
        return await self._session.cross(lambda: self._run.steer(content, input_id=input_id))

    async def interrupt(self, reason: str = "") -> RunResult:
        """Stop the turn in flight and finish the run; operations go on and report in the next run."""
        return await self._session.cross(lambda: self._run.interrupt(reason))

    def __repr__(self) -> str:
        return f"<Run {self.id} of session {self._session.id}>"


class Session:
    """An open session. Made by `open_session`; use it from the asyncio loop that opened it.

    Any call may be cancelled, and waits then for its trio side to stop. A call that is still waiting when the session
    closes raises SessionClosed. warnings: lines about the workspace that a person should see.
    """

    def __init__(self, session: native.Session, guest: Guest) -> None:
        self.id = session.id
        self.warnings = session.warnings
        self._session, self._guest = session, guest
        self._calls: set[Crossing[Any]] = set()
        self._closed = False

    @property
    def state(self) -> SessionState:
        """The state after everything committed so far; an unchanging value."""
        return self._session.state

    @property
    def current_run(self) -> Run | None:
        """The run that is going on, or None."""
        run = self._session.current_run
        return None if run is None else Run(self, run)

    async def run(
        self, content: str | ev.Message, idempotency_key: str | None = None, *, limits: ev.Limits | None = None
    ) -> RunResult:
        """Start a run and wait for its end; see `harness.Session.run`. Cancelled: the run goes on."""
        run = await self.start_run(content, idempotency_key=idempotency_key, limits=limits)
        return await run.result()

    async def start_run(
        self, content: str | ev.Message, idempotency_key: str | None = None, *, limits: ev.Limits | None = None
    ) -> Run:
        """Start a run and return once its input is durable and accepted. Raises RunInProgress, BadInput."""
        try:
            run = await self.cross(
                lambda: self._session.start_run(content, idempotency_key=idempotency_key, limits=limits)
            )
        except RunInProgress as error:
            # The run that it carries has to be one that asyncio code can await.
            error.run = Run(self, error.run)  # type: ignore[assignment]
            raise
        return Run(self, run)

    async def send(self, content: str | ev.Message, *, input_id: str | None = None) -> Run:
        """Steer the run that is going on, or start one. Returns the run that the input went to."""
        return Run(self, await self.cross(lambda: self._session.send(content, input_id=input_id)))

    async def cancel(self, reason: str = "") -> None:
        """Stop the turn, cancel every operation, finish the run as cancelled. Returns when all have ended."""
        await self.cross(lambda: self._session.cancel(reason))

    def events(self, after: int = 0, follow: bool = False) -> Events:
        """Committed events after sequence number `after`; with `follow`, waits for more, from any process."""
        return Events(self, self._session.events(after, follow=follow))

    def deltas(self) -> Deltas:
        """Live pieces of model and operation output, from now on. Bounded: a slow reader is told what it lost."""
        return Deltas(self, self._session.deltas())

    async def fork(self, at: int | str | None = None) -> str:
        """Make a branch and return its id; see `harness.fork`."""
        return await self.cross(lambda: self._session.fork(at))

    # --- for Run and the iterators

    async def cross(self, function: Callable[[], Awaitable[T]], *, ends_itself: bool = False) -> T:
        """`await function()` in trio. Raises what it raises, and SessionClosed when the session is or gets closed.

        ends_itself: the function returns when the session closes, and is not to be stopped before.
        """
        if self._closed:
            raise SessionClosed(self.id)
        crossing = self._guest.start(function)
        if ends_itself:
            return await crossing.wait()
        self._calls.add(crossing)
        try:
            return await crossing.wait()
        except Stopped as error:
            raise SessionClosed(self.id) from error
        finally:
            self._calls.discard(crossing)

    @property
    def closed(self) -> bool:
        """Whether the `async with` block has ended."""
        return self._closed

    def close(self) -> None:
        """Stop whoever still waits; called when the `async with` block ends."""
        self._closed = True
        for crossing in self._calls:
            crossing.cancel()


class _Items(Generic[T]):
    """An async iterator of trio's for asyncio. Holds nothing between two items; may be left at any point."""

    _ends_itself = False

    def __init__(self, session: Session, source: native_deltas.Deltas | native_history.Events) -> None:
        self._session = session
        self._source: AsyncIterator[T] = source  # type: ignore[assignment]  # T is what the subclass says
        self._close = source.aclose
        # What a crossing has brought stays here when the task that waited for it was cancelled: nothing is lost.
        self._ready: deque[T] = deque()
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._ready and not self._ended:
            await self._session.cross(self._fetch, ends_itself=self._ends_itself)
        if self._ready:
            return self._ready.popleft()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration. Not necessary."""
        self._ended = True
        self._ready.clear()
        if not self._session.closed:
            await self._session.cross(self._close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _fetch(self) -> None:
        """Wait for an item, and take those along that need no waiting: a crossing costs more than an item."""
        try:
            self._ready.append(await self._source.__anext__())
            with trio.CancelScope() as at_once:
                at_once.cancel()
                while len(self._ready) < BATCH:
                    self._ready.append(await self._source.__anext__())
        except StopAsyncIteration:
            self._ended = True


class Events(_Items[ev.Logged]):
    """An async iterator over committed events; see `Session.events`. May be left at any point."""


class Deltas(_Items[native_deltas.Piece]):
    """An async iterator of live pieces, from now until the session closes. May be left at any point."""

    _ends_itself = True

    async def __anext__(self) -> native_deltas.Piece:
        if self._session.closed and not self._ready:
            self._fetch_rest()
        return await super().__anext__()

    def _fetch_rest(self) -> None:
        """What was not read when the session closed. Trio may be gone; these no longer wait for anything."""
        while not self._ended:
            try:
                self._source.__anext__().__await__().__next__()
            except StopIteration as item:
                self._ready.append(item.value)
            except StopAsyncIteration:
                self._ended = True


@asynccontextmanager
async def open_session(
    store: str | Path | Store,
    *,
    session_id: str | None = None,
    resume: str = "auto",
    model: str | Model | None = None,
    tools: Sequence[Tool | SkillsRequest] | None = None,
    instructions: str | None = None,
    workspace: str | Path | None = None,
    limits: ev.Limits | None = None,
    policy: ev.Policy | None = None,
    settings: ModelSettings | None = None,
    title: str = "",
    manager: OperationManager | None = None,
) -> AsyncIterator[Session]:
    """Create a session, or resume one, and keep it open for the `async with` block.

    Arguments, errors and promises are those of `harness.open_session`. model: an object of asyncio code goes through
    `harness.aio.model`. tools: async functions that await asyncio's things are made tools by `harness.aio.tool`.
    manager: shares operation limits; by default one for all sessions that this asyncio loop has open.

    Raises LoopInUse in addition, when trio cannot be a guest of this asyncio loop.
    """
    guest = await enter()
    try:
        hosted = Hosted(
            guest,
            lambda: native.open_session(
                store,
                session_id=session_id,
                resume=resume,
                model=model,
                tools=tools,
                instructions=instructions,
                workspace=workspace,
                limits=limits,
                policy=policy,
                settings=settings,
                title=title,
                manager=manager,
            ),
        )
        session = Session(await hosted.enter(), guest)
        try:
            yield session
        finally:
            session.close()
            await hosted.leave()
    finally:
        await guest.leave()
