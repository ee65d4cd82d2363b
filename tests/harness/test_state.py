"""The fold and what the context builder makes of it."""

from __future__ import annotations

import pytest

from harness import events as ev
from harness.context import build
from harness.folding import apply
from harness.llm.model import AssistantItem, Text, ToolResultItem, Usage, UserItem
from harness.persistent import Ledger, Vector
from harness.state import SessionState
from harness.trace_rules import check, unpaired
from harness.transcript import cut_middle
from tests.harness.logs import LogWriter, with_pending


def texts(log: LogWriter) -> list[str]:
    """The request of the next turn, an item a line."""
    lines = []
    for item in build(log.state).request.items:
        match item:
            case UserItem():
                lines.append("user: " + " ".join(part.text for part in item.parts if isinstance(part, Text)))
            case ToolResultItem():
                said = " ".join(part.text for part in item.parts if isinstance(part, Text))
                lines.append(f"result {item.call_id}: {said}")
            case AssistantItem():
                said = " ".join(
                    getattr(part, "text", "") or f"[{getattr(part, 'call_id', '')}]" for part in item.output
                )
                lines.append(f"model: {said}")
    return lines


def test_a_result_that_lands_before_the_next_turn_is_the_answer_to_its_call() -> None:
    log = with_pending("a", "b").end("b", text="two").end("a", text="one")
    assert texts(log) == ["user: go", "model: [a] [b]", "result a: one", "result b: two"]


def test_a_call_that_still_runs_has_a_placeholder_and_its_result_comes_later() -> None:
    log = with_pending("a", "b").end("b", text="two").start(ev.Reason.RESULTS).finish("waiting").end("a", text="one")
    assert texts(log) == [
        "user: go",
        "model: [a] [b]",
        'result a: still running: its result will come in a later message that begins "Result of call a".',
        "result b: two",
        "model: waiting",
        "user: Result of call a (bash):\none",
    ]


def test_what_was_sent_stays_the_prefix_of_what_is_sent_next() -> None:
    log = with_pending("a", "b").end("b")
    first = list(build(log.state).request.items)
    log.start(ev.Reason.RESULTS).finish("waiting").end("a").says("and now?")
    assert list(build(log.state).request.items)[: len(first)] == first


def test_building_twice_gives_the_same_and_leaves_the_state_alone() -> None:
    log = with_pending("a").end("a")
    before = repr(log.state)
    assert build(log.state) == build(log.state)
    assert repr(log.state) == before


def test_a_message_that_cuts_a_turn_off_comes_after_what_the_turn_had_said() -> None:
    log = LogWriter().says("go").start().says("no, stop")
    log.add(ev.TurnInterrupted("t1", ev.Cause.INPUT, "Plan: 1. rename", ("bash",)))
    assert texts(log) == [
        "user: go",
        "model: Plan: 1. rename",
        "user: (Your reply was cut off here by a new message. The tool calls that it had begun were not run: bash.)",
        "user: no, stop",
    ]


def test_a_turn_that_failed_leaves_nothing_in_the_history() -> None:
    log = LogWriter().says("go").start().add(ev.TurnFailed("t1", ev.ErrorKind.SERVER_ERROR, "oops"))
    assert texts(log.says("again")) == ["user: go", "user: again"]


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_blank_text_of_a_model_is_left_out(text: str) -> None:
    log = LogWriter().says("go").start().finish(text, calls=["a"]).pend("a").end("a", text=text)
    assert texts(log) == ["user: go", "model: [a]", "result a: (no output)"]


def test_results_of_one_step_share_the_room_and_keep_head_and_tail() -> None:
    policy = ev.Policy(result_max_chars=1000, step_max_chars=1100)
    log = with_pending("a", "b", policy=policy)
    log.end("a", text="short").end("b", text="H" + "x" * 5000 + "T")
    built = build(log.state)
    (short, long) = [item for item in built.request.items if isinstance(item, ToolResultItem)]
    assert short.parts == (Text("short"),)
    assert isinstance(long.parts[0], Text)
    assert long.parts[0].text.startswith("H") and long.parts[0].text.endswith("T")
    assert "4002 characters left out" in long.parts[0].text
    assert [(omission.what, omission.chars) for omission in built.omissions] == [
        ("middle of the result of call b (bash)", 4002)
    ]


