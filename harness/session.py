"""A session as a program uses it: open or resume, run, steer, interrupt, cancel, fork, watch.

Belongs here: the public objects, and waiting for what the coordinator records.
Must not know: when the model is called, what it is told, how work is executed.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio

from harness import events as ev
from harness import history
from harness import opening as op
from harness.body import Body
from harness.coordinator import Coordinator
from harness.decide import accepts_messages
from harness.deltas import DeltaHub, Deltas, OperationOutput
from harness.errors import RunEnded, RunInProgress, SessionClosed
from harness.holding import wait_until_held
from harness.inbox import as_message, submit
from harness.journal import Journal
from harness.llm.model import Model, ModelSettings
from harness.log import decode_all
from harness.result import RunResult, run_result
from harness.runtime import open_store, shared_manager
from harness.skill_files import SkillsRequest
from harness.state import RunSpan, SessionState
from harness.tools.registry import Tool
from harness.validation import check_limited_tools
from operations import OperationManager, Progress
from operations.group import folder_name
from store import Lease, Store


class Run:
    """One run of a session: the work from an input until the session is idle again. Its id is that input's."""

    def __init__(self, session: Session, run_id: str) -> None:
        self._session = session
        self.id = run_id

    @property
    def ended(self) -> bool:
        """Whether the run has finished."""
        return self._session._span_of(self.id) is not None

    async def result(self) -> RunResult:
        """Wait until the run has finished, and return how. Raises what stopped the session, if something did."""
        return await self._session._wait_for_run(self.id)

    async def steer(self, content: str | ev.Message, *, input_id: str | None = None) -> str:
        """Say something to the model while it works: a turn in flight is cut off so that it reads this at once.

        Returns the input's id once the input is durable and taken up. Raises RunEnded when the run is over. A message
        that comes while the run is ending (interrupted, cancelled, or giving its final answer) starts the next run.
        """
        if self.ended:
            raise RunEnded(self.id)
        return await self._session._deliver(as_message(content), input_id)

    async def interrupt(self, reason: str = "") -> RunResult:
        """Stop the turn in flight and finish the run; operations go on and report in the next run."""
        run_id = await self._session._wait_for_start(self.id)
        if not self.ended:
            await self._session._deliver(ev.Interrupt(reason, run_id), None)
        return await self.result()

    def __repr__(self) -> str:
        return f"<Run {self.id} of session {self._session.id}>"


