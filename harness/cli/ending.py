"""How a run is summed up: the lines below the answer, and the exit status.

Belongs here: what a person reads at the end, computed from the log, and which ends count as success.
Must not know: how it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import events as ev
from harness.cli import words
from harness.cli.faults import FAILED, INTERRUPTED, OK
from harness.cli.places import Place
from harness.cli.views import FooterLine
from harness.llm.runbook import PROVIDER, read_progress
from harness.llm.runbook_answer import USAGE
from harness.metrics import metrics
from harness.result import RunResult
from harness.session import Session
from harness.state import SessionState


def footer(session: Session, result: RunResult, events: Sequence[ev.Logged], place: Place) -> list[FooterLine]:
    """Outcome, turns and time against a loop that blocks, the session, and what to try next."""
    told = metrics(events, run_id=result.run_id)
    turns = f"{told.turns:,} used"
    if result.outcome is ev.Outcome.COMPLETED:  # only then is there an answer to compare with
        calls = words.counted(told.calls, "call")
        turns += f"; {told.blocking_turns:,} with one blocking call a turn ({calls} and the answer)"
    why = f": {words.one_line(result.error)}" if result.error not in ("", result.outcome.value) else ""
    lines = [
        FooterLine("outcome", result.outcome.value + why),
        FooterLine("turns", turns),
        FooterLine("time", f"{result.seconds:.1f} s; the calls one after the other: {told.call_s:.1f} s"),
    ]
    if used := words.usage_text(result.usage):
        lines.append(FooterLine("tokens", used))
    lines.append(FooterLine("session", session.id))
    if pending := len(session.state.pending):
        lines.append(
            FooterLine(
                "pending", f"{words.counted(pending, 'call')} still running, and will be heard of when you go on"
            )
        )
    return [*lines, *_next(session, result, place)]


def _next(session: Session, result: RunResult, place: Place) -> list[FooterLine]:
    where = f"{session.id}{place.hint}"
    more = "TEXT" if result.outcome is ev.Outcome.COMPLETED else '"go on"'
    go_on = f"turnlog run --session {where}" + ("" if session.current_run is not None else f" -p {more}")
    lines = [
        FooterLine("events", f"turnlog log {where}"),
        FooterLine("cost", f"turnlog turns {where}"),
        FooterLine("branch", f"turnlog fork {where} --at t1"),
        FooterLine("go on", go_on),
    ]
    if session.state.pending:
        lines.append(FooterLine("cancel", f"turnlog cancel {where} && turnlog run --session {where}"))
    return lines


def judged(state: SessionState, result: RunResult, *, stopped: bool) -> tuple[int, str]:
    """(exit status, the reason for stderr, which may be empty). stopped: the user pressed Ctrl-C."""
    outcome = result.outcome
    if outcome is ev.Outcome.INTERRUPTED or (stopped and outcome is ev.Outcome.CANCELLED):
        return INTERRUPTED, ""
    if outcome is not ev.Outcome.COMPLETED:
        return FAILED, f"the run ended as {outcome.value}: {result.error or 'no reason was recorded'}."
    commands, failed = _runbook_failures(state, result)
    if failed:
        return FAILED, f"{failed} of {words.counted(commands, 'command')} failed."
    return OK, ""


def _runbook_failures(state: SessionState, result: RunResult) -> tuple[int, int]:
    """(commands, failed ones) of the runbook that the answer reports on.

    A runbook is a job, and its commands are its result. With any other model a failed command is a step on the way, and
    only the run's outcome counts.
    """
    if state.config.model != PROVIDER or result.text.strip() == USAGE:
        return 0, 0
    outcomes = [outcome for _, outcome in read_progress(state.sent.items).rows()]
    return len(outcomes), sum(not outcome.ok for outcome in outcomes)
