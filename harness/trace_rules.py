"""The trace rules: what holds for every log, whatever the model chose and whatever crashed.  Pure.

Belongs here: finding the places where a log breaks a rule of docs/trace-rules.md.
Must not know: how the log came about. Everything is counted again from the events; only rules 7, 9 and 10 ask the fold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from harness import events as ev
from harness.context import item_digest, rebuilt
from harness.folding import DoesNotFit, apply
from harness.llm.model import AssistantItem, Item, Text, ToolCall, ToolResultItem, Usage, UserItem
from harness.state import SessionState
from operations import TERMINAL, TRANSITIONS, OperationSpec, Status


class Violation(msgspec.Struct, frozen=True):
    """A rule that a log breaks, and where."""

    rule: int
    seq: int
    what: str

    def __str__(self) -> str:
        return f"rule {self.rule} at event {self.seq}: {self.what}"


def check(events: Iterable[ev.Logged]) -> list[Violation]:
    """Every place where the log breaks a trace rule, in order; empty for a log that is right.

    Rules 15 (across processes) and 16 are seen here as far as one log shows them; `turnlog verify` has the rest.
    """
    log = list(events)
    found = [violation for rule in _RULES for violation in rule(log)]
    if not any(violation.rule == 1 for violation in found):
        found.extend(_folded(log))
    return sorted(found, key=lambda violation: (violation.seq, violation.rule))


Rule = Callable[[Sequence[ev.Logged]], list[Violation]]


def _rule_1(log: Sequence[ev.Logged]) -> list[Violation]:
    found: list[Violation] = []
    for position, logged in enumerate(log, start=1):
        if logged.seq != position:
            return [*found, Violation(1, logged.seq, f"event {position} was expected")]
        event = logged.event
        if isinstance(event, ev.SessionOpened) != (position == 1):
            found.append(Violation(1, position, "session_opened has to be the first event of a root, and only that"))
        if isinstance(event, ev.SessionForked) and event.parent_seq != position - 1:
            found.append(Violation(1, position, f"session_forked names event {event.parent_seq} of its parent"))
    return found


def _rule_2(log: Sequence[ev.Logged]) -> list[Violation]:
    found, open_turn, seen = [], "", set[str]()
    for logged in log:
        match logged.event:
            case ev.TurnStarted(turn_id=turn_id):
                if open_turn:
                    found.append(Violation(2, logged.seq, f"{turn_id} starts while {open_turn} is in flight"))
                if turn_id in seen:
                    found.append(Violation(2, logged.seq, f"{turn_id} starts twice"))
                seen.add(turn_id)
                open_turn = turn_id
            case ev.TurnFinished() | ev.TurnInterrupted() | ev.TurnFailed() as end:
                if end.turn_id != open_turn:
                    found.append(
                        Violation(2, logged.seq, f"{end.turn_id} ends but {open_turn or 'no turn'} is in flight")
                    )
                open_turn = ""
            case _:
                pass
    return found


def _rules_3_to_5(log: Sequence[ev.Logged]) -> list[Violation]:
    return _Calls().walk(log)


class _Calls:
    """Rules 3, 4, 5, 11 (pending calls) and 15, which all follow calls and their operations through the log."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self.unanswered: dict[str, int] = {}
        self.pending: dict[str, tuple[str, ...]] = {}
        self.known: set[str] = set()
        self.status: dict[str, Status] = {}
        self.specs: dict[str, OperationSpec] = {}

    def walk(self, log: Sequence[ev.Logged]) -> list[Violation]:
        for logged in log:
            self._event(logged.seq, logged.event)
        return self.found

    def _broken(self, rule: int, seq: int, what: str) -> None:
        self.found.append(Violation(rule, seq, what))

    def _event(self, seq: int, event: ev.Event) -> None:
        match event:
            case ev.TurnFinished():
                for item in event.output:
                    if isinstance(item, ToolCall):
                        self._requested(seq, item.call_id)
            case ev.TurnStarted():
                for call_id in self.unanswered:
                    self._broken(3, seq, f"call {call_id} is neither pending nor rejected when {event.turn_id} starts")
                self.unanswered.clear()
            case ev.ToolCallPending():
                self._answered(seq, event.call_id)
                self._announced(seq, event)
            case ev.ToolCallRejected():
                self._answered(seq, event.call_id)
            case ev.OperationUpdated():
                self._updated(seq, event)
            case ev.ToolCallFinished():
                self._finished(seq, event.call_id)
            case ev.RunFinished() if event.outcome is not ev.Outcome.INTERRUPTED and self.pending:
                self._broken(11, seq, f"the run ends while calls are pending: {', '.join(self.pending)}")
            case _:
                pass

    def _requested(self, seq: int, call_id: str) -> None:
        if call_id in self.known:
            self._broken(3, seq, f"call {call_id} is made twice")
        self.known.add(call_id)
        self.unanswered[call_id] = seq

    def _answered(self, seq: int, call_id: str) -> None:
        if self.unanswered.pop(call_id, None) is None:
            self._broken(3, seq, f"call {call_id} is answered twice, or was never made")

    def _announced(self, seq: int, event: ev.ToolCallPending) -> None:
        self.pending[event.call_id] = tuple(operation.id for operation in event.operations)
        if not event.operations:
            self._broken(4, seq, f"call {event.call_id} has no operation")
        for operation in event.operations:
            if operation.id in self.status:
                self._broken(5, seq, f"operation {operation.id} is announced twice")
            self.status[operation.id] = operation.status
            self.specs[operation.id] = operation.spec

    def _updated(self, seq: int, event: ev.OperationUpdated) -> None:
        before = self.status.get(event.operation_id)
        if before is None:
            self._broken(5, seq, f"operation {event.operation_id} was never announced")
            return
        if before in TERMINAL:
            self._broken(15, seq, f"operation {event.operation_id} goes on after it was {before.value}")
        elif event.status not in TRANSITIONS[before]:
            step = f"{before.value} to {event.status.value}"
            self._broken(5, seq, f"operation {event.operation_id} may not go from {step}")
        self.status[event.operation_id] = event.status

    def _finished(self, seq: int, call_id: str) -> None:
        operations = self.pending.pop(call_id, None)
        if operations is None:
            self._broken(4, seq, f"call {call_id} is finished twice, or was not pending")
            return
        for operation in operations:
            if self.status[operation] not in TERMINAL:
                self._broken(4, seq, f"call {call_id} is finished while operation {operation} is not")


