"""How much of a log a view has seen, and waiting for more.

Belongs here: following a session's events, in step with whoever has to wait for one of them.
Must not know: what a view does with an event.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from harness.cli.views import View
from harness.session import Session


class Shown:
    """How much of the log the view has seen. The end of a run is told only after everything before it."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self._changed = trio.Event()

    async def follow(self, session: Session, view: View) -> None:
        """Show every event that is committed from here on."""
        async for logged in session.events(after=self.seq, follow=True):
            view.event(logged)
            self.seq = logged.seq
            self._changed.set()
            self._changed = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds; it is asked again after every event."""
        while not condition():
            await self._changed.wait()
