"""The simulation as part of the suite: some seeds always, more of them when there is time, and that a seed repeats."""

from __future__ import annotations

import pytest

from tests.simulation.story import simulate


@pytest.mark.parametrize("first", range(1, 61, 10))
def test_ten_seeds_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 10):
        simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1001, 1401, 50))
def test_fifty_more_seeds_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 50):
        simulate(seed)


def test_a_seed_repeats_exactly() -> None:
    first, second, other = simulate(7), simulate(7), simulate(8)
    assert (first.order, first.steps, first.logs, first.counts) == (
        second.order,
        second.steps,
        second.logs,
        second.counts,
    )
    assert other.order != first.order


@pytest.mark.parametrize(
    "seed",
    [
        8,  # a wait shorter than the clock can tell went round in circles
        44,  # (the simulation's own account took a branch's call for a second one)
        47,  # a model call was made after the lease was lost, while the request's images were read
        568,  # an operation was started after the lease was lost, when its slot came free
        1406,  # the final answer was asked for, a crash came, and rounding made room for another turn
        1484,  # an error of the block arrived in a group when the block was cancelled at the same moment
        2057,  # a message whose only turn was lost was summarised before any turn had answered it
        55,  # a lease that had run out before its first renewal was renewed without a pause
    ],
)
def test_seeds_that_have_failed_do_not_fail(seed: int) -> None:
    simulate(seed)