def _rule_6(log: Sequence[ev.Logged]) -> list[Violation]:
    found, seen = [], set[str]()
    for logged in log:
        if isinstance(logged.event, ev.InputAccepted):
            if logged.event.input_id in seen:
                found.append(Violation(6, logged.seq, f"input {logged.event.input_id} is accepted twice"))
            seen.add(logged.event.input_id)
    return found


class _RunTally(msgspec.Struct):
    run_id: str
    limits: ev.Limits
    turns: int = 0
    usage: Usage = Usage()
    largest: int = 0
    final: bool = False
    unheard: str = ""  # the last message, until a turn that reads it starts
    untried: str = ""  # the last message, until any turn starts, which may have failed


def _rules_11_to_13(log: Sequence[ev.Logged]) -> list[Violation]:
    found: list[Violation] = []
    tally: _RunTally | None = None
    finished: set[str] = set()
    limits = ev.Limits()
    for logged in log:
        seq, event = logged.seq, logged.event
        match event:
            case ev.SessionOpened():
                limits = event.policy.limits
            case ev.InputAccepted(content=ev.Settings(policy=policy)) if policy is not None:
                limits = policy.limits
            case ev.InputAccepted(content=ev.Message() as message):
                tally = tally or _RunTally(event.input_id, limits.narrowed(message.limits))
                tally.unheard = tally.untried = event.input_id
            case ev.TurnStarted():
                if tally is None or event.run_id != tally.run_id:
                    found.append(Violation(11, seq, f"{event.turn_id} belongs to no run that is going on"))
                else:
                    found.extend(_limits_hold(seq, event, tally))
                    tally.turns += 1
                    tally.unheard = tally.unheard if event.reason is ev.Reason.COMPACTION else ""
                    tally.untried = ""
            case ev.TurnFinished() if tally is not None:
                tally.usage += event.cost
                tally.largest = max(tally.largest, event.usage.total)
            case ev.TurnFailed() if tally is not None:
                tally.usage += event.lost
            case ev.RunFinished():
                found.extend(_run_ends_well(seq, event, tally, finished))
                finished.add(event.run_id)
                tally = None
            case _:
                pass
    return found


