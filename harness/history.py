"""Reading logs without opening their sessions: events, forks, listings.

Belongs here: what needs a store and an id, and no lease.
Must not know: models, operations, or how a running session is driven.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from harness import events as ev
from harness import ids
from harness.errors import SessionClosed
from harness.folding import DoesNotFit, apply
from harness.inbox import read_entry
from harness.journal import utc_now
from harness.log import decode, decode_all, encode, timestamp
from harness.runtime import open_store
from harness.state import SessionState
from store import CallerError, CorruptLog, Record, SessionInfo, Store, StoreError, StoreUnavailable, UnknownSequence

PAGE = 1000
"""Records that one read brings into memory when a log is walked."""


class Events:
    """An async iterator over committed events; see `Session.events`. May be left at any point."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        after: int,
        follow: bool,
        *,
        closed: Callable[[], bool] = lambda: False,
    ) -> None:
        """closed: whether the session that handed it out is closed, and the store perhaps with it."""
        self._store, self._session_id = store, session_id
        self._after, self._follow, self._closed = after, follow, closed
        self._page: list[Record] = []

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> ev.Logged:
        while not self._page:
            try:
                await self._fetch()
            except StoreUnavailable as error:
                if self._closed():
                    raise SessionClosed(self._session_id) from error
                raise
        logged = decode(self._page.pop())
        self._after = logged.seq
        return logged

    async def _fetch(self) -> None:
        """The next page, in reverse. Damage in it is raised only once all before it was given out."""
        try:
            records = await self._store.read(self._session_id, after=self._after, limit=PAGE)
        except CorruptLog as damage:
            if damage.seq is None or damage.seq <= self._after + 1:
                raise
            records = await self._store.read(self._session_id, after=self._after, upto=damage.seq - 1)
        self._page = records[::-1]
        if not records:
            if not self._follow:
                raise StopAsyncIteration
            await self._store.wait_for_change(self._session_id, after=self._after)

    async def aclose(self) -> None:
        """Nothing is held between two events, so there is nothing to close; here for callers that close iterators."""

    async def __aenter__(self) -> Events:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


async def read_events(store: str | Path | Store, session_id: str, *, upto: int | None = None) -> list[ev.Logged]:
    """Every event of a session up to and including `upto`, its ancestors' first.

    Raises UnknownSession, CorruptLog, UnsupportedVersion.
    """
    async with open_store(store, create=False) as opened:
        info = await opened.session(session_id)
        if upto is not None and not 0 < upto <= info.length:
            raise UnknownSequence(session_id, upto, info.length)
        return decode_all(await opened.read(session_id, upto=upto))


async def fold(store: Store, session_id: str) -> SessionState:
    """The state of a session after its last event. Raises CorruptLog for events that cannot follow each other."""
    state = SessionState()
    for record in await store.read(session_id):
        try:
            state = apply(state, decode(record))
        except DoesNotFit as error:
            raise CorruptLog(session_id, record.seq, str(error)) from error
    return state


async def fork(
    store: str | Path | Store, session_id: str, *, at: int | str | None = None, title: str | None = None
) -> str:
    """Make a branch of a session and return its id, whether the session is running, here or elsewhere, or not.

    at: the last sequence number that the branch keeps, or a turn's id (the branch keeps that turn to its end); None
    keeps all that is committed now. Calls that are pending there belong to the parent: the branch sees them end as
    unknown when it is opened. Raises UnknownSession, UnknownSequence, UnknownTurn, and CorruptLog for damage in what
    the branch would keep. Cancelled: the branch exists whole or not at all.
    """
    async with open_store(store, create=False) as opened:
        info = await opened.session(session_id)
        seq = info.length if at is None else at if isinstance(at, int) else await _end_of_turn(opened, info, at)
        if not 0 < seq <= info.length:
            raise UnknownSequence(session_id, seq, info.length)
        for after in range(0, seq, PAGE):  # a branch of what is damaged could never be opened
            await opened.read(session_id, after=after, upto=min(seq, after + PAGE))
        branch = ids.new_session_id()
        now = timestamp(utc_now())
        event = encode(ev.SessionForked(session_id, seq), now)
        await opened.fork(
            session_id, branch, [event], at=seq, created_at=now, title=info.title if title is None else title
        )
        return branch


