"""Which run of a session a command is about: one to start, to steer, to go on with, or none.

Belongs here: what is done first with what others have sent, and what `run --session ID` without a prompt means.
Must not know: how a run is shown, stopped or reported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

import harness
from harness import events as ev
from harness.cli import words
from harness.cli.faults import Failure, Mistake
from harness.cli.inputs import waiting_inputs
from harness.cli.places import Place
from harness.cli.shown import Shown
from harness.cli.stopping import is_stopping
from harness.cli.views import View
from harness.session import Run, Session

INBOX_S: Final = 10.0
"""Seconds in which a session that was just opened takes up what waits in its inbox: 100 times what it promises."""

GO_ON: Final = "Go on where you stopped."
"""What the model is told when the user goes on with a run that ended before its work did."""


class Beginning:
    """Finds or starts the run of a session.

    length: of the session's log before this process opened it; 0 for a new one.
    """

    def __init__(self, session: Session, place: Place, view: View, shown: Shown, length: int) -> None:
        self._session, self._place, self._view, self._shown = session, place, view, shown
        self._length = length

    async def with_prompt(self, prompt: str, limits: ev.Limits) -> Run:
        """The run that the prompt starts, or the one that it steers. What was sent before it comes before it."""
        session = self._session
        if self._length:
            await self._take_up_inbox()
            await self._shown.until(lambda: not is_stopping(session.state))
        if session.current_run is None:
            try:
                # A new session has its limits already; an old one gets them for this run.
                return await session.start_run(prompt, limits=limits if self._length else None)
            except harness.RunInProgress:  # something in the inbox was quicker
                pass
        self._view.note("a run is going on: your message steers it")
        self._keeps_its_limits(limits)
        return await session.send(prompt)

    async def without_prompt(self, limits: ev.Limits) -> Run | None:
        """The run to go on with: the unfinished one, what the inbox starts, or one more where the last ended early.

        None: what was in the inbox has been carried out, and there was nothing else. Raises Mistake when the last run
        has completed.
        """
        session = self._session
        taken = await self._take_up_inbox()
        if (run := session.current_run) is not None:
            self._keeps_its_limits(limits)
            return run
        if any(session.state.runs[run_id].last_seq > self._length for run_id in session.state.runs):
            return Run(session, list(session.state.runs)[-1])  # what was in the inbox was a whole run already
        if session.state.cancel_idle:
            pending = words.counted(len(session.state.pending), "call")
            self._view.note(f"cancelling {pending} of a run that has ended")
            await self._soon(lambda: not session.state.pending)
            return None
        if taken:
            self._view.note("what was sent is taken up; there was no run for it, and there is nothing else to do")
            return None
        return await self._one_more(limits)

    async def _one_more(self, limits: ev.Limits) -> Run:
        session = self._session
        end = await last_end(session)
        if end is None or end.outcome is ev.Outcome.COMPLETED:
            why = "has had no run" if end is None else "has nothing to go on with: its last run completed"
            hint = f"turnlog run --session {session.id}{self._place.hint} -p TEXT"
            raise Mistake(f"session {session.id!r} {why}. Say what to do: {hint}")
        self._view.note(f"the last run ended as {end.outcome.value}: going on with a new one")
        try:
            return await session.start_run(GO_ON, limits=limits)
        except harness.RunInProgress as error:  # somebody else has said something in between
            return error.run

    def _keeps_its_limits(self, limits: ev.Limits) -> None:
        if limits != ev.Limits():
            self._view.note("--limit is for new runs: this one keeps the limits that it has")

    async def _take_up_inbox(self) -> bool:
        """Wait until what was sent while nobody had the session open is accepted. Whether there was anything."""
        session = self._session
        sent = await waiting_inputs(session.store, session.id, ())
        # A message waits for the end of a run that is being stopped, which may take its commands some time.
        await self._soon(lambda: is_stopping(session.state) or all(each in session.state.accepted for each in sent))
        return any(session.state.accepted.get(each, self._length + 1) > self._length for each in sent)

    async def _soon(self, condition: Callable[[], bool]) -> None:
        with trio.move_on_after(INBOX_S) as timer:
            await self._shown.until(condition)
        if timer.cancelled_caught:
            raise Failure(
                f"the session did not react within {INBOX_S:g} s. Try again; `turnlog log` shows how far it is."
            )


async def last_end(session: Session) -> ev.RunFinished | None:
    """How the last run of a session ended, or None when none has."""
    if not session.state.runs:
        return None
    last_seq = session.state.runs[list(session.state.runs)[-1]].last_seq
    async for logged in session.events(after=last_seq - 1):
        if isinstance(logged.event, ev.RunFinished):
            return logged.event
    return None
