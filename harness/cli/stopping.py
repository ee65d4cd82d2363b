"""What Ctrl-C does: first interrupt the run, then cancel its commands, then leave at once.

Belongs here: counting signals, and saying each time what happens now and what the next one would do.
Must not know: how a run is shown or reported.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from typing import Final

import trio

import harness
from harness import events as ev
from harness.cli import words
from harness.cli.shown import Shown
from harness.cli.views import View
from harness.session import Run, Session
from harness.state import SessionState

SECOND_S: Final = 3.0
"""Seconds that an interrupted command waits for a second Ctrl-C while calls are pending."""


class Stop:
    """How often the user has asked to stop. SIGTERM counts as one Ctrl-C after which nobody will press another.

    left: whether a third one has left everything at once.
    """

    def __init__(self) -> None:
        self._first, self._second, self._cancelled = trio.Event(), trio.Event(), trio.Event()
        self._terminated = False
        self.left = False

    @property
    def asked(self) -> bool:
        """Whether the user has asked to stop at all."""
        return self._first.is_set()

    async def listen(self, signals: AsyncIterator[int], everything: trio.CancelScope) -> None:
        """Count, for as long as the command runs. everything: what a third Ctrl-C leaves."""
        async for number in signals:
            self._terminated = self._terminated or number == signal.SIGTERM
            if not self._first.is_set():
                self._first.set()
            elif number == signal.SIGTERM:
                continue
            elif not self._second.is_set():
                self._second.set()
            else:
                self.left = True
                everything.cancel()

    async def interrupt_when_asked(self, run: Run, view: View) -> None:
        """On the first: stop the turn in flight and finish the run; commands go on."""
        await self._first.wait()
        if not run.ended:
            view.note("interrupting the run; commands go on (Ctrl-C again cancels them)")
            await run.interrupt("Ctrl-C" if not self._terminated else "SIGTERM")

    async def cancel_when_asked(self, session: Session, view: View, shown: Shown) -> None:
        """On the second: end the commands too. Said once it is durable: a third one then leaves nothing undone."""
        await self._second.wait()
        pending = words.counted(len(session.state.pending), "call")
        request = await harness.submit(session.store, session.id, ev.Cancel("Ctrl-C"))
        view.note(f"cancelling {pending} (Ctrl-C again leaves at once)")
        await shown.until(lambda: request in session.state.accepted and not is_stopping(session.state))
        self._cancelled.set()

    async def settle(self, session: Session, view: View, shown: Shown) -> None:
        """After the run: give a second Ctrl-C its chance while there is something left to cancel."""
        if self.asked and not self._terminated and not self._second.is_set() and session.state.pending:
            pending = words.counted(len(session.state.pending), "call")
            view.note(f"interrupted; {pending} still running. Ctrl-C within {SECOND_S:g} s cancels, else they go on")
            with trio.move_on_after(SECOND_S) as window:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._close, window)
                    await shown.until(lambda: not session.state.pending)
                    nursery.cancel_scope.cancel()
        if self._second.is_set():
            await self._cancelled.wait()

    async def _close(self, window: trio.CancelScope) -> None:
        await self._second.wait()
        window.cancel()


def is_stopping(state: SessionState) -> bool:
    """Whether a session is ending a run that was stopped, or the commands that one has left."""
    return state.cancel_idle or (state.run is not None and state.run.stop is not None)