def _limits_hold(seq: int, event: ev.TurnStarted, tally: _RunTally) -> list[Violation]:
    limits = tally.limits
    if event.reason is ev.Reason.FINAL_ANSWER:
        tally.final = True  # asked for again when a crash lost it
        return []
    if tally.final:
        return [Violation(13, seq, "a turn starts after the final answer was asked for")]
    if limits.turns is not None and tally.turns >= limits.turns:
        return [Violation(13, seq, f"turn {tally.turns + 1} of a run that may have {limits.turns}")]
    if limits.tokens is not None and tally.usage.total + tally.largest > limits.tokens:
        return [Violation(13, seq, f"a turn starts with {tally.usage.total} of {limits.tokens} tokens used")]
    if limits.seconds is not None and event.run_s > limits.seconds:
        return [Violation(13, seq, f"a turn starts {event.run_s} s into a run of {limits.seconds} s")]
    return []


def _run_ends_well(seq: int, event: ev.RunFinished, tally: _RunTally | None, finished: set[str]) -> list[Violation]:
    if tally is None or tally.run_id != event.run_id or event.run_id in finished:
        return [Violation(11, seq, f"run {event.run_id} ends but is not going on")]
    if (event.turns, event.usage) != (tally.turns, tally.usage):
        return [Violation(12, seq, f"run {event.run_id} has totals that are not the sums of its turns")]
    stopped = event.outcome in (ev.Outcome.INTERRUPTED, ev.Outcome.CANCELLED)
    answered = event.outcome in (ev.Outcome.COMPLETED, ev.Outcome.LIMIT_REACHED)
    if unread := tally.unheard if answered else "" if stopped else tally.untried:
        return [Violation(7, seq, f"the run ends without a turn that read input {unread}")]
    return []


_RULES: Final[tuple[Rule, ...]] = (_rule_1, _rule_2, _rules_3_to_5, _rule_6, _rules_11_to_13)


# --- rules that need the state


def _folded(log: Sequence[ev.Logged]) -> list[Violation]:
    """Rules 7, 8, 9, 10 and 14, by folding the log and building each request again."""
    found: list[Violation] = []
    state = SessionState()
    sent: list[Item] = []
    known = 0  # items that an earlier comparison has covered; the digests cover them ever after
    news = _News()
    for logged in log:
        seq, event = logged.seq, logged.event
        if isinstance(event, ev.TurnStarted):
            items, violations = _turn_is_right(seq, event, state, sent, known)
            found.extend(violations)
            if event.reason is not ev.Reason.COMPACTION:
                found.extend(Violation(7, seq, what) for what in news.missing_in(items[len(sent) :]))
                known, sent, news = len(sent), items, _News()
        news.note(event)
        try:
            state = apply(state, logged)
        except DoesNotFit as error:
            return [*found, Violation(5, seq, str(error))]
        if isinstance(event, ev.ContextCompacted):
            found.extend(_compacted_well(seq, state))
            known, sent = 0, list(state.sent.items)
        if isinstance(event, ev.TurnFinished | ev.TurnFailed):  # a failed one may have taken out what was refused
            sent = list(state.sent.items)
    return found


