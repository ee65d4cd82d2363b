"""The session's log as its one writer sees it: draft events, commit them, know the state they lead to.

Belongs here: the rule that a state is true only once its events are on disk, and telling waiters that it changed.
Must not know: why an event is written, models, or operations.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import trio

from harness.errors import Unrecordable
from harness.events import Event, Logged
from harness.folding import apply
from harness.log import recorded, timestamp
from harness.state import SessionState
from operations.wording import encodable
from store import Lease, NewRecord, Store

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Event)


def utc_now() -> datetime:
    """The wall clock, for `recorded_at` only."""
    return datetime.now(UTC)


class Draft:
    """Events that are about to be appended together, and the state after them, were they committed."""

    def __init__(self, state: SessionState, recorded_at: str) -> None:
        self.state = state
        self.recorded_at = recorded_at
        self.records: list[NewRecord] = []

    def add(self, event: E) -> E:
        """One more event of the same append. Returns it as the log will have it.

        Raises Unrecordable when it holds what a log cannot, DoesNotFit when it cannot follow what came before; the
        draft is as it was then.
        """
        record, event = recorded(event, self.recorded_at)
        self.state = apply(self.state, Logged(self.state.seq + 1, self.recorded_at, event))
        self.records.append(record)
        return event

    def add_or(self, event: E, instead: Callable[[str], F]) -> E | F:
        """The same for an event that holds what foreign code gave: `instead` makes one of why it is unrecordable."""
        try:
            return self.add(event)
        except Unrecordable as error:
            return self.add(instead(encodable(str(error))))


class Journal:
    """The state of a session, and the only way to change it.

    landed: trio's clock at the commit of each recent event, by sequence number; for elapsed time, never for order.
    """

    def __init__(
        self, store: Store, lease: Lease, state: SessionState, *, wall_clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.store, self.lease, self.state = store, lease, state
        self.landed: dict[int, float] = {}
        self._forget_at = 64
        self._wall_clock = wall_clock
        self._changed = trio.Event()

    def draft(self) -> Draft:
        """An empty draft on top of what is committed."""
        return Draft(self.state, timestamp(self._wall_clock()))

    async def commit(self, draft: Draft) -> None:
        """Append the draft's events, all or none; when this returns they are on disk and the state is theirs.

        Raises StaleWriter, StoreUnavailable: nothing of the draft happened.
        """
        if not draft.records:
            return
        await self.store.append(self.lease, draft.records, expected_seq=self.state.seq)
        now = trio.current_time()
        for seq in range(self.state.seq + 1, draft.state.seq + 1):
            self.landed[seq] = now
        self.state = draft.state
        self._forget_old()
        self.notify()

    def notify(self) -> None:
        """Wake everyone who waits for a change."""
        self._changed.set()
        self._changed = trio.Event()

    async def wait_for_change(self) -> None:
        """Return after the next commit or `notify`."""
        await self._changed.wait()

    def _forget_old(self) -> None:
        """Only the age of what is undelivered, of pending calls, and of the last event, is ever asked for."""
        if len(self.landed) > self._forget_at:
            asked = {self.state.seq, *(news.seq for news in self.state.undelivered)}
            asked.update(call.seq for call in self.state.calls.values())
            self.landed = {seq: at for seq, at in self.landed.items() if seq in asked}
            self._forget_at = 64 + 2 * len(self.landed)