@pytest.mark.parametrize("results", [1, 40])
@pytest.mark.parametrize(("window", "most"), [(None, 210_000), (200_000, 210_000), (32_000, 70_000), (8_000, 20_000)])
def test_large_results_fit_the_step_and_the_window_together(window: int | None, most: int, results: int) -> None:
    calls = [f"c{index}" for index in range(results)]
    log = with_pending(*calls, policy=ev.Policy(window_tokens=window))
    for call_id in calls:
        log.end(call_id, text="y" * 200_000)
    assert build(log.state).chars < most


def test_the_digest_differs_with_what_is_sent_and_with_the_tools_being_closed() -> None:
    one, two = LogWriter().says("go"), LogWriter().says("go!")
    assert build(one.state).digest != build(two.state).digest
    assert build(one.state).digest != build(one.state, limit="1 turns").digest
    assert build(one.state).digest == build(LogWriter().says("go", "another id").state).digest


def test_a_compaction_keeps_pending_calls_and_pairs() -> None:
    log = with_pending("a", "b").end("b").start(ev.Reason.RESULTS).finish("x", calls=["c"]).pend("c").end("c")
    log.start(ev.Reason.RESULTS).finish("waiting")
    for keep in ("t1", "t2", "t3", None, "nonsense"):
        state = apply(log.state, ev.Logged(log.state.seq + 1, "", ev.ContextCompacted(9, "They said go.", keep)))
        items = build(state).request.items
        assert unpaired(items) == []
        summary = items[0].parts[0] if isinstance(items[0], UserItem) else None
        shown = {item.call_id for item in items if isinstance(item, ToolResultItem)}
        assert "a" in shown or (isinstance(summary, Text) and "a (bash)" in summary.text)


def test_a_compaction_in_the_middle_of_a_step_moves_to_the_whole_round() -> None:
    log = with_pending("a").add(ev.ContextCompacted(5, "They said go.", None))
    assert texts(log.end("a", text="one")) == [
        "user: Summary of the conversation so far:\nThey said go.",
        "model: [a]",
        "result a: one",
    ]
    assert check(log.start(ev.Reason.RESULTS).finish("done").run_finished().events) == []


def test_apply_refuses_an_event_that_does_not_follow() -> None:
    log = LogWriter()
    with pytest.raises(ValueError, match="event 5 cannot follow event 1"):
        apply(log.state, ev.Logged(5, "", ev.SessionForked("p", 1)))


def test_older_states_do_not_change_when_the_log_goes_on() -> None:
    log = LogWriter().says("go")
    early, before = log.state, repr(log.state)
    log.start().finish("a").run_finished().says("more").start().finish("b").run_finished()
    assert repr(early) == before
    other = apply(early, ev.Logged(early.seq + 1, "", ev.InputAccepted("x", "user", ev.Message("aside"))))
    assert "x" in other.accepted and "x" not in log.state.accepted


@pytest.mark.parametrize(("text", "most"), [("abc", 3), ("x" * 11, 10), ("é" * 1000, 7)])
def test_cutting_keeps_about_the_length(text: str, most: int) -> None:
    cut = cut_middle(text, most)
    assert cut == text if len(text) <= most else len(cut) <= most + 60


def test_versions_of_a_vector_do_not_see_each_other() -> None:
    root = Vector([1, 2])
    one, two = root.extended([3]), root.extended([4, 5])
    assert (list(root), list(one), list(two)) == ([1, 2], [1, 2, 3], [1, 2, 4, 5])
    assert (one[-1], two[1:], len(one.extended([6])), list(one)) == (3, [2, 4, 5], 4, [1, 2, 3])


def test_versions_of_a_ledger_do_not_see_each_other() -> None:
    root: Ledger[int] = Ledger[int]().added("a", 1)
    one, two = root.added("b", 2), root.added("b", 3)
    assert (dict(root), dict(one), dict(two)) == ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3})
    with pytest.raises(KeyError):
        one.added("b", 9)


def test_a_fold_looks_at_each_item_once_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold that counted the whole history at every turn would take minutes to resume a long session."""
    looked: list[object] = []
    monkeypatch.setattr("harness.transcript.size", lambda item: looked.append(item) or 1)
    monkeypatch.setattr("harness.state.chain", lambda previous, item: looked.append(item) or b"")
    state = SessionState()
    log = LogWriter().says("go")
    for number in range(20):
        log.start().finish(calls=[f"c{number}"], usage=Usage(input=10, output=1)).pend(f"c{number}").end(f"c{number}")
    looked.clear()
    for logged in log.events:
        state = apply(state, logged)
    assert len(looked) <= 2 * len(state.sent.items)
