"""What a session cost, counted from its log: turns, tokens, calls, time.  Pure.

Belongs here: one row a turn, the totals, and which turns were overhead.
Must not know: how figures are shown, or anything that is not in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from harness import events as ev
from harness.llm.model import Text, ToolCall, Usage


class TurnRow(msgspec.Struct, frozen=True):
    """One turn. ended: finished, interrupted, failed, or in_flight. calls: names of the tools that it called, in order.

    usage: failed attempts included. seconds: from request to end; None while in flight. text: what it said.
    pending: calls that were running when it ended.
    overhead: the turn brought neither work nor words for a person, see `turn_rows`.
    """

    turn_id: str
    seq: int
    run_id: str
    reason: ev.Reason
    ended: str = "in_flight"
    calls: tuple[str, ...] = ()
    usage: Usage = Usage()
    seconds: float | None = None
    attempts: int = 1
    items: int = 0
    text: str = ""
    pending: int = 0
    overhead: bool = False


class Metrics(msgspec.Struct, frozen=True):
    """Totals over a session, or over one run of it.

    turns: model requests. overhead_turns: see `turn_rows`. calls: tool calls that started or were rejected.
    inherited: calls of earlier runs whose results were read in these. call_s: the calls' own seconds, added up.
    elapsed_s: the seconds of all runs that have ended. blocking_turns: what a loop would have used that makes one call
    a turn and waits for it, see `metrics`.
    """

    runs: int = 0
    turns: int = 0
    overhead_turns: int = 0
    calls: int = 0
    inherited: int = 0
    usage: Usage = Usage()
    call_s: float = 0.0
    elapsed_s: float = 0.0
    blocking_turns: int = 0


def turn_rows(events: Iterable[ev.Logged]) -> list[TurnRow]:
    """A row for each turn of a log, in order.

    Overhead is a finished turn that is not the last of its run, made no tool call, and told nobody anything: it said
    nothing, or it only said something while calls were pending although no person had asked (its reason is not input).
    That is what polling looks like in a log: a whole transcript was sent to hear "still waiting". A turn that
    summarises the history (its reason is compaction) is not: what it says makes every later request smaller.
    """
    log = list(events)
    last_of_run = _last_turns(log)
    rows: list[TurnRow] = []
    pending: set[str] = set()
    for logged in log:
        match logged.event:
            case ev.TurnStarted() as event:
                rows.append(TurnRow(event.turn_id, logged.seq, event.run_id, event.reason, items=event.items))
            case ev.TurnFinished() | ev.TurnInterrupted() | ev.TurnFailed() as event if rows:
                rows[-1] = _ended(rows[-1], event, len(pending), is_last=event.turn_id in last_of_run)
            case ev.ToolCallPending() as event:
                pending.add(event.call_id)
            case ev.ToolCallFinished() as event:
                pending.discard(event.call_id)
            case _:
                pass
    return rows


def _last_turns(log: Iterable[ev.Logged]) -> set[str]:
    """The last turn of each run. That of a run that is going on counts: nothing has shown yet that it was idle talk."""
    last: dict[str, str] = {}
    for logged in log:
        if isinstance(logged.event, ev.TurnStarted):
            last[logged.event.run_id] = logged.event.turn_id
    return set(last.values())


def _ended(
    row: TurnRow, event: ev.TurnFinished | ev.TurnInterrupted | ev.TurnFailed, pending: int, *, is_last: bool
) -> TurnRow:
    row = msgspec.structs.replace(row, ended=event.kind().removeprefix("turn_"), seconds=event.seconds, pending=pending)
    match event:
        case ev.TurnFinished():
            text = "".join(item.text for item in event.output if isinstance(item, Text))
            calls = tuple(item.name for item in event.output if isinstance(item, ToolCall))
            told_nobody = not text.strip() or (pending > 0 and row.reason is not ev.Reason.INPUT)
            idle = not calls and not is_last and row.reason is not ev.Reason.COMPACTION
            return msgspec.structs.replace(
                row,
                calls=calls,
                text=text,
                usage=event.cost,
                attempts=event.attempts,
                overhead=idle and told_nobody,
            )
        case ev.TurnInterrupted():
            return msgspec.structs.replace(row, text=event.text)
        case ev.TurnFailed():
            return msgspec.structs.replace(row, attempts=event.attempts, usage=event.lost)


def metrics(events: Iterable[ev.Logged], *, run_id: str | None = None) -> Metrics:
    """The totals of a whole log, or of its run `run_id` alone; `events` are the whole log in both cases.

    A call belongs to the run in which it was made, also when its result came after that run's end.

    The loop that blocks is counted on the same work: it reads each result in a turn of its own, in the run in which it
    was read here, and the input of each run in one more. A turn that was cut off, failed or lost, and one that
    summarised or went on with a response that broke off, it would have had as well. So the two compare for every run,
    also one that was interrupted, resumed, or heard of what an earlier one had started.
    """
    log = list(events)
    rows = [row for row in turn_rows(log) if run_id in (None, row.run_id)]
    turn_ids = {row.turn_id for row in rows}
    runs = {row.run_id for row in rows}
    made: set[str] = set()
    call_s = elapsed_s = 0.0
    for logged in log:
        match logged.event:
            case (ev.ToolCallPending() | ev.ToolCallRejected()) as event if event.turn_id in turn_ids:
                made.add(event.call_id)
            case ev.ToolCallFinished() as event if event.call_id in made:
                call_s += event.seconds or 0.0
            case ev.RunFinished() as event if event.run_id in runs:
                elapsed_s += event.seconds
            case _:
                pass
    read = [call_id for reader, call_id in _results_read(log) if reader in runs]
    other = [row for row in rows if row.ended in ("interrupted", "failed") or row.reason in _OF_ANY_LOOP]
    heard = {row.run_id for row in rows if row.ended == "finished" and row not in other}
    return Metrics(
        runs=len(runs),
        turns=len(rows),
        overhead_turns=sum(row.overhead for row in rows),
        calls=len(made),
        inherited=sum(call_id not in made for call_id in read),
        usage=sum((row.usage for row in rows), Usage()),
        call_s=round(call_s, 3),
        elapsed_s=round(elapsed_s, 3),
        blocking_turns=len(heard) + len(read) + len(other),
    )


_OF_ANY_LOOP: Final = (ev.Reason.COMPACTION, ev.Reason.CONTINUATION)


def _results_read(log: Iterable[ev.Logged]) -> Iterator[tuple[str, str]]:
    """(run, call) for each result, with the run whose finished turn was the first to have it in its request."""
    landed: list[str] = []
    shown: list[str] = []
    reader: str | None = None
    for logged in log:
        match logged.event:
            case (ev.ToolCallFinished() | ev.ToolCallRejected()) as event:
                landed.append(event.call_id)
            case ev.TurnStarted() as event:
                reader = None if event.reason is ev.Reason.COMPACTION else event.run_id
                shown = list(landed)
            case ev.TurnFinished() if reader is not None:
                yield from ((reader, call_id) for call_id in shown)
                landed = landed[len(shown) :]
            case _:
                pass
