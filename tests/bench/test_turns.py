"""The turn benchmark runs small, its loops are what they say, and its ratios are computed right."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import harness
from bench import loops, product, turns
from bench.outcome import Figures, Outcome, Prices, Turn, figures
from bench.stats import mean_of, ratio_of
from bench.tasks import SHAPES, Step, Task, recorded
from bench.turns import LOOPS, Options, run
from harness.cli.bench import command

PRICES = Prices(input=4.0, cached_input=1.0, output=8.0, characters_per_token=1.0, cache_s=100.0)
TWO_AND_ONE = Task(
    "two and one",
    (Step("s0", "read", 1.0, 10), Step("s1", "read", 3.0, 10), Step("s2", "edit", 2.0, 10, needs=("s0", "s1"))),
    thinking_s=(8.0,),
)


def test_a_serial_loop_makes_one_call_a_turn() -> None:
    outcome = loops.blocking(TWO_AND_ONE, 100, calls_a_turn=1)
    assert [turn.calls for turn in outcome.turns] == [1, 1, 1, 0]
    assert outcome.wall_s == 4 * 8 + 1 + 3 + 2


def test_a_barrier_waits_for_the_slowest() -> None:
    outcome = loops.blocking(TWO_AND_ONE, 100, calls_a_turn=None)
    assert [turn.calls for turn in outcome.turns] == [2, 1, 0]
    assert outcome.wall_s == 3 * 8 + 3 + 2
    assert sorted(outcome.delays_s) == [0.0, 0.0, 2.0]


def test_a_polling_loop_looks_until_it_has_what_it_needs() -> None:
    outcome = loops.polling(TWO_AND_ONE, 100, waits_s=0.0)
    assert [turn.calls for turn in outcome.turns] == [2, 0, 1, 0, 0]


@pytest.mark.parametrize("policy", [harness.Policy(coalesce_s=0.0), harness.Policy(coalesce_s=1.0), harness.Policy()])
def test_the_product_is_what_is_measured(policy: harness.Policy) -> None:
    outcome, log = product.in_virtual_time(TWO_AND_ONE, policy, uses_wake=True)
    assert [turn.calls for turn in outcome.turns] == [2, 1, 0]
    assert outcome.wall_s == pytest.approx(3 * 8 + 3 + 2)
    assert harness.check(log) == []
    assert [turn.chars for turn in outcome.turns] == sorted(turn.chars for turn in outcome.turns)


def test_a_rerun_of_a_seed_is_the_same_to_the_last_character() -> None:
    task = SHAPES["sixty"](7)
    assert task == SHAPES["sixty"](7) != SHAPES["sixty"](8)
    first, again = (product.in_virtual_time(task, harness.Policy(), uses_wake=True)[0] for _ in range(2))
    assert [turn.chars for turn in first.turns] == [turn.chars for turn in again.turns]
    assert first.wall_s == pytest.approx(again.wall_s)


@pytest.mark.parametrize("task", [*(shape(3) for shape in SHAPES.values()), *recorded()], ids=lambda task: task.name)
def test_tasks_can_be_done_in_their_order(task: Task) -> None:
    done: set[str] = set()
    for step in task.steps:
        assert done.issuperset(step.needs)
        done.add(step.id)
    assert len(done) == len(task.steps)


def test_costs_count_the_prefix_as_cached_until_it_is_too_old() -> None:
    turns = (Turn(0.0, 8.0, 100, 10, 1), Turn(50.0, 58.0, 150, 10, 0), Turn(200.0, 208.0, 200, 10, 0))
    found = figures(Outcome(turns, (1.0, 3.0), 208.0), PRICES)
    assert (found.turns, found.overhead, found.sent, found.new) == (3, 1, 450, 350)
    assert found.cost == pytest.approx((350 * 4 + 100 * 1 + 30 * 8) / 1e6)
    assert found.cost_uncached == pytest.approx((450 * 4 + 30 * 8) / 1e6)
    assert found.delay_s == 2.0


def test_means_and_ratios() -> None:
    assert (mean_of([5.0]).mean, mean_of([5.0]).within) == (5.0, 0.0)
    mean = mean_of([1.0, 2.0, 3.0])
    assert (mean.mean, mean.within) == (2.0, pytest.approx(4.30 / 3**0.5, rel=1e-3))
    assert ratio_of([1.0, 9.0], [2.0, 3.0]).mean == pytest.approx((0.5 + 3.0) / 2)


def test_goals_compare_with_the_published_design() -> None:
    def of(count: float) -> list[Figures]:
        return [Figures(count, 0, count, 0, 0, 0, 10.0, 0)]

    measured = {name: of(100.0) for name in LOOPS}
    measured["turnlog"] = of(61.0)
    found = {goal.what: goal for goal in turns.goals(measured)}
    assert found["turnlog: turns, of fixed-1s"].ratio.mean == pytest.approx(0.61)
    assert not found["turnlog: turns, of fixed-1s"].met
    assert found["no wake: wall-clock, of fixed-1s"].met


def test_it_runs_small_and_writes_what_it_says(tmp_path: Path) -> None:
    lines: list[str] = []
    run(Options(seeds=1, json=tmp_path / "turns.json", plot=tmp_path / "turns.svg"), lines.append)
    text = "\n".join(lines)
    for word in (*LOOPS, *SHAPES, *(task.name for task in recorded())):
        assert word in text
    assert (tmp_path / "turns.svg").read_text().startswith("<svg ")
    assert '"goals"' in (tmp_path / "turns.json").read_text()


def test_the_verb_passes_its_options_on(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Options] = []
    monkeypatch.setattr("bench.turns.run", lambda options, say: given.append(options))
    done = CliRunner().invoke(command, ["turns", "--seeds", "3", "--first", "7", "--plot", "p.svg"])
    assert done.exit_code == 0, done.output
    assert given == [Options(3, 7, None, Path("p.svg"))]
