"""The turn rules, a row a case. Each id cites the rule of docs/turn-rules.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from harness import events as ev
from harness.decide import (
    Action,
    Beat,
    CallModel,
    CancelOperations,
    FinishCalls,
    FinishRun,
    InterruptTurn,
    Now,
    Translate,
    Wait,
    decide,
)
from harness.llm.model import ErrorKind, StopReason, Usage
from harness.state import SessionState
from operations import Status
from tests.harness.logs import LogWriter, with_pending

EACH, BATCH, QUIET = ev.Wake.EACH, ev.Wake.BATCH, ev.Wake.QUIET
FAILED = ev.CallOutcome.FAILED
NO_COALESCING = ev.Policy(coalesce_s=0)
ONE_SECOND = ev.Policy(coalesce_s=1)
THINKING = ev.Policy(coalesce=ev.Coalesce.THINKING, coalesce_share=0.5)
REMEMBERED = ev.Policy(coalesce=ev.Coalesce.REMEMBERED, coalesce_share=0.5)


class Case(NamedTuple):
    id: str
    given: Callable[[], LogWriter]
    then: Action
    now: Now = Now()


def waking(*calls: tuple[str, ev.Wake], ended: str, outcome: ev.CallOutcome = ev.CallOutcome.OK) -> LogWriter:
    """A run whose first turn made these calls, of which `ended` have ended."""
    log = LogWriter(ONE_SECOND).says("go", "r1").start().finish(calls=[call_id for call_id, _ in calls])
    for call_id, wake in calls:
        log.pend(call_id, wake)
    for call_id in ended:
        log.end(call_id, outcome)
    return log


def paced(policy: ev.Policy, thinking_s: float, *took_s: float) -> LogWriter:
    """A run whose turns take so long; its last one called `a` and `b`, of which `a` has ended.

    Earlier calls of the same tool took `took_s`, and `a` as long as the last of them.
    """
    log = LogWriter(policy).says("go", "r1")
    for number, seconds in enumerate(took_s):
        call_id = f"early-{number}"
        log.start().finish(calls=[call_id], seconds=thinking_s).pend(call_id).end(call_id, seconds=seconds)
    log.start().finish(calls=["a", "b"], seconds=thinking_s).pend("a").pend("b")
    return log.end("a", seconds=took_s[-1] if took_s else 1.0)


def limited(limits: ev.Limits) -> LogWriter:
    return LogWriter(ev.Policy(limits=limits)).says("go", "r1")


CASES = [
    Case("rule-0: nothing was ever asked", LogWriter, Wait()),
    Case("rule-1: an input is accepted", lambda: LogWriter().says("go"), CallModel(ev.Reason.INPUT)),
    Case(
        "rule-1: an input is accepted while a turn is in flight",
        lambda: LogWriter().says("go").start().says("stop, do that"),
        InterruptTurn(ev.Cause.INPUT),
    ),
    Case(
        "rule-1: after the interruption the input is the reason",
        lambda: (
            LogWriter().says("go").start().says("stop, do that").add(ev.TurnInterrupted("t1", ev.Cause.INPUT, "I was"))
        ),
        CallModel(ev.Reason.INPUT),
    ),
    Case(
        "rule-2: a turn finishes with calls",
        lambda: LogWriter().says("go").start().finish(calls=["a", "b"]),
        Translate(("a", "b")),
    ),
    Case(
        "rule-2: every call was rejected",
        lambda: LogWriter().says("go").start().finish(calls=["a", "b"]).reject("a").reject("b"),
        CallModel(ev.Reason.REJECTIONS),
    ),
    Case(
        "rule-2: every call was rejected while an older one runs",
        lambda: with_pending("a").says("and?").start().finish(calls=["b"]).reject("b"),
        CallModel(ev.Reason.REJECTIONS),
    ),
    Case(
        "rule-2: one call was rejected and one runs",
        lambda: LogWriter().says("go").start().finish(calls=["a", "b"]).reject("a").pend("b"),
        Wait(600.0),
    ),
    Case(
        "rule-2: calls of a response that was cut off are not run",
        lambda: LogWriter().says("go").start().finish(calls=["a"], stop=StopReason.LENGTH),
        Translate(
            ("a",),
            "this call was not run: your response was cut off at its length limit before the call was certainly "
            "complete. Send it again, shorter.",
        ),
    ),
    Case("rule-3: the only call ends", lambda: with_pending("a").end("a"), CallModel(ev.Reason.RESULTS)),
    Case(
        "rule-4 each: a result waits for others",
        lambda: with_pending("a", "b", policy=ONE_SECOND).end("a"),
        Wait(0.75),
        Now(s=10.25, landed={9: 10.0}, opened_s=10.25),
    ),
    Case(
        "rule-4 each: the wait is over",
        lambda: with_pending("a", "b", policy=ONE_SECOND).end("a"),
        CallModel(ev.Reason.RESULTS),
        Now(s=11.0, landed={9: 10.0}, opened_s=11.0),
    ),
    Case(
        "rule-4 each: without coalescing, at once",
        lambda: with_pending("a", "b", policy=NO_COALESCING).end("a"),
        CallModel(ev.Reason.RESULTS),
    ),
    Case(
        "rule-4 thinking: a share of the model's thinking time",
        lambda: paced(THINKING, 8.0),
        Wait(4.0),
        Now(s=1.0, opened_s=1.0),
    ),
    Case(
        "rule-4 thinking: never longer than half a minute",
        lambda: paced(THINKING, 200.0),
        Wait(30.0),
        Now(s=1.0, opened_s=1.0),
    ),
    Case(
        "rule-4 thinking: no turn has been timed",
        lambda: paced(THINKING, 0.0),
        CallModel(ev.Reason.RESULTS),
    ),
    Case(
        "rule-4 remembered: nothing is known of the tool",
        lambda: paced(REMEMBERED, 8.0),
        Wait(4.0),
        Now(s=1.0, opened_s=1.0),
    ),
    Case(
        "rule-4 remembered: calls of this tool take far longer",
        lambda: paced(REMEMBERED, 8.0, 60.0, 70.0, 80.0),
        CallModel(ev.Reason.RESULTS),
        Now(s=1.0, opened_s=1.0),
    ),
    Case(
        "rule-4 remembered: calls of this tool take far longer, but this one has been running for long",
        lambda: paced(REMEMBERED, 8.0, 60.0, 62.0, 61.0),
        Wait(4.0),
        Now(s=59.0, landed={24: 0.0, 27: 59.0}, opened_s=59.0),
    ),
    Case("rule-4 batch: one of two has ended", lambda: waking(("a", BATCH), ("b", BATCH), ended="a"), Wait(600.0)),
    Case(
        "rule-4 batch: the first that fails counts as an each",
        lambda: waking(("a", BATCH), ("b", BATCH), ended="a", outcome=FAILED),
        CallModel(ev.Reason.RESULTS),
        Now(s=1.0),
    ),
    Case(
        "rule-4 batch: the batch is complete, another call runs",
        lambda: waking(("a", BATCH), ("b", BATCH), ("c", QUIET), ended="ab"),
        CallModel(ev.Reason.RESULTS),
        Now(s=1.0),
    ),
    Case(
        "rule-4 batch: coalescing counts from the result that completed the batch",
        lambda: waking(("a", BATCH), ("b", BATCH), ("c", QUIET), ended="ab"),
        Wait(0.5),
        Now(s=20.5, landed={10: 0.0, 13: 20.0}, opened_s=20.5),
    ),
    Case("rule-4 quiet: never a reason", lambda: waking(("a", QUIET), ("b", EACH), ended="a"), Wait(600.0)),
    Case(
        "rule-4 quiet: delivered when nothing else is pending",
        lambda: waking(("a", QUIET), ("b", QUIET), ended="ab"),
        CallModel(ev.Reason.RESULTS),
    ),
    Case(
        "rule-5: a result does not interrupt a turn",
        lambda: with_pending("a", "b").says("and?").start().end("a").end("b"),
        Wait(),
    ),
    Case(
        "rule-5: it is delivered as soon as the turn finishes",
        lambda: with_pending("a").says("and?").start().end("a").finish("let us see"),
        CallModel(ev.Reason.RESULTS),
    ),
    Case(
        "rule-6: the model has nothing to say while a call is pending",
        lambda: with_pending("a").says("and?").start().finish("waiting"),
        Wait(600.0),
    ),
    Case("rule-7: the answer", lambda: LogWriter().says("go").start().finish("done"), FinishRun(ev.Outcome.COMPLETED)),
    Case(
        "rule-7: a refusal",
        lambda: LogWriter().says("go").start().finish("no", stop=StopReason.REFUSAL),
        FinishRun(ev.Outcome.BLOCKED, "the model refused to answer"),
    ),
    Case(
        "rule-7: an answer that was cut off is not complete",
        lambda: LogWriter().says("go").start().finish("because", stop=StopReason.LENGTH),
        FinishRun(ev.Outcome.FAILED, "the answer was cut off at the model's output limit"),
    ),
    Case(
        "rule-7: a paused response goes on",
        lambda: LogWriter().says("go").start().finish("well", stop=StopReason.PAUSED),
        CallModel(ev.Reason.CONTINUATION),
    ),
    Case(
        "rule-7: a turn that failed for good",
        lambda: LogWriter().says("go").start().add(ev.TurnFailed("t1", ErrorKind.AUTHENTICATION, "bad key")),
        FinishRun(ev.Outcome.FAILED, "authentication: bad key"),
    ),
    Case(
        "rule-1: a turn that failed after something new was said",
        lambda: LogWriter().says("go").start().says("and?").add(ev.TurnFailed("t1", ErrorKind.CONNECTION, "dropped")),
        CallModel(ev.Reason.INPUT),
    ),
    Case(
        "rule-7: a turn that failed while a command runs",
        lambda: with_pending("a").says("and?").start().add(ev.TurnFailed("t2", ErrorKind.SERVER_ERROR, "500")),
        Wait(),
    ),
    Case("rule-8: silence", lambda: with_pending("a"), Beat(("a",)), Now(s=600.0)),
    Case("rule-8: silence, but not yet", lambda: with_pending("a"), Wait(1.0), Now(s=599.0)),
    Case("rule-8: turned off", lambda: with_pending("a", policy=ev.Policy(heartbeat_s=0)), Wait(), Now(s=1e6)),
    Case(
        "rule-8: the heartbeat calls the model",
        lambda: with_pending("a").control(ev.Heartbeat(("a",), 600.0)),
        CallModel(ev.Reason.HEARTBEAT),
    ),
    Case(
        "rule-9: an interrupt cuts the turn",
        lambda: LogWriter().says("go").start().control(ev.Interrupt()),
        InterruptTurn(ev.Cause.INTERRUPT),
    ),
    Case(
        "rule-9: an interrupt leaves operations running",
        lambda: with_pending("a").control(ev.Interrupt()),
        FinishRun(ev.Outcome.INTERRUPTED, "interrupted"),
    ),
    Case(
        "rule-9: after an interrupted run results wait for the next one",
        lambda: with_pending("a").control(ev.Interrupt()).run_finished(ev.Outcome.INTERRUPTED).end("a"),
        Wait(),
    ),
    Case(
        "rule-9: a cancel stops operations",
        lambda: with_pending("a", "b").control(ev.Cancel()),
        CancelOperations(("op-a", "op-b"), "cancelled by the user"),
    ),
    Case(
        "rule-9: a cancel waits for each to end",
        lambda: (
            with_pending("a")
            .control(ev.Cancel())
            .add(ev.OperationUpdated("op-a", Status.RUNNING), ev.OperationUpdated("op-a", Status.CANCELLING))
        ),
        Wait(),
    ),
    Case(
        "rule-9: a cancel is over",
        lambda: with_pending("a").control(ev.Cancel()).end("a", ev.CallOutcome.CANCELLED),
        FinishRun(ev.Outcome.CANCELLED, "cancelled"),
    ),
    Case(
        "rule-9: a cancel while idle stops what an interrupted run left",
        lambda: with_pending("a").control(ev.Interrupt()).run_finished(ev.Outcome.INTERRUPTED).control(ev.Cancel()),
        CancelOperations(("op-a",), "cancelled by the user"),
    ),
    Case(
        "rule-10 turns: no new work starts",
        lambda: limited(ev.Limits(turns=1)).start().finish(calls=["a"]),
        Translate(("a",), "not run: the limit of 1 turns is reached"),
    ),
    Case(
        "rule-10 turns: one last call",
        lambda: limited(ev.Limits(turns=1)).start().finish(calls=["a"]).reject("a"),
        CallModel(ev.Reason.FINAL_ANSWER, "1 turns"),
    ),
    Case(
        "rule-10 turns: an answer in the last turn is an answer",
        lambda: limited(ev.Limits(turns=1)).start().finish("done"),
        FinishRun(ev.Outcome.COMPLETED),
    ),
    Case(
        "rule-10 turns: pending work is cancelled first",
        lambda: limited(ev.Limits(turns=2)).start().finish(calls=["a"]).pend("a").says("and?").start().finish("hm"),
        CancelOperations(("op-a",), "the limit of 2 turns is reached"),
    ),
    Case(
        "rule-10 tokens: room is kept for a step as large as the largest",
        lambda: limited(ev.Limits(tokens=100)).start().finish(calls=["a"], usage=Usage(input=51)),
        Translate(("a",), "not run: the limit of 100 tokens is reached"),
    ),
    Case(
        "rule-10 seconds: a turn in flight is cut off",
        lambda: limited(ev.Limits(seconds=5)).start(),
        InterruptTurn(ev.Cause.LIMIT),
        Now(run_s=5.0),
    ),
    Case(
        "rule-10 seconds: the wait ends with the time",
        lambda: limited(ev.Limits(seconds=5)).start().finish(calls=["a"]).pend("a"),
        Wait(2.0),
        Now(run_s=3.0),
    ),
    Case(
        "rule-10 calls: the limit that a call went past",
        lambda: limited(ev.Limits(calls={"bash": 0})).start().finish(calls=["a"]).reject("a", "0 calls of bash"),
        CallModel(ev.Reason.FINAL_ANSWER, "0 calls of bash"),
    ),
    Case(
        "rule-10: after the final answer",
        lambda: (
            limited(ev.Limits(turns=1))
            .start()
            .finish(calls=["a"])
            .reject("a")
            .start(ev.Reason.FINAL_ANSWER, limit="1 turns")
            .finish("so far")
        ),
        FinishRun(ev.Outcome.LIMIT_REACHED, "the limit of 1 turns is reached"),
    ),
    Case(
        "calls all of whose operations have ended are presented",
        lambda: with_pending("a").add(
            ev.OperationUpdated("op-a", Status.RUNNING), ev.OperationUpdated("op-a", Status.COMPLETED, result={})
        ),
        FinishCalls(("a",)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_turn_rules(case: Case) -> None:
    log = case.given()
    assert decide(log.state, case.now) == case.then


def test_deciding_changes_nothing() -> None:
    state = with_pending("a", "b").end("a").state
    before = repr(state)
    decide(state, Now())
    assert repr(state) == before
    assert isinstance(state, SessionState)
