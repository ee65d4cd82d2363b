"""Each trace rule finds the log that breaks it, and leaves the right one alone."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from harness import check
from harness import events as ev
from harness.events import Logged
from harness.llm.model import ErrorKind, Usage
from operations import Status
from tests.harness.logs import LogWriter, with_pending

replace = msgspec.structs.replace


def whole() -> LogWriter:
    """A run of three turns: two calls, one of them late, one rejected, an answer."""
    log = LogWriter().says("go", "r1").start().finish(calls=["a", "b", "c"])
    log.pend("a").pend("b").reject("c").end("a")
    log.start(ev.Reason.RESULTS).finish("waiting").end("b")
    return log.start(ev.Reason.RESULTS).finish("done", usage=Usage(input=5)).run_finished()


def numbered(events: list[ev.Event]) -> list[Logged]:
    return [Logged(seq, "2026-01-01T00:00:00.000Z", event) for seq, event in enumerate(events, start=1)]


def broken_rules(events: list[ev.Event]) -> set[int]:
    return {violation.rule for violation in check(numbered(events))}


def of(event_type: type[ev.Event], nth: int = 0) -> Callable[[list[ev.Event]], int]:
    """The index of the nth event of a type."""
    return lambda events: [index for index, event in enumerate(events) if isinstance(event, event_type)][nth]


def without(place: Callable[[list[ev.Event]], int]) -> Callable[[list[ev.Event]], list[ev.Event]]:
    return lambda events: [event for index, event in enumerate(events) if index != place(events)]


def twice(place: Callable[[list[ev.Event]], int]) -> Callable[[list[ev.Event]], list[ev.Event]]:
    return lambda events: [*events[: place(events) + 1], *events[place(events) :]]


def changed(place: Callable[[list[ev.Event]], int], **fields: object) -> Callable[[list[ev.Event]], list[ev.Event]]:
    def change(events: list[ev.Event]) -> list[ev.Event]:
        index = place(events)
        return [*events[:index], replace(events[index], **fields), *events[index + 1 :]]

    return change


BROKEN = [
    (1, "the first event is missing", without(of(ev.SessionOpened))),
    (1, "a session opens twice", twice(of(ev.SessionOpened))),
    (2, "a turn has no end", without(of(ev.TurnFinished, 1))),
    (2, "a turn ends twice", twice(of(ev.TurnFinished, 1))),
    (3, "a call is answered by nothing", without(of(ev.ToolCallRejected))),
    (3, "a call is answered twice", twice(of(ev.ToolCallRejected))),
    (4, "a call is finished twice", twice(of(ev.ToolCallFinished))),
    (4, "a call is finished before its operation", without(of(ev.OperationUpdated, 1))),
    (5, "an operation that nothing announced", changed(of(ev.OperationUpdated, 0), operation_id="op-x")),
    (5, "a step that the table does not have", without(of(ev.OperationUpdated, 0))),
    (6, "an input is accepted twice", twice(of(ev.InputAccepted))),
    (8, "a turn starts without a reason", changed(of(ev.TurnStarted, 1), reason=ev.Reason.HEARTBEAT)),
    (10, "the request had another digest", changed(of(ev.TurnStarted, 1), digest="00" * 16)),
    (11, "a run finishes twice", twice(of(ev.RunFinished))),
    (11, "a turn belongs to no run", changed(of(ev.TurnStarted, 2), run_id="r2")),
    (12, "totals that are not sums", changed(of(ev.RunFinished), usage=Usage(input=6))),
    (12, "turns that are not counted", changed(of(ev.RunFinished), turns=2)),
    (13, "more turns than the limit", changed(of(ev.SessionOpened), policy=ev.Policy(limits=ev.Limits(turns=2)))),
    (15, "an operation goes on after its end", twice(of(ev.OperationUpdated, 1))),
]


def test_a_right_log_breaks_no_rule() -> None:
    assert check(whole().events) == []


@pytest.mark.parametrize(("rule", "what", "spoil"), BROKEN, ids=[f"rule-{rule}: {what}" for rule, what, _ in BROKEN])
def test_a_broken_rule_is_found(rule: int, what: str, spoil: Callable[[list[ev.Event]], list[ev.Event]]) -> None:
    events = [logged.event for logged in whole().events]
    assert rule in broken_rules(spoil(events))


def test_a_gap_in_the_sequence_is_found() -> None:
    log = whole().events
    first = check([*log[:3], *log[4:]])[0]
    assert str(first).startswith("rule 1 at event 5")


def test_a_run_may_not_end_while_calls_are_pending_unless_it_was_interrupted() -> None:
    log = with_pending("a")
    assert check(LogWriter.run_finished(with_pending("a"), ev.Outcome.INTERRUPTED).events) == []
    assert {violation.rule for violation in check(log.run_finished().events)} == {11}


def test_a_fork_has_to_name_the_event_before_it() -> None:
    log = with_pending("a")
    assert check(log.add(ev.SessionForked("parent", log.state.seq)).events) == []
    assert {violation.rule for violation in check(log.add(ev.SessionForked("parent", 3)).events)} == {1}


def test_a_call_that_ends_in_a_branch_as_unknown_keeps_the_rules() -> None:
    log = with_pending("a")
    log.add(ev.SessionForked("parent", log.state.seq))
    assert log.state.foreign == {"op-a"}
    log.add(ev.OperationUpdated("op-a", Status.UNKNOWN, result={"error": "it is the parent's"}))
    assert log.state.foreign == frozenset()
    assert check(log.events) == []


def test_a_run_may_not_fail_over_a_message_that_came_after_its_last_turn() -> None:
    log = LogWriter().says("go", "r1").start().says("and?", "in2")
    log.add(ev.TurnFailed("t1", ErrorKind.CONNECTION, "dropped"))
    (violation,) = check(log.run_finished(ev.Outcome.FAILED).events)
    assert (violation.rule, violation.what) == (7, "the run ends without a turn that read input in2")
    again = LogWriter().says("go", "r1").start().add(ev.TurnFailed("t1", ErrorKind.CONNECTION, "dropped"))
    assert check(again.run_finished(ev.Outcome.FAILED).events) == []
