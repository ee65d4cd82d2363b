"""A limit of seconds holds also against a model that never answers."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import harness
from tests.harness.world import World, call, settle


@pytest.mark.parametrize(("limit_s", "ended_s"), [(5.0, 6.25), (900.0, 960.0)])
async def test_a_model_that_never_answers_ends_the_run_soon_after_the_limit(
    autojump_clock: trio.testing.MockClock, limit_s: float, ended_s: float
) -> None:
    world = World()
    async with world.open(limits=harness.Limits(seconds=limit_s)) as session:
        result = await session.run("go")
        assert (result.outcome.value, result.turns, result.seconds) == ("limit_reached", 2, ended_s)
        assert result.error == f"the limit of {limit_s:g} seconds is reached; the final answer did not come in time"
        again = await session.start_run("and now?")
        await settle()
        world.model.answer("Here I am.")
        assert (await again.result()).text == "Here I am."
    await world.checked(session.id)


async def test_a_final_answer_that_is_cut_off_leaves_what_was_said_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open(limits=harness.Limits(seconds=20)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer("Let me look.", calls=[call()])
        result = await run.result()
        assert (result.outcome.value, result.seconds, result.text) == ("limit_reached", 25.0, "Let me look.")
    await world.checked(session.id)


async def test_a_final_answer_has_its_time_again_after_a_crash(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open(limits=harness.Limits(seconds=20)) as session:
        await session.start_run("go")
        await trio.sleep(22)
    async with world.open(session.id) as session:
        run = session.current_run
        assert run is not None
        world.model.answer("All I know.")
        assert (await run.result()).text == "All I know."
    await world.checked(session.id)
