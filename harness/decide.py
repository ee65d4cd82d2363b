"""The turn rules: what a session does next.  Pure.

Belongs here: every reason to call the model, or not to. No other file decides that.
Must not know: clocks, disks, sockets, providers. `now` comes in as an argument, and the answer is a value.

The numbers in comments are those of the rules in docs/turn-rules.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from harness.coalescing import Running, wait_s
from harness.compaction import can_compact, is_due, what_is_large
from harness.events import Cause, Outcome, Reason, TurnFailed, Wake
from harness.llm.model import ErrorKind, StopReason
from harness.state import Call, Run, SessionState, Undelivered, is_cancelling, open_operations
from harness.transcript import Cut


class Now(msgspec.Struct, frozen=True):
    """The moment of a decision, on a monotonic clock that only the caller reads.

    s: the clock's reading in seconds. landed: for recent events, the reading when each was committed, by sequence
    number. opened_s: the reading when this process opened the session, which stands for everything older.
    run_s: seconds that the current run has taken, earlier processes included.
    """

    s: float = 0.0
    landed: Mapping[int, float] = {}
    opened_s: float = 0.0
    run_s: float = 0.0

    def age_s(self, seq: int) -> float:
        """Seconds since event `seq` was committed, or since the session was opened if that was later."""
        return self.s - self.landed.get(seq, self.opened_s)


class CallModel(msgspec.Struct, frozen=True):
    """Start a turn. limit: the limit that makes it the final answer, for people; empty otherwise."""

    reason: Reason
    limit: str = ""


class InterruptTurn(msgspec.Struct, frozen=True):
    """Cut the turn in flight off."""

    cause: Cause


class Translate(msgspec.Struct, frozen=True):
    """Turn these calls into operations, or, with `refusal`, reject them all with that text."""

    call_ids: tuple[str, ...]
    refusal: str = ""


class FinishCalls(msgspec.Struct, frozen=True):
    """Every operation of these calls has ended: present their results."""

    call_ids: tuple[str, ...]


class CancelOperations(msgspec.Struct, frozen=True):
    """Ask these operations to stop."""

    operation_ids: tuple[str, ...]
    reason: str


class Beat(msgspec.Struct, frozen=True):
    """Accept a heartbeat that lists these running calls."""

    call_ids: tuple[str, ...]


class Compact(msgspec.Struct, frozen=True, gc=False):
    """Start the turn that summarises the older part of the history."""


class FinishCompaction(msgspec.Struct, frozen=True, gc=False):
    """The summary is there: put it in the place of what it summarises."""


class FinishRun(msgspec.Struct, frozen=True):
    """The run is over."""

    outcome: Outcome
    error: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until something happens, or for `for_s` seconds at most."""

    for_s: float | None = None


Action = (
    CallModel
    | InterruptTurn
    | Translate
    | FinishCalls
    | CancelOperations
    | Beat
    | Compact
    | FinishCompaction
    | FinishRun
    | Wait
)

TICK_S: Final = 1e-6
"""Less than this is no time: what rounding leaves of a wait that is over must not become another wait."""

MOST_FRUITLESS: Final = 5
"""Responses in a row that a run may have cut off or paused: a model that always breaks off would cost without end."""

FINAL_ANSWER_MIN_S: Final = 1.0
FINAL_ANSWER_MAX_S: Final = 60.0
"""Seconds that a final answer may take where there is a limit of seconds: time for a page of text."""

CUT_OFF: Final = (
    "this call was not run: your response was cut off at its length limit before the call was certainly complete. "
    "Send it again, shorter."
)


def decide(state: SessionState, now: Now) -> Action:
    """What to do next. Total: every state that `apply` can make has an answer."""
    if state.untranslated:
        return _translate(state, now)
    if ripe := state.ripe:
        return FinishCalls(tuple(call.call_id for call in ripe))
    if state.summary:
        return FinishCompaction()
    run = state.run
    if run is None:
        return _idle(state)
    if run.stop is not None:
        return _stopping(state, run.stop)
    limit = limit_reached(run, now)
    if state.turn is not None:
        return _in_flight(state, run, now, limit)
    if run.failure is not None:
        return _failed(state, run, run.failure, limit, now)
    if run.answered:
        late = "; the final answer did not come in time" if _was_cut(state) else ""
        return FinishRun(Outcome.LIMIT_REACHED, f"the limit of {limit or run.over} is reached{late}")
    action = _next(state, now)
    if limit and not isinstance(action, FinishRun):
        return _limited(state, limit)
    if isinstance(action, CallModel) and is_due(state):
        return Compact()
    return _no_later(action, _seconds_left(run, now))


