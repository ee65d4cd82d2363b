"""Replay: any past state of a session, and whether today's code would still send what was sent.

Belongs here: folding a log again, rebuilding requests, comparing digests.
Must not know: how a session is run. Nothing here writes; a rerun makes a session of its own elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from harness import events as ev
from harness.context import Built, item_digest, rebuilt
from harness.errors import BadInput
from harness.folding import apply
from harness.history import read_events
from harness.llm.model import ModelRequest
from harness.llm.wire import left_out
from harness.rerunning import Rerun, rerun
from harness.state import SessionState
from store import Store, UnknownSequence


class Divergence(msgspec.Struct, frozen=True):
    """A turn whose request would be another one today.

    item: index of the first item that differs, or None when the items agree and the head (instructions, tools,
    settings) differs. what: one line for people.
    """

    turn_id: str
    seq: int
    item: int | None
    what: str


class TurnRequest(msgspec.Struct, frozen=True):
    """A turn's request as today's context builder makes it. seq: that of its turn_started.

    left_out: what the model was not shown, in whole or in part: the middle of long results, and reasoning that only
    another provider can read.
    """

    turn_id: str
    seq: int
    request: ModelRequest
    digest: str
    left_out: tuple[str, ...] = ()


class Replay:
    """A log in memory, to be folded as often as wanted."""

    def __init__(self, session_id: str, events: Iterable[ev.Logged], store: str | Path | Store | None = None) -> None:
        """store: where the log is from; only `rerun` needs it."""
        self.session_id = session_id
        self.events = tuple(events)
        self._store = store

    def states(self) -> Iterator[tuple[ev.Logged, SessionState]]:
        """Every event with the state after it."""
        state = SessionState()
        for logged in self.events:
            state = apply(state, logged)
            yield logged, state

    def state_at(self, seq: int) -> SessionState:
        """The state after event `seq`, as a copy that nothing else holds. Raises UnknownSequence."""
        if not 0 < seq <= len(self.events):
            raise UnknownSequence(self.session_id, seq, len(self.events))
        state = SessionState()
        for logged in self.events[:seq]:
            state = apply(state, logged)
        return copy.deepcopy(state)

    def requests(self) -> Iterator[TurnRequest]:
        """Each turn's request, rebuilt from the log alone."""
        for started, built in self._builds():
            event = cast("ev.TurnStarted", started.event)
            cut = [f"{omission.what}: {omission.chars} characters" for omission in built.omissions]
            foreign = left_out(built.request.items, event.model.partition(":")[0])
            yield TurnRequest(event.turn_id, started.seq, built.request, built.digest, (*cut, *foreign))

    def check(self) -> list[Divergence]:
        """Turns whose rebuilt request has not the digest that was recorded; empty when all bytes would be the same.

        A difference in one turn's new items is in every later request too: only the turn where it enters is named,
        until its items agree again.
        """
        found: list[Divergence] = []
        for started, built in self._builds():
            event = cast("ev.TurnStarted", started.event)
            if built.digest == event.digest:
                continue
            divergence = _difference(started.seq, event, built)
            if divergence is not None and not (divergence.item is None and found):
                found.append(divergence)
        return found

    async def rerun(self, **options: Any) -> Rerun:
        """Run the session's inputs again as a new session, on recorded results; arguments as for `harness.rerun`."""
        if self._store is None:
            raise BadInput("this replay was made from events alone. Use harness.replay(store, session_id).")
        return await rerun(self._store, self.session_id, **options)

    def _builds(self) -> Iterator[tuple[ev.Logged, Built]]:
        state = SessionState()
        for logged in self.events:
            if isinstance(logged.event, ev.TurnStarted):
                yield logged, rebuilt(state, logged.event)
            state = apply(state, logged)


def _difference(seq: int, event: ev.TurnStarted, built: Built) -> Divergence:
    first = len(built.request.items) - len(built.new)
    for offset, item in enumerate(built.new):
        recorded = event.new_items[offset] if offset < len(event.new_items) else None
        if item_digest(item) != recorded:
            kind = type(item).__name__
            return Divergence(
                event.turn_id, seq, first + offset, f"item {first + offset} ({kind}) is not what was sent"
            )
    if len(event.new_items) > len(built.new):
        missing = first + len(built.new)
        return Divergence(event.turn_id, seq, missing, f"item {missing}, which was sent, is missing")
    return Divergence(event.turn_id, seq, None, "the instructions, tools, settings or earlier items differ")


async def replay(store: str | Path | Store, session_id: str) -> Replay:
    """Read a session's log for replay. Raises UnknownSession, CorruptLog, UnsupportedVersion."""
    return Replay(session_id, await read_events(store, session_id), store)


def plain(state: SessionState) -> dict[str, Any]:
    """A state as plain values, for display and for comparing."""
    fields = {name: getattr(state, name) for name in state.__struct_fields__}
    fields["sent"] = {"items": list(state.sent.items), "digest": state.sent.digest.hex(), "chars": state.sent.chars}
    fields["runs"] = dict(state.runs)
    fields["accepted"] = dict(state.accepted)
    fields["outputs"] = list(state.outputs)
    return cast("dict[str, Any]", msgspec.to_builtins(fields))
