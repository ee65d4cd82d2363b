"""What the simulation found, each as a plain test, since a seed tells another story once the simulation has changed."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import harness
from harness import events as ev
from harness.compaction import cut
from harness.decide import CallModel, Now, decide
from harness.llm.model import Text, UserItem
from tests.harness.logs import LogWriter
from tests.harness.world import World, settle


async def test_a_wait_that_the_clock_cannot_tell_from_none_is_over(mock_clock: trio.testing.MockClock) -> None:
    mock_clock.jump(2.0**33)  # from here on a float of the clock counts in microseconds
    world = World()
    async with world.open(limits=ev.Limits(seconds=1e-9)) as session:
        run = await session.start_run("go")
        await settle()  # would never return while a task goes round in circles
        mock_clock.jump(0.001)
        await settle()
        world.model.answer("in time")
        assert (await run.result()).outcome is ev.Outcome.LIMIT_REACHED


def test_a_limit_that_was_reached_stays_reached_when_a_crash_loses_the_seconds_that_led_to_it() -> None:
    log = LogWriter(ev.Policy(limits=ev.Limits(seconds=45.0))).says("go").start().finish("hm", ["c1"]).reject("c1")
    log.start(ev.Reason.FINAL_ANSWER, limit="45 seconds", run_s=44.9996)
    log.add(ev.TurnInterrupted("t2", ev.Cause.LOST))
    assert decide(log.state, Now(run_s=44.9996)) == CallModel(ev.Reason.FINAL_ANSWER, "45 seconds")


def test_a_compaction_leaves_a_message_that_no_turn_has_answered() -> None:
    log = LogWriter(ev.Policy(window_tokens=12)).says("a long time ago " * 20).start().finish("an answer " * 20)
    log.says("and now this").start().add(ev.TurnInterrupted("t2", ev.Cause.LOST))
    kept = log.state.sent.items[cut(log.state) :]
    said = [part.text for item in kept if isinstance(item, UserItem) for part in item.parts if isinstance(part, Text)]
    assert said == ["and now this"]


async def test_the_error_of_a_block_is_itself_also_when_the_block_is_cancelled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    with trio.CancelScope() as scope, pytest.raises(ZeroDivisionError):
        async with world.open() as session:
            await session.start_run("go")
            scope.cancel()
            raise ZeroDivisionError
    async with harness.open_session(world.store, session_id=session.id, model=world.model, manager=world.manager):
        pass