def accepts_messages(state: SessionState) -> bool:
    """Whether a message may join the session now. If not, it waits in the inbox and starts the next run.

    A run that is being stopped, or that gives its final answer, can do nothing with it: accepted, it would be lost.
    Nor may one start while operations are being cancelled, whose ends it would be told of.
    """
    run, turn = state.run, state.turn
    if run is None:
        return not state.cancel_idle
    final = turn is not None and turn.reason is Reason.FINAL_ANSWER
    return run.stop is None and not run.answered and not final


def _translate(state: SessionState, now: Now) -> Action:
    """Rule 2, unless the response was cut off, or a stop or a limit lets no new work start."""
    ids = tuple(call.call_id for call in state.untranslated)
    if state.last_stop is StopReason.LENGTH:
        return Translate(ids, CUT_OFF)
    run = state.run
    if run is not None and run.stop is not None:
        return Translate(ids, f"not run: the user stopped the work ({run.stop.value})")
    if run is not None and (limit := limit_reached(run, now)):
        return Translate(ids, f"not run: the limit of {limit} is reached")
    return Translate(ids)


def _idle(state: SessionState) -> Action:
    """No run: results are recorded and wait for the next one. Only a cancel has something to do."""
    if state.cancel_idle:
        return _cancel(state, "cancelled by the user") or Wait()
    return Wait()


def _stopping(state: SessionState, cause: Cause) -> Action:
    """Rule 9."""
    if state.turn is not None:
        return InterruptTurn(cause)
    if cause is Cause.INTERRUPT:
        return FinishRun(Outcome.INTERRUPTED, "interrupted")
    if state.pending:
        return _cancel(state, "cancelled by the user") or Wait()
    return FinishRun(Outcome.CANCELLED, "cancelled")


def _cancel(state: SessionState, reason: str) -> CancelOperations | None:
    """Cancel what runs and is not being cancelled yet; None when there is nothing left to ask."""
    ids = tuple(operation.id for operation in open_operations(state) if not is_cancelling(operation))
    return CancelOperations(ids, reason) if ids else None


def _in_flight(state: SessionState, run: Run, now: Now, limit: str) -> Action:
    """Rules 1 and 5: only an input cuts a turn off, or the time limit. The final answer has some time of its own.

    No message cuts off a summary: it would only be told after another one.
    """
    turn = state.turn
    if turn is None:
        return Wait()
    if turn.reason is Reason.FINAL_ANSWER:
        return _answering(run, now)
    if turn.reason is not Reason.COMPACTION and any(
        news.kind is Reason.INPUT and news.seq > turn.seq for news in state.undelivered
    ):
        return InterruptTurn(Cause.INPUT)
    left_s = _seconds_left(run, now)
    if left_s is not None and left_s <= 0:
        return InterruptTurn(Cause.LIMIT)
    return Wait(left_s)


def _failed(state: SessionState, run: Run, failure: TurnFailed, limit: str, now: Now) -> Action:
    """The run ends, but what its operations have under way is not thrown away for a model that cannot be reached."""
    if state.pending:
        if limit:
            return _cancel(state, f"the limit of {limit} is reached") or Wait()
        return Wait(_seconds_left(run, now))
    if failure.error is ErrorKind.CONTEXT_TOO_LONG and can_compact(state) and not limit:
        return Compact()
    line = f"{failure.error.value}: {failure.message}"
    if failure.error is ErrorKind.CONTEXT_TOO_LONG:
        line += f" ({what_is_large(state)})"
    if run.answered:
        return FinishRun(Outcome.LIMIT_REACHED, f"the limit of {limit or run.over} is reached; final answer: {line}")
    blocked = failure.error in (ErrorKind.CONTEXT_TOO_LONG, ErrorKind.CONTENT_REFUSED)
    return FinishRun(Outcome.BLOCKED if blocked else Outcome.FAILED, line)


def _next(state: SessionState, now: Now) -> Action:
    """Rules 1 to 8, for a run with no turn in flight and no limit in its way."""
    kinds = {news.kind for news in state.undelivered}
    if Reason.INPUT in kinds:
        return CallModel(Reason.INPUT)
    if Reason.HEARTBEAT in kinds:
        return CallModel(Reason.HEARTBEAT)
    pending = state.pending
    # One that breaks off again and again is asked again only for what it could not know before.
    run = state.run
    tired = run is not None and run.fruitless >= MOST_FRUITLESS
    if state.last_stop is StopReason.PAUSED and not tired:
        return CallModel(Reason.CONTINUATION)
    if not pending:
        if Reason.RESULTS in kinds:
            return CallModel(Reason.RESULTS)
        if run is not None and tired:
            return FinishRun(Outcome.FAILED, f"the model broke off {run.fruitless} responses in a row")
        return CallModel(Reason.REJECTIONS) if kinds else _said_its_last(state)
    if not tired and _all_rejected(state, pending):
        return CallModel(Reason.REJECTIONS)
    return _while_pending(state, pending, now)


