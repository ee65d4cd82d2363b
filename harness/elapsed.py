"""How much time has passed, as the turn rules ask for it.

Belongs here: the monotonic clock against what the log knows from earlier processes.
Must not know: what a decision makes of it.
"""

from __future__ import annotations

import trio

from harness.decide import Now
from harness.journal import Draft, Journal
from harness.state import SessionState


class Elapsed:
    """The clock of one opening of a session."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._opened_s = trio.current_time()
        self._run: tuple[str, float, float] = ("", 0.0, 0.0)  # its id, seconds before this process, when we saw it

    def now(self, draft: Draft) -> Now:
        """The moment of a decision on the draft's state; what the draft adds is as young as that."""
        s = trio.current_time()
        landed = self._journal.landed
        if draft.records:
            first = draft.state.seq - len(draft.records) + 1
            landed = {**landed, **dict.fromkeys(range(first, draft.state.seq + 1), s)}
        return Now(s=s, landed=landed, opened_s=self._opened_s, run_s=self._run_s(draft.state, s))

    def run_s(self, state: SessionState) -> float:
        """Seconds of the run that is going on, to the millisecond, as they stand in the log."""
        return round(self._run_s(state, trio.current_time()), 3)

    def _run_s(self, state: SessionState, s: float) -> float:
        """What the log knows from before this process, and the clock since."""
        run = state.run
        if run is None:
            return 0.0
        if self._run[0] != run.run_id:
            self._run = (run.run_id, run.seconds, s)
        _, before_s, since = self._run
        return before_s + (s - since)  # in this order: nothing elapsed has to be exactly nothing
