"""Carrying out one run from a terminal: open the session, show what happens, obey Ctrl-C, report the end.

Belongs here: what `run` and `demo` share once their options are read.
Must not know: options, how anything is drawn, how a session works inside.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import trio

import harness
from harness import events as ev
from harness.cli import ending, words
from harness.cli.faults import INTERRUPTED, OK, Failure, Mistake, say
from harness.cli.places import Place, make_folder, open_at
from harness.cli.shown import Shown
from harness.cli.stopping import Stop
from harness.cli.views import View
from harness.session import Run, Session

INBOX_S = 10.0
"""Seconds in which a session that was just opened takes up what waits in its inbox: 100 times what it promises."""


class Errand(msgspec.Struct, frozen=True):
    """What to do. session: the beginning of an id, or None for a new session. prompt: None to go on."""

    place: Place
    session: str | None = None
    prompt: str | None = None
    model: str | None = None
    workspace: str | None = None
    instructions: str = ""
    limits: ev.Limits = ev.Limits()
    title: str = ""


def drive(errand: Errand, view: View) -> int:
    """Carry it out in a trio run of its own, and return the exit status."""
    # A model object that fails is logged with its traceback; a user reads the one line of the run's error instead.
    logging.lastResort = None
    return trio.run(_drive, errand, view)


async def _drive(errand: Errand, view: View) -> int:
    stop = Stop()
    status = INTERRUPTED  # what stays when a third Ctrl-C leaves everything at once
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.listen, signals, nursery.cancel_scope)
            async with _opened(errand) as session:
                status = await _carry_out(session, errand, view, stop)
            nursery.cancel_scope.cancel()
    return status


@asynccontextmanager
async def _opened(errand: Errand) -> AsyncIterator[Session]:
    if errand.session is None:
        make_folder(errand.place, errand.model)
        async with harness.open_session(
            errand.place.path,
            model=errand.model,
            workspace=errand.workspace,
            instructions=errand.instructions,
            limits=errand.limits,
            title=errand.title,
        ) as session:
            yield session
        return
    async with (
        open_at(errand.place, errand.session) as (store, session_id),
        harness.open_session(
            store, session_id=session_id, resume="must", model=errand.model, workspace=errand.workspace
        ) as session,
    ):
        yield session


async def _carry_out(session: Session, errand: Errand, view: View, stop: Stop) -> int:
    resumed = errand.session is not None
    before = session.state
    for warning in session.warnings:
        say(warning)
    with view:
        view.begin(session.id, before if resumed else None)
        async with trio.open_nursery() as nursery:
            shown = Shown(before.seq if resumed else 0)
            nursery.start_soon(_show_deltas, session.deltas(), view)
            nursery.start_soon(shown.follow, session, view)
            nursery.start_soon(view.refresh)
            run = await _begin(session, errand, view, shown)
            if run is not None:
                nursery.start_soon(stop.interrupt_when_asked, run, view)
                nursery.start_soon(stop.cancel_when_asked, session, view)
                result = await run.result()
                await shown.until(lambda: shown.seq >= session.state.runs[run.id].last_seq)
                await stop.settle(session, view, shown)
            nursery.cancel_scope.cancel()
        if run is None:
            return OK
        span = session.state.runs[run.id]
        events = [logged async for logged in _between(session, span.first_seq, span.last_seq)]
        view.end(session.id, result, ending.footer(session, result, events, errand.place))
    status, reason = ending.judged(session.state, result, stopped=stop.asked)
    if reason:
        say(reason)
    return status


async def _between(session: Session, first: int, last: int) -> AsyncIterator[ev.Logged]:
    async for logged in session.events(after=first - 1):
        if logged.seq > last:
            return
        yield logged


async def _show_deltas(deltas: harness.Deltas, view: View) -> None:
    async for piece in deltas:
        view.piece(piece)


# --- which run it is


async def _begin(session: Session, errand: Errand, view: View, shown: Shown) -> Run | None:
    """The run to watch: one that the prompt starts or steers, or the one to go on with; None when there was none."""
    if errand.prompt is None:
        return await _go_on(session, view, shown)
    if session.current_run is None:
        # A new session has its limits already; an old one gets them for this run.
        limits = errand.limits if errand.session is not None else None
        try:
            return await session.start_run(errand.prompt, limits=limits)
        except harness.RunInProgress:  # something in the inbox was quicker
            pass
    view.note("a run is going on: your message steers it")
    if errand.limits != ev.Limits():
        view.note("--limit is for new runs: this one keeps the limits that it has")
    return await session.send(errand.prompt)


async def _go_on(session: Session, view: View, shown: Shown) -> Run | None:
    known = len(session.state.runs)
    await _take_up_inbox(session, shown)
    if (run := session.current_run) is not None:
        return run
    state = session.state
    if len(state.runs) > known:  # what was in the inbox was a whole run already
        return Run(session, list(state.runs)[-1])
    if state.cancel_idle:
        view.note(f"cancelling {words.counted(len(state.pending), 'call')} of a run that has ended")
        await _soon(shown, lambda: not session.state.pending)
        return None
    waiting = f", with {words.counted(len(state.pending), 'call')} pending" if state.pending else ""
    hint = f"turnlog run --session {session.id} -p TEXT"
    raise Mistake(f"session {session.id!r} has no unfinished run{waiting}. Say what to do: {hint}")


async def _take_up_inbox(session: Session, shown: Shown) -> None:
    """Wait until the coordinator has accepted what was sent while nobody had the session open."""
    sent = [stored.input_id for stored in await session.store.inputs(session.id)]
    await _soon(shown, lambda: all(input_id in session.state.accepted for input_id in sent))


async def _soon(shown: Shown, condition: Callable[[], bool]) -> None:
    with trio.move_on_after(INBOX_S) as timer:
        await shown.until(condition)
    if timer.cancelled_caught:
        raise Failure(f"the session did not react within {INBOX_S:g} s. Try again; `turnlog log` shows how far it is.")