def _said_its_last(state: SessionState) -> Action:
    """Rule 7, told apart by how the last response ended."""
    if state.last_stop is StopReason.REFUSAL:
        return FinishRun(Outcome.BLOCKED, "the model refused to answer")
    if state.last_stop is StopReason.LENGTH:
        return FinishRun(Outcome.FAILED, "the answer was cut off at the model's output limit")
    return FinishRun(Outcome.COMPLETED)


def _all_rejected(state: SessionState, pending: list[Call]) -> bool:
    """Rule 2: nothing of the last response runs, and the model does not know it yet."""
    last = state.last_turn_id
    of_last = {news.kind for news in state.undelivered if news.turn_id == last}
    return of_last == {Reason.REJECTIONS} and all(call.turn_id != last for call in pending)


def _while_pending(state: SessionState, pending: list[Call], now: Now) -> Action:
    """Rules 4, 6 and 8: which completions wake the model, and how long it sleeps otherwise."""
    policy = state.config.policy
    left_s: float | None = None
    waking = _waking(state.undelivered, pending)
    if waking is not None:
        left_s = wait_s(policy, state.pace, now.age_s(waking), _joining(pending, now))
        if left_s <= TICK_S:
            return CallModel(Reason.RESULTS)
    if policy.heartbeat_s > 0:
        beat_s = policy.heartbeat_s - now.age_s(state.seq)
        if beat_s <= TICK_S:
            return Beat(tuple(call.call_id for call in pending))
        left_s = beat_s if left_s is None else min(left_s, beat_s)
    return Wait(left_s)


def _joining(pending: list[Call], now: Now) -> list[list[Running]]:
    """The running calls that could be a reason to call as well: each by itself, those of a batch together."""
    groups: dict[str, list[Running]] = {}
    for call in pending:
        if call.wake is not Wake.QUIET:
            group = call.turn_id if call.wake is Wake.BATCH else call.call_id
            groups.setdefault(group, []).append(Running(call.tool, now.age_s(call.seq)))
    return list(groups.values())


def _waking(undelivered: tuple[Undelivered, ...], pending: list[Call]) -> int | None:
    """The sequence number from which coalescing counts: the first result that is a reason to call; None if none is."""
    open_batches = {call.turn_id for call in pending if call.wake is Wake.BATCH}
    complete: dict[str, int] = {}
    first: int | None = None
    for news in undelivered:
        if news.kind is not Reason.RESULTS or news.wake is Wake.QUIET:
            continue
        if news.wake is Wake.EACH or news.failed:
            since = news.seq
        elif news.turn_id in open_batches:
            continue
        else:
            complete[news.turn_id] = news.seq  # a batch is complete when its last result lands
            continue
        first = since if first is None else min(first, since)
    for since in complete.values():
        first = since if first is None else min(first, since)
    return first


# --- limits (rule 10)


def limit_reached(run: Run, now: Now) -> str:
    """The first limit that leaves no room for another step, for people ("50 turns"); empty when none does."""
    limits = run.limits
    if limits.turns is not None and run.turns >= limits.turns:
        return f"{limits.turns} turns"
    if limits.tokens is not None and run.usage.total + run.largest_step > limits.tokens:
        return f"{limits.tokens} tokens"
    if limits.seconds is not None and now.run_s >= limits.seconds:
        return f"{limits.seconds:g} seconds"
    return run.over


def call_limit_exceeded(run: Run, tool: str) -> str:
    """The limit that one more call of `tool` would go past, for people; empty when there is room."""
    most = run.limits.calls.get(tool)
    return f"{most} calls of {tool}" if most is not None and run.calls.get(tool, 0) >= most else ""


def _limited(state: SessionState, limit: str) -> Action:
    if state.pending:
        return _cancel(state, f"the limit of {limit} is reached") or Wait()
    return CallModel(Reason.FINAL_ANSWER, limit)


def _was_cut(state: SessionState) -> bool:
    """Whether the last turn was cut off at the limit."""
    return any(isinstance(entry, Cut) and entry.turn.cause is Cause.LIMIT for entry in state.fresh)


def _answering(run: Run, now: Now) -> Action:
    """The final answer of a run with a limit of seconds may take a quarter more, within bounds."""
    if run.limits.seconds is None:
        return Wait()
    own_s = min(max(run.limits.seconds / 4, FINAL_ANSWER_MIN_S), FINAL_ANSWER_MAX_S)
    left_s = run.seconds + own_s - now.run_s
    return InterruptTurn(Cause.LIMIT) if left_s <= TICK_S else Wait(left_s)


def _seconds_left(run: Run, now: Now) -> float | None:
    return None if run.limits.seconds is None else run.limits.seconds - now.run_s


def _no_later(action: Action, left_s: float | None) -> Action:
    if not isinstance(action, Wait) or left_s is None:
        return action
    return Wait(left_s if action.for_s is None else min(action.for_s, left_s))
