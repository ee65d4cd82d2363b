"""The one loop with effects: take what happened, record it, decide, act.

Belongs here: carrying out what `decide` answers, in the order announce, commit, act.
Must not know: when the model is to be called (decide.py), what it is told (context.py), what stands in an event
(recording.py), how anything is executed.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
import trio

from harness import decide as rules
from harness import events as ev
from harness import ids
from harness.compaction import cut, summary_request
from harness.context import Built, build
from harness.deltas import DeltaHub
from harness.elapsed import Elapsed
from harness.holding import hold, renew_every_s
from harness.inbox import read_entry
from harness.journal import Draft, Journal
from harness.llm.model import Model, ModelRequest
from harness.recording import Recorder
from harness.state import SessionState, open_operations
from harness.tools.registry import Registry
from harness.turn import TurnTask
from operations import TERMINAL, Operation, OperationGroup, Status, Update
from store import CorruptBlob, StoredInput, StoreError, StoreUnavailable

log = logging.getLogger("turnlog.coordinator")

Effect = Callable[[], None]

SHORTEST_WAIT_S = 1e-6
"""Less than a float of the clock can tell from now would find the same age again and never be over."""

PARENTS = "it belongs to the parent session, where it goes on; this branch has no part in it"


class Coordinator:
    """Owns the turns of one session. Everything it knows comes from the log; everything it does is in the log first."""

    def __init__(
        self,
        journal: Journal,
        *,
        session_id: str,
        model: Model,
        registry: Registry,
        group: OperationGroup,
        hub: DeltaHub,
        changes: ev.Settings | None = None,
    ) -> None:
        self.journal = journal
        self.failure: Exception | None = None
        self._session_id, self._model = session_id, model
        self._group, self._hub, self._changes = group, hub, changes
        self._elapsed = Elapsed(journal)
        self._record = Recorder(registry, self._elapsed)
        self._signal = trio.Event()
        self._inbox: deque[StoredInput] = deque()
        self._inbox_position = 0
        self._updates: deque[Update] = deque()
        self._turn: TurnTask | None = None
        self._asked: set[str] = set()
        self._cancelled = False
        self._blobs: dict[str, bytes] = {}

    @property
    def state(self) -> SessionState:
        """The state after everything committed."""
        return self.journal.state

    async def run(self) -> None:
        """Coordinate until cancelled, or until the store refuses: then `failure` says why and nothing more is done."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await self._recover()
                nursery.start_soon(self._watch_inbox)
                nursery.start_soon(self._watch_updates)
                nursery.start_soon(self._keep_lease)
                await self._loop()
        except* StoreError as group:
            self.failure = _first(group)
        finally:
            self.journal.notify()

    # --- what a predecessor left

    async def _recover(self) -> None:
        """A turn that was in flight is lost; operations are taken up again, except those that a parent runs."""
        draft = self.journal.draft()
        if draft.state.turn is not None:
            draft.add(ev.TurnInterrupted(draft.state.turn.turn_id, ev.Cause.LOST))
        if self._changes is not None:
            draft.add(ev.InputAccepted(ids.new_input_id(), "caller", self._changes))
        ours: list[Operation] = []
        for operation in open_operations(draft.state):
            if operation.id in draft.state.foreign:
                draft.add(ev.OperationUpdated(operation.id, Status.UNKNOWN, result={"error": PARENTS}))
            else:
                ours.append(operation)
        await self.journal.commit(draft)
        await hold(self.journal.lease)
        self._group.recover(ours)

    # --- the loop

    async def _loop(self) -> None:
        while True:
            self._signal = trio.Event()
            draft = self.journal.draft()
            await self._take_all(draft)
            effects, wait = self._plan(draft)
            await self.journal.commit(draft)
            if self._cancelled and not self.state.pending:
                self._cancelled = False
                effects.append(self._group.end_strays)
            if effects:
                await self._act(effects)
                continue
            with trio.move_on_after(math.inf if wait.for_s is None else max(SHORTEST_WAIT_S, wait.for_s)):
                await self._signal.wait()

    def _wake(self) -> None:
        self._signal.set()

    async def _act(self, effects: list[Effect]) -> None:
        await hold(self.journal.lease)
        for effect in effects:
            effect()

    # --- taking

    async def _take_all(self, draft: Draft) -> None:
        turn = self._turn
        if turn is not None and turn.ended is not None:
            self._record.turn_ended(draft, turn, turn.ended)
            self._turn = None
        while self._updates:
            update = self._updates.popleft()
            if update.blobs:
                await self.journal.store.put_blobs(update.blobs)
            self._record.operation_updated(draft, update)
            if update.status in TERMINAL:
                self._asked.discard(update.operation_id)
        self._take_inputs(draft)

    def _take_inputs(self, draft: Draft) -> bool:
        """Accept what is in the inbox, in order, but for messages that what is ending cannot answer. Was there any?"""
        before = len(draft.records)
        kept: deque[StoredInput] = deque()
        while self._inbox:
            stored = self._inbox.popleft()
            if stored.input_id in draft.state.accepted:
                continue
            entry = read_entry(stored)
            if entry is None:
                continue
            if isinstance(entry.content, ev.Message) and not rules.accepts_messages(draft.state):
                kept.append(stored)
            else:
                draft.add(ev.InputAccepted(stored.input_id, entry.source, entry.content))
                self._cancelled |= isinstance(entry.content, ev.Cancel)
        self._inbox = kept
        return len(draft.records) > before

    # --- deciding and recording

    def _plan(self, draft: Draft) -> tuple[list[Effect], rules.Wait]:
        """Add to the draft what follows from it, until something has to be done or waited for."""
        effects: list[Effect] = []
        while True:
            action = rules.decide(draft.state, self._elapsed.now(draft))
            match action:
                case rules.Wait():
                    # A message that had to wait for the end of a run, or of a cancellation, is next.
                    if not self._take_inputs(draft):
                        return effects, action
                case rules.Translate():
                    effects.extend(self._translate(draft, action))
                case rules.FinishCalls():
                    self._record.finish_calls(draft, action)
                case rules.Beat():
                    self._record.heartbeat(draft, action)
                case rules.FinishRun():
                    self._record.finish_run(draft, action)
                case rules.CallModel():
                    effects.append(self._call_model(draft, action))
                case rules.Compact():
                    effects.append(self._summarise(draft))
                case rules.FinishCompaction():
                    self._record.finish_compaction(draft)
                case rules.InterruptTurn():
                    return self._with_interrupt(effects, action), rules.Wait()
                case rules.CancelOperations():
                    return self._with_cancel(effects, action), rules.Wait()

    def _translate(self, draft: Draft, action: rules.Translate) -> list[Effect]:
        started = self._record.translate(draft, action)
        return [lambda: self._group.start(started)] if started else []

    def _call_model(self, draft: Draft, action: rules.CallModel) -> Effect:
        built = build(draft.state, limit=action.limit)
        number = self._record.announce_turn(draft, action.reason, built, new_items=built.new_items, limit=action.limit)

        async def prepare() -> ModelRequest:
            return await self._with_blobs(built)

        return lambda: self._start_turn(TurnTask(number, self._hub), prepare)

    def _summarise(self, draft: Draft) -> Effect:
        covers = cut(draft.state)
        asked = summary_request(draft.state, covers)
        number = self._record.announce_turn(draft, ev.Reason.COMPACTION, asked, covers=covers)

        async def prepare() -> ModelRequest:
            return asked.request

        # Nobody wants to watch a summary being written.
        return lambda: self._start_turn(TurnTask(number, DeltaHub(), may_call=False), prepare)

    # --- acting

    def _start_turn(self, turn: TurnTask, prepare: Callable[[], Awaitable[ModelRequest]]) -> None:
        async def held() -> ModelRequest:
            request = await prepare()  # it may have waited for the disk
            await hold(self.journal.lease)
            return request

        self._turn = turn
        self._nursery.start_soon(self._turn.run, self._model, held, self._wake)

    async def _with_blobs(self, built: Built) -> ModelRequest:
        self._blobs = {digest: data for digest, data in self._blobs.items() if digest in built.images}
        for digest in built.images:
            if digest not in self._blobs:
                try:
                    self._blobs[digest] = await self.journal.store.blob(digest)
                except CorruptBlob as error:
                    # Only the image is left out, where adapters say so; a session must not end for one picture.
                    log.warning("%s", error)
        return msgspec.structs.replace(built.request, blobs=dict(self._blobs))

    def _with_interrupt(self, effects: list[Effect], action: rules.InterruptTurn) -> list[Effect]:
        turn = self._turn
        if turn is None or turn.cause is not None or turn.ended is not None:
            return effects
        return [*effects, lambda: turn.cut(action.cause)]

    def _with_cancel(self, effects: list[Effect], action: rules.CancelOperations) -> list[Effect]:
        new = [operation for operation in action.operation_ids if operation not in self._asked]
        if not new:
            return effects
        self._asked.update(new)
        return [*effects, lambda: self._group.cancel(new, action.reason)]

    # --- watching

    async def _watch_inbox(self) -> None:
        store = self.journal.store
        while True:
            found = await store.inputs(self._session_id, after=self._inbox_position)
            if found:
                self._inbox_position = found[-1].position
                self._inbox.extend(found)
                self._wake()
            await store.wait_for_input(self._session_id, after=self._inbox_position)

    async def _watch_updates(self) -> None:
        async for update in self._group.updates:
            self._updates.append(update)
            # What is there already goes into the same append: quick work begins and ends in one commit.
            self._updates.extend(self._group.updates.take_nowait())
            self._wake()

    async def _keep_lease(self) -> None:
        lease = self.journal.lease
        every_s = renew_every_s(lease)
        while True:
            await trio.sleep(every_s)
            try:
                await lease.renew()
            except StoreUnavailable:
                # A full disk may have room again before the lease runs out; only then is it worth failing for.
                if lease.valid_for_s <= every_s:
                    raise
            else:
                every_s = renew_every_s(lease)


def _first(group: BaseExceptionGroup[StoreError]) -> StoreError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StoreError)
    return error
