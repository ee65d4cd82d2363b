"""The other benchmarks run small, and compare what they say they compare. No time is asserted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import overhead, realtime, replay, scale
from bench.logs import long_log
from bench.overhead import Contender, Run


def test_a_turn_is_what_passes_between_two_calls_of_the_tool() -> None:
    run = Run(0.1, 20.0, tuple(0.010 * number for number in range(20)), 30.0)
    assert run.turn_ms(10) == pytest.approx(10.0)


def test_goals_are_ratios_of_the_same_run() -> None:
    found = [
        Contender("bare loop", {10: 2.0, 500: 5.0}, 0.1, 20, 30),
        Contender("turnlog", {10: 4.0, 500: 8.0}, 0.2, 40, 50),
        Contender("langgraph", {10: 10.0, 500: 100.0}, 0.9, 90, 99),
    ]
    values = [goal.value for goal in overhead.goals(found, (10, 500))]
    assert values == pytest.approx([0.08, 1.6, 1.5, 0.2, 40])
    assert len(overhead.goals(found[:2], (10, 500))) == 4


def test_contenders_work_the_same_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with overhead.loopback() as base:
        for name in ("bare loop", "turnlog"):
            run = overhead.once(name, base, 4, sys.executable)
            assert isinstance(run, Run), run
            assert len(run.at_s) == 4


def test_builds_are_measured_at_growing_lengths() -> None:
    log = long_log(200)
    found = replay.builds(log, (100, 200), times=2)
    assert [one.items for one in found] == sorted(one.items for one in found)
    assert replay.check_s(log) > 0


async def test_loads_run_small(tmp_path: Path) -> None:
    sessions = await scale.sessions(tmp_path, 3)
    assert (sessions.count, sessions.median_ms is not None) == (3, True)
    assert (await scale.timers(tmp_path, 5)).count == 5
    commands = await scale.commands(tmp_path, 2, seconds=1.5)
    assert 50 < (commands.supervisor_pss_kb or 0) < (commands.supervisor_rss_kb or 0)


def test_percentiles() -> None:
    assert scale.percentiles([0.001] * 99 + [0.005]) == (1.0, 5.0)


async def test_a_task_is_worked_in_real_time_over_http_in_each_of_our_loops() -> None:
    found = await realtime.measure("quick", range(1), speed=100)
    assert set(found) == set(realtime.LOOPS)
    for pairs in found.values():
        ((simulated, real),) = pairs
        assert simulated.turns >= 3 and real.turns >= 3
    assert len(realtime.lines(found)) == 4
