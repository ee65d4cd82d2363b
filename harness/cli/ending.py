"""How a run is summed up: the lines below the answer, and the exit status.

Belongs here: what a person reads at the end, computed from the log, and which ends count as success.
Must not know: how it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile

from harness import events as ev
from harness.cli import words
from harness.cli.faults import FAILED, INTERRUPTED, OK
from harness.cli.places import Place
from harness.cli.views import FooterLine
from harness.llm.runbook import PROVIDER, read_progress
from harness.llm.runbook_answer import USAGE
from harness.metrics import Metrics, metrics, turn_rows
from harness.result import RunResult
from harness.session import Session
from harness.state import SessionState


def footer(session: Session, result: RunResult, log: Sequence[ev.Logged], place: Place) -> list[FooterLine]:
    """Outcome, turns and time against a loop that blocks, the session, and what to try next.

    log: all of the session's, up to now.
    """
    told = metrics(log, run_id=result.run_id)
    why = _why(result, log)
    lines = [
        FooterLine("outcome", result.outcome.value + (f": {words.one_line(why)}" if why else "")),
        FooterLine("turns", _turns(result, told)),
        FooterLine("time", _time(result, told)),
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
    return [*lines, *_next(session, result, log, place)]


def _turns(result: RunResult, told: Metrics) -> str:
    """Beside those of a loop that blocks, if the run came to an answer: only then is there something to compare."""
    used = f"{told.turns:,} used"
    if result.outcome is not ev.Outcome.COMPLETED:
        return used
    simple = told.blocking_turns == told.calls + 1 and not told.inherited
    made_of = f" ({words.counted(told.calls, 'call')} and the answer)" if simple else ""
    return f"{used}; {told.blocking_turns:,} with one blocking call a turn{made_of}"


def _time(result: RunResult, told: Metrics) -> str:
    """Beside that of the calls one after the other, if the run made all the calls whose results it waited for."""
    if not told.calls or told.inherited:
        return words.seconds(result.seconds)
    return f"{words.seconds(result.seconds)}; the calls one after the other: {words.seconds(told.call_s)}"


def _why(result: RunResult, log: Sequence[ev.Logged]) -> str:
    """Why the run did not complete: the reason that was given for stopping it, else what the run says itself."""
    asked = [
        logged.event.content.reason
        for logged in _since(result, log)
        if isinstance(logged.event, ev.InputAccepted) and isinstance(logged.event.content, (ev.Interrupt, ev.Cancel))
    ]
    stopped = result.outcome in (ev.Outcome.INTERRUPTED, ev.Outcome.CANCELLED)
    reason = next((reason for reason in asked if reason), "") if stopped else ""
    return reason or (result.error if result.error != result.outcome.value else "")


def _since(result: RunResult, log: Sequence[ev.Logged]) -> Iterator[ev.Logged]:
    """The events from the run's input on; its id is that input's."""
    return dropwhile(lambda logged: getattr(logged.event, "input_id", None) != result.run_id, log)


def _next(session: Session, result: RunResult, log: Sequence[ev.Logged], place: Place) -> list[FooterLine]:
    """Commands that work as they stand."""
    where = f"{session.id}{place.hint}"
    turn = next((row.turn_id for row in turn_rows(log) if row.run_id == result.run_id and row.ended != "in_flight"), "")
    lines = [
        FooterLine("events", f"turnlog log {where}"),
        FooterLine("cost", f"turnlog turns {where}"),
        FooterLine("branch", f"turnlog fork {where}" + (f" --at {turn}" if turn else "")),
        FooterLine("go on", f"turnlog run --session {where}" + ("" if _goes_on(session, result, log) else " -p TEXT")),
    ]
    if session.state.pending:
        lines.append(FooterLine("cancel", f"turnlog cancel {where} && turnlog run --session {where}"))
    return lines


def _goes_on(session: Session, result: RunResult, log: Sequence[ev.Logged]) -> bool:
    """Whether `run --session` needs no prompt: there is work left, and nobody has called it off.

    A runbook that was not interrupted has come to its end, however it ended.
    """
    if session.current_run is not None:
        return True
    if session.state.config.model == PROVIDER:
        left = result.outcome is ev.Outcome.INTERRUPTED
    else:
        left = result.outcome not in (ev.Outcome.COMPLETED, ev.Outcome.CANCELLED)
    called_off = any(
        isinstance(logged.event, ev.InputAccepted) and isinstance(logged.event.content, ev.Cancel)
        for logged in _since(result, log)
    )
    return left and not called_off


def judged(state: SessionState, result: RunResult, log: Sequence[ev.Logged], *, stopped: bool) -> tuple[int, str]:
    """(exit status, the reason for stderr, which may be empty). stopped: the user pressed Ctrl-C."""
    outcome = result.outcome
    if outcome is ev.Outcome.INTERRUPTED or (stopped and outcome is ev.Outcome.CANCELLED):
        return INTERRUPTED, ""
    if outcome is not ev.Outcome.COMPLETED:
        why = _why(result, log)
        return FAILED, f"the run ended as {outcome.value}" + (f": {why}." if why else ".")
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