async def _end_of_turn(store: Store, info: SessionInfo, turn_id: str) -> int:
    async for logged in Events(store, info.id, 0, follow=False):
        event = logged.event
        if isinstance(event, (ev.TurnFinished, ev.TurnInterrupted, ev.TurnFailed)) and event.turn_id == turn_id:
            return logged.seq
    raise UnknownTurn(info.id, turn_id)


class UnknownTurn(CallerError):
    """The session has no turn of this id that has ended."""

    def __init__(self, session_id: str, turn_id: str) -> None:
        self.session_id, self.turn_id = session_id, turn_id
        super().__init__(f"session {session_id!r} has no ended turn {turn_id!r}. `turnlog turns` lists them.")


class SessionSummary(msgspec.Struct, frozen=True):
    """A line of a listing.

    state: running; unfinished (a run that nobody drives); waiting (no run, but inputs that nobody has taken up); idle;
    or unreadable.
    """

    id: str
    title: str
    parent_id: str | None
    parent_seq: int | None
    events: int
    turns: int
    created_at: str
    last_activity: str
    state: str
    holder: str | None


async def sessions(store: str | Path | Store) -> list[SessionSummary]:
    """Every session of a store, last active first. A damaged one is listed as unreadable, not left out."""
    async with open_store(store, create=False) as opened:
        return [await _summary(opened, info) for info in await opened.sessions()]


TAIL = 64


async def _summary(store: Store, info: SessionInfo) -> SessionSummary:
    try:
        turns, going = await _look_at_tail(store, info)
        if going:
            state = "running" if info.holder else "unfinished"
        else:
            state = "waiting" if await _waits(store, info) else "idle"
    except StoreError:
        turns, state = 0, "unreadable"
    return SessionSummary(
        id=info.id,
        title=info.title,
        parent_id=info.parent_id,
        parent_seq=info.parent_seq,
        events=info.length,
        turns=turns,
        created_at=info.created_at,
        last_activity=info.last_recorded_at,
        state=state,
        holder=info.holder,
    )


async def _look_at_tail(store: Store, info: SessionInfo) -> tuple[int, bool]:
    """(turns so far, whether a run is going on), from as few of the last events as tell both."""
    turns: int | None = None
    going: bool | None = None
    last = info.length
    while last > 0 and (turns is None or going is None):
        records = await store.read(info.id, after=max(0, last - TAIL), upto=last)
        for record in reversed(records):
            event = decode(record).event
            match event:
                case ev.TurnStarted():
                    turns = int(event.turn_id[1:]) if turns is None else turns
                    going = True if going is None else going
                case ev.RunFinished():
                    going = False if going is None else going
                case ev.InputAccepted(content=ev.Message()):
                    going = True if going is None else going
                case _:
                    pass
        last -= TAIL
    return turns or 0, bool(going)


async def _waits(store: Store, info: SessionInfo) -> bool:
    """Whether a session without a run has inputs that nobody has taken up.

    They are taken up in order, so the last one tells; and none is from before the last run.
    """
    sent = [stored.input_id for stored in await store.inputs(info.id) if read_entry(stored) is not None]
    runs = 0
    last = info.length
    while sent and last > 0 and runs < 2:
        for record in reversed(await store.read(info.id, after=max(0, last - TAIL), upto=last)):
            event = decode(record).event
            if isinstance(event, ev.InputAccepted) and event.input_id == sent[-1]:
                return False
            if isinstance(event, ev.RunFinished):
                if event.run_id == sent[-1]:  # a run has the id of the input that began it
                    return False
                runs += 1
        last -= TAIL
    return bool(sent)