class _News:
    """What a log accepted or finished since the last turn started, counted without the fold."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.calls: list[str] = []

    def note(self, event: ev.Event) -> None:
        match event:
            case ev.InputAccepted(content=ev.Message() as message):
                self.messages.append(message.text)
            case ev.ToolCallFinished() | ev.ToolCallRejected():
                self.calls.append(event.call_id)
            case _:
                pass

    def missing_in(self, new: Sequence[Item]) -> list[str]:
        """What the new items of the next request do not show exactly once."""
        said = _texts(new)
        answers = [item.call_id for item in new if isinstance(item, ToolResultItem)]
        found = [
            f"the message {text[:40]!r} is in the request {said.count(text)} times"
            for text in self.messages
            if text.strip() and said.count(text) != self.messages.count(text)
        ]
        for call_id in self.calls:
            times = answers.count(call_id) + sum(text.startswith(f"Result of call {call_id} ") for text in said)
            if times != 1:
                found.append(f"the result of call {call_id} is in the request {times} times")
        return found


def _texts(items: Iterable[Item]) -> list[str]:
    return [part.text for item in items if isinstance(item, UserItem) for part in item.parts if isinstance(part, Text)]


def _compacted_well(seq: int, state: SessionState) -> list[Violation]:
    """Rule 14: what is left pairs, and every pending call that a request has shown is still there."""
    items = list(state.sent.items)
    due = list(state.unanswered)
    found = [Violation(14, seq, what) for what in unpaired(items) if not due]
    text = " ".join(_texts(items))
    shown = {item.call_id for item in items if isinstance(item, ToolResultItem)}
    dropped = [call for call in state.pending if call.shown and call.call_id not in shown and call.call_id not in text]
    return [*found, *(Violation(14, seq, f"pending call {call.call_id} was dropped") for call in dropped)]


def _turn_is_right(
    seq: int, event: ev.TurnStarted, state: SessionState, sent: list[Item], known: int
) -> tuple[list[Item], list[Violation]]:
    found = []
    built = rebuilt(state, event)
    items = list(built.request.items)
    if event.reason is not ev.Reason.COMPACTION and items[known : len(sent)] != sent[known:]:
        found.append(Violation(7, seq, "what an earlier request had is not the prefix of this one"))
    if not _has_reason(event, state):
        found.append(Violation(8, seq, f"{event.turn_id} starts for {event.reason.value}, but nothing is new"))
    found.extend(Violation(9, seq, what) for what in unpaired(items))
    if built.digest != event.digest or tuple(map(item_digest, built.new)) != event.new_items:
        found.append(Violation(10, seq, f"the request of {event.turn_id} has another digest today"))
    return items, found


def _has_reason(event: ev.TurnStarted, state: SessionState) -> bool:
    if event.reason is ev.Reason.FINAL_ANSWER:
        return bool(event.limit)
    if event.reason is ev.Reason.COMPACTION:
        return not state.compacted
    if event.reason is ev.Reason.CONTINUATION:
        return state.last_stop is not None and state.last_stop.value == "paused"
    return any(news.kind is event.reason for news in state.undelivered)


def unpaired(items: Iterable[Item]) -> list[str]:
    """Where items break the pairing that `harness.llm.model` promises; empty when every call has its one result."""
    found: list[str] = []
    expected: list[str] = []
    for index, item in enumerate(items):
        if isinstance(item, ToolResultItem):
            if not expected or expected.pop(0) != item.call_id:
                found.append(f"item {index} is a result of call {item.call_id}, which was not due")
            continue
        if expected:
            found.append(f"item {index} comes before the results of {', '.join(expected)}")
            expected = []
        if isinstance(item, AssistantItem):
            expected = [part.call_id for part in item.output if isinstance(part, ToolCall)]
    if expected:
        found.append(f"the request ends without the results of {', '.join(expected)}")
    return found
