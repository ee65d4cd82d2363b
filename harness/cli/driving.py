"""Carrying out one run from a terminal: open the session, show what happens, obey Ctrl-C, report the end.

Belongs here: what `run` and `demo` share once their options are read.
Must not know: options, how anything is drawn, how a session works inside.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import trio

import harness
from harness import events as ev
from harness.cli import ending
from harness.cli.beginning import Beginning
from harness.cli.faults import INTERRUPTED, OK, say
from harness.cli.places import Place, make_folder, open_at
from harness.cli.shown import Shown
from harness.cli.stopping import Stop
from harness.cli.views import FooterLine, View
from harness.session import Session
from harness.tools.defaults import NAMES
from harness.validation import check_limited_tools


class Errand(msgspec.Struct, frozen=True):
    """What to do. session: the beginning of an id, or None for a new session. prompt: None to go on.

    more: lines that the ending shows below its own.
    """

    place: Place
    session: str | None = None
    prompt: str | None = None
    model: str | None = None
    workspace: str | None = None
    instructions: str = ""
    limits: ev.Limits = ev.Limits()
    title: str = ""
    more: tuple[FooterLine, ...] = ()


def drive(errand: Errand, view: View) -> int:
    """Carry it out in a trio run of its own, and return the exit status."""
    # A model object that fails is logged with its traceback; a user reads the one line of the run's error instead.
    logging.lastResort = None
    return trio.run(_drive, errand, view)


async def _drive(errand: Errand, view: View) -> int:
    stop = Stop()
    status, where = INTERRUPTED, ""  # what stays when everything is left at once
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.listen, signals, nursery.cancel_scope)
            async with _opened(errand) as (session, length):
                where = session.id + errand.place.hint
                status = await _carry_out(session, length, errand, view, stop)
            nursery.cancel_scope.cancel()
    if stop.left and where:
        say(f"left at once; commands may go on. To resume: turnlog run --session {where}")
    return status


@asynccontextmanager
async def _opened(errand: Errand) -> AsyncIterator[tuple[Session, int]]:
    """(the session, the length of its log before it was opened)."""
    if errand.session is None:
        check_limited_tools(errand.limits, NAMES)  # before a folder is made
        make_folder(errand.place, errand.model)
        async with harness.open_session(
            errand.place.path,
            model=errand.model,
            workspace=errand.workspace,
            instructions=errand.instructions,
            limits=errand.limits,
            title=errand.title,
        ) as session:
            yield session, 0
        return
    async with open_at(errand.place, errand.session) as (store, session_id):
        length = (await store.session(session_id)).length
        async with harness.open_session(
            store, session_id=session_id, resume="must", model=errand.model, workspace=errand.workspace
        ) as session:
            yield session, length


async def _carry_out(session: Session, length: int, errand: Errand, view: View, stop: Stop) -> int:
    resumed = length > 0
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
            beginning = Beginning(session, errand.place, view, shown, length)
            if errand.prompt is None:
                run = await beginning.without_prompt(errand.limits)
            else:
                run = await beginning.with_prompt(errand.prompt, errand.limits)
            if run is not None:
                nursery.start_soon(stop.interrupt_when_asked, run, view)
                nursery.start_soon(stop.cancel_when_asked, session, view, shown)
                result = await run.result()
                await shown.until(lambda: shown.seq >= session.state.runs[run.id].last_seq)
                await stop.settle(session, view, shown)
            nursery.cancel_scope.cancel()
        if run is None:
            return OK
        log = [logged async for logged in session.events()]
        view.end(session.id, result, [*ending.footer(session, result, log, errand.place), *errand.more])
    status, reason = ending.judged(session.state, result, log, stopped=stop.asked)
    if reason:
        say(reason)
    return status


async def _show_deltas(deltas: harness.Deltas, view: View) -> None:
    async for piece in deltas:
        view.piece(piece)
