"""The figures, counted from logs made by hand."""

from __future__ import annotations

from harness.events import (
    Cause,
    Interrupt,
    Logged,
    Outcome,
    Reason,
    TurnFailed,
    TurnFinished,
    TurnInterrupted,
    TurnStarted,
)
from harness.llm.model import ErrorKind, StopReason, Text, Usage
from harness.metrics import metrics, turn_rows
from tests.harness.logs import LogWriter


def test_a_turn_that_only_waits_is_overhead_and_an_answer_to_a_person_is_not() -> None:
    log = LogWriter().says("go", "r1").start().finish(calls=["a", "b", "c"]).pend("a").pend("b").pend("c")
    log.end("a").start(Reason.RESULTS).finish("still waiting")
    log.says("how is it going?").start().finish("fine, b is next")
    log.end("b").start(Reason.RESULTS).finish()
    log.end("c").start(Reason.RESULTS).finish("done").run_finished()
    rows = turn_rows(log.events)
    assert [(row.turn_id, row.overhead, row.pending) for row in rows] == [
        ("t1", False, 0),
        ("t2", True, 2),
        ("t3", False, 2),
        ("t4", True, 1),
        ("t5", False, 0),
    ]
    told = metrics(log.events)
    assert (told.turns, told.overhead_turns, told.calls, told.runs, told.blocking_turns) == (5, 2, 3, 1, 4)


def test_unknown_tokens_stay_unknown_and_known_ones_add_up() -> None:
    log = LogWriter().says("go").start().finish(calls=["a"]).reject("a")
    log.start(Reason.REJECTIONS).finish("done", usage=Usage(input=10, output=2)).run_finished()
    assert [row.usage.input for row in turn_rows(log.events)] == [None, 10]
    told = metrics(log.events)
    assert (told.usage.input, told.usage.cached, told.calls, told.blocking_turns) == (10, None, 1, 2)


def test_each_run_has_its_own_figures_and_turns_in_flight_are_shown() -> None:
    log = LogWriter().says("one", "r1").start().finish("1").run_finished()
    log.says("two", "r2").start().add(TurnInterrupted("t2", Cause.INPUT, "half")).start()
    assert [(row.run_id, row.ended, row.seconds) for row in turn_rows(log.events)] == [
        ("r1", "finished", 0.0),
        ("r2", "interrupted", 0.0),
        ("r2", "in_flight", None),
    ]
    assert (metrics(log.events, run_id="r2").turns, metrics(log.events).turns) == (2, 3)
    assert metrics([]).turns == 0 and turn_rows([]) == []


def test_failed_attempts_cost_too_and_a_summary_is_no_overhead() -> None:
    lost = TurnFinished("t1", (Text("a summary"),), StopReason.END, Usage(input=10), lost=Usage(input=4))
    started = TurnStarted("t1", "r1", "test", Reason.COMPACTION, "", (), 1, 1)
    later = TurnStarted("t2", "r1", "test", Reason.RESULTS, "", (), 1, 1)
    failed = TurnFailed("t2", ErrorKind.OVERLOADED, "busy", lost=Usage(input=1))
    log = [Logged(seq, "", event) for seq, event in enumerate((started, lost, later, failed), start=1)]
    assert [(row.usage.input, row.overhead, row.ended) for row in turn_rows(log)] == [
        (14, False, "finished"),
        (1, False, "failed"),
    ]


def test_a_result_counts_for_the_run_that_reads_it_however_often_the_work_was_stopped() -> None:
    log = LogWriter().says("go", "r1").start().finish(calls=["a", "b"]).pend("a").pend("b")
    log.control(Interrupt()).run_finished(Outcome.INTERRUPTED)
    log.end("a")  # between two runs: the next one reads it
    log.says("go on", "r2").start().finish("waiting")
    log.end("b").start(Reason.RESULTS).add(TurnInterrupted("t3", Cause.LOST)).start(Reason.RESULTS).finish("done")
    log.run_finished()
    first, second, both = (metrics(log.events, run_id=run_id) for run_id in ("r1", "r2", None))
    assert (first.turns, first.calls, first.inherited, first.blocking_turns) == (1, 2, 0, 1)
    # Its input, the two results, and the turn that was lost: a loop that blocks would have lost it too.
    assert (second.turns, second.calls, second.inherited, second.blocking_turns) == (3, 0, 2, 4)
    assert (both.turns, both.inherited, both.blocking_turns) == (4, 0, 5)


def test_turns_that_any_loop_would_have_had_are_counted_for_both() -> None:
    log = LogWriter().says("go", "r1").start().add(TurnFailed("t1", ErrorKind.OVERLOADED, "busy"))
    assert (metrics(log.events).turns, metrics(log.events).blocking_turns) == (1, 1)
    log.says("again").start().finish("so far", stop=StopReason.PAUSED).start(Reason.CONTINUATION).finish("done")
    log.run_finished()
    assert (metrics(log.events).turns, metrics(log.events).blocking_turns) == (3, 3)