class Session:
    """An open session. Made by `open_session`; use it from the trio run that opened it.

    warnings: lines about the workspace that a person should see (skills that were left out).
    """

    def __init__(
        self,
        session_id: str,
        store: Store,
        coordinator: Coordinator,
        hub: DeltaHub,
        prepared: op.Prepared,
        warnings: tuple[str, ...],
    ) -> None:
        self.id = session_id
        self.store = store
        self.warnings = (*warnings, *prepared.warnings)
        self._tools = prepared.registry.names
        self._coordinator, self._hub = coordinator, hub
        self._starting = trio.Lock()
        self._closed = False

    @property
    def state(self) -> SessionState:
        """The state after everything committed so far; an unchanging value."""
        return self._coordinator.state

    @property
    def current_run(self) -> Run | None:
        """The run that is going on, or None."""
        run = self.state.run
        return None if run is None else Run(self, run.run_id)

    async def run(
        self, content: str | ev.Message, idempotency_key: str | None = None, *, limits: ev.Limits | None = None
    ) -> RunResult:
        """Start a run and wait for its end.

        idempotency_key: the input's id, which holds within this session. The same key again, also from another process
        that has opened it, returns the first result and runs nothing; with other content it is CallerError.
        limits: narrower ones for this run.
        Raises RunInProgress, BadInput, whatever stops the session.
        """
        run = await self.start_run(content, idempotency_key=idempotency_key, limits=limits)
        return await run.result()

    async def start_run(
        self, content: str | ev.Message, idempotency_key: str | None = None, *, limits: ev.Limits | None = None
    ) -> Run:
        """Start a run and return once its input is durable and accepted; arguments and errors as for `run`."""
        message = as_message(content, limits)
        self._check_open()
        async with self._starting:
            if idempotency_key is not None and (known := self._run_of_input(idempotency_key)) is not None:
                await submit(self.store, self.id, message, idempotency_key)  # refuses other content under the same key
                return known
            if (current := self.current_run) is not None:
                raise RunInProgress(current)
            input_id = await self._deliver(message, idempotency_key)
        return self._run_of_input(input_id) or Run(self, input_id)

    async def send(self, content: str | ev.Message, *, input_id: str | None = None) -> Run:
        """Steer the run that is going on, or start one. Returns the run that the input went to."""
        delivered = await self._deliver(as_message(content), input_id)
        return self._run_of_input(delivered) or Run(self, delivered)

    async def cancel(self, reason: str = "") -> None:
        """Stop the turn, cancel every operation, finish the run as cancelled. Returns when all have ended."""
        await self._deliver(ev.Cancel(reason), None)
        state = self.state
        run = state.run if state.run is not None and state.run.stop is ev.Cause.CANCEL else None
        asked = {call.call_id for call in state.pending} if run is not None or state.cancel_idle else set()
        while any(call.call_id in asked for call in self.state.pending) or (
            run is not None and run.run_id not in self.state.runs
        ):
            await self._wait()

    def events(self, after: int = 0, follow: bool = False) -> history.Events:
        """Committed events after sequence number `after`; with `follow`, waits for more, from any process."""
        return history.Events(self.store, self.id, after, follow, closed=lambda: self._closed)

    def deltas(self) -> Deltas:
        """Live pieces of model and operation output, from now on. Bounded: a slow reader is told what it lost."""
        return self._hub.listen()

    async def fork(self, at: int | str | None = None) -> str:
        """Make a branch and return its id; see `harness.fork`."""
        return await history.fork(self.store, self.id, at=at)

    # --- for Run

    async def _deliver(self, content: ev.Input, input_id: str | None) -> str:
        """Put an input into the inbox and wait until the coordinator has accepted it. Returns its id."""
        self._check_open()
        if isinstance(content, ev.Message):
            check_limited_tools(content.limits, self._tools)
        chosen = await submit(self.store, self.id, content, input_id)
        while chosen not in self.state.accepted:
            if isinstance(content, ev.Message) and not accepts_messages(self.state):
                break  # it is durable, and first in line for the next run
            await self._wait()
        return chosen

    async def _wait_for_start(self, input_id: str) -> str:
        """Wait until an input was accepted, and return the id of the run that it started or joined."""
        while (run := self._run_of_input(input_id)) is None:
            await self._wait()
        return run.id

    async def _wait_for_run(self, run_id: str) -> RunResult:
        """Wait until the run that the input `run_id` started, or joined, has finished."""
        while (found := self._span_of(run_id)) is None:
            await self._wait()
        return await self._result(*found)

    def _span_of(self, input_id: str) -> tuple[str, RunSpan] | None:
        """The finished run that an input started or joined: two messages that had to wait become one run."""
        run = self._run_of_input(input_id)
        span = None if run is None else self.state.runs.get(run.id)
        return None if run is None or span is None else (run.id, span)

    async def _result(self, run_id: str, span: RunSpan) -> RunResult:
        records = await self.store.read(self.id, after=span.first_seq - 1, upto=span.last_seq)
        return run_result(decode_all(records), run_id)

    def _run_of_input(self, input_id: str) -> Run | None:
        """The run that an accepted input started or steered."""
        state = self.state
        if input_id in state.runs or (state.run is not None and state.run.run_id == input_id):
            return Run(self, input_id)
        seq = state.accepted.get(input_id)
        if seq is None:
            return None
        for run_id, span in state.runs.items():
            if span.first_seq <= seq <= span.last_seq:
                return Run(self, run_id)
        return self.current_run

    async def _wait(self) -> None:
        self._check_open()
        await self._coordinator.journal.wait_for_change()
        self._check_open()

    def _check_open(self) -> None:
        if self._coordinator.failure is not None:
            raise self._coordinator.failure
        if self._closed:
            raise SessionClosed(self.id)

    def close(self) -> None:
        """Wake whoever still waits; called when the `async with` block ends."""
        self._closed = True
        self._hub.close()
        self._coordinator.journal.notify()


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

    store: a path (made when missing) or a Store. session_id: the session to resume, or the id for a new one.
    resume: auto resumes when the id is there and creates otherwise; must only resumes; never only creates.
    Everything else is for a new session, or changes what the log says when it resumes; by default a new session has the
    model `runbook`, the tools bash, view_image and skill, and the current folder as its workspace.
    tools: on resume, the functions that the log's pending calls need, and any new ones; the log's own come along.
    limits: the same as policy.limits. manager: shares operation limits; by default one for the whole trio run.

    A session whose last run has not finished goes on with it at once (`current_run`).
    Raises BadInput, UnknownModel, MissingKey, ToolUnavailable, UnknownSession, SessionExists, SessionBusy,
    UnsupportedVersion, CorruptLog, StoreUnavailable; nothing has run then. Leaving the block stops the coordinator: a
    turn in flight is lost, functions are stopped, shell commands go on and are found again on resume.
    """
    wanted = op.check_arguments(
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
    )
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_store(store, create=resume != "must"))
        chosen, warnings = await op.create_or_find(opened, wanted)
        lease = await opened.acquire(chosen)
        stack.push_async_callback(_released, lease)
        state, prepared = await op.prepare(opened, wanted, chosen)
        if prepared.model.made_here and (close := getattr(prepared.model.object, "aclose", None)) is not None:
            stack.push_async_callback(close)
        folder = _operations_folder(opened, chosen, stack)
        hub = DeltaHub()
        body = Body()
        async with (
            body.plain_errors(),
            (manager or shared_manager()).open_group(
                folder,
                prepared.registry.functions(),
                on_progress=_shown(hub),
                admit=lambda: wait_until_held(lease),
            ) as group,
            trio.open_nursery() as nursery,
        ):
            coordinator = Coordinator(
                Journal(opened, lease, state),
                session_id=chosen,
                model=prepared.model.object,
                registry=prepared.registry,
                group=group,
                hub=hub,
                changes=prepared.changes,
            )
            session = Session(chosen, opened, coordinator, hub, prepared, warnings)
            nursery.start_soon(coordinator.run)
            try:
                with body.watched():
                    yield session
            finally:
                session.close()
                nursery.cancel_scope.cancel()


async def _released(lease: Lease) -> None:
    with trio.CancelScope(shield=True):
        await lease.release()


def _operations_folder(store: Store, session_id: str, stack: AsyncExitStack) -> Path:
    """Where the session's operations keep their files: beside the store, or in a folder that goes with the session."""
    if store.location == ":memory:":
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="turnlog-")))
    return Path(store.location + ".operations") / folder_name(session_id)


def _shown(hub: DeltaHub) -> Callable[[Progress], None]:
    return lambda progress: hub.put(OperationOutput(progress.operation_id, progress.text))
