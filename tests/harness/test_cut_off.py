"""What an interrupt, a steer, a cancel, a crash or a bad clock leaves, as the model reads it in the next request."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest
import trio
import trio.testing

import harness
from harness import events as ev
from harness import ids
from harness.llm.model import AssistantItem, ErrorKind, ModelError, ModelRequest, Text, ToolCallDelta, UserItem
from operations import Status
from tests.harness.world import Reopened, World, call, settle


def texts(request: ModelRequest) -> str:
    return "\n".join(part.text for item in request.items for part in getattr(item, "parts", ()))


@asynccontextmanager
async def opened(world: World) -> AsyncIterator[Reopened]:
    place = Reopened(world)
    await place.open()
    try:
        yield place
    finally:
        await place.close()


@pytest.mark.parametrize(("cut", "by"), [("interrupt", "the user"), ("steer", "a new message")])
async def test_what_a_cut_turn_had_said_and_begun_is_in_the_next_request_also_after_a_resume(cut: str, by: str) -> None:
    world = World()
    async with opened(world) as place:
        run = await place.session.start_run("go")
        await settle()
        world.model.says("Plan: 1. rename the module, 2. ")
        assert world.model.emit is not None
        for index in range(2):  # both came whole, but the turn did not finish
            world.model.emit(ToolCallDelta(index, "bash", '{"command":"true"}'))
        if cut == "interrupt":
            await run.interrupt()
            await place.close()
            await place.open()
            await place.session.start_run("continue with step 2")
        else:
            await run.steer("continue with step 2")
        await settle()
        live = world.model.requests[-1].items
        note = f"(Your reply was cut off here by {by}. The tool calls that it had begun were not run: bash, bash.)"
        assert live[1:] == [
            AssistantItem((Text("Plan: 1. rename the module, 2. "),)),
            UserItem((Text(note),)),
            UserItem((Text("continue with step 2"),)),
        ]
        await place.close()
        await place.open()
        await settle()
        assert world.model.requests[-1].items == live
        assert not world.handler.started
        await world.checked(place.session.id)


async def test_two_interrupts_at_once_are_one_and_a_second_cancel_waits_for_the_same_end() -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.interrupt, "one")
            nursery.start_soon(run.interrupt, "two")
        assert (await run.result()).outcome == "interrupted"
        run = await session.start_run("go on")
        await settle()
        assert session.current_run is not None, "the second interrupt was of the first run"
        world.model.answer(calls=[call("a"), call("b")])
        await settle()
        world.handler.obeys_cancel = False
        returned: list[int] = []

        async def cancel(number: int) -> None:
            await session.cancel(f"cancel {number}")
            returned.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(cancel, number)
                await settle()
            first, second = list(world.handler.running)
            world.handler.end(first, Status.CANCELLED)
            await settle()
            assert not returned, "one operation has not ended"
            world.handler.end(second, Status.CANCELLED)
        assert (await run.result()).outcome == "cancelled"
        log = await world.checked(session.id)
        assert [entry.kind for entry in log].count("run_finished") == 2


async def test_what_ended_before_a_crash_stays_ended_and_only_the_rest_is_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with opened(world) as place:
        await place.session.start_run("go")
        await settle()
        world.model.answer(calls=[call("ok"), call("exit 1"), call(raw="{"), call("sleep")])
        await settle()
        good, bad, open_ = (pending.operations[0] for pending in place.session.state.pending)
        world.handler.end(good)
        world.handler.end(bad, exit_status=1)
        await settle()
        before = [entry.event for entry in await world.log(place.session.id)]
        ended = {event.call_id: event.parts for event in before if isinstance(event, ev.ToolCallFinished)}
        assert list(ended) == ["t0001c000", "t0001c001"], "each is recorded when it ends, not with its batch"
        await place.close()
        await place.open()
        await trio.sleep(2.0)
        assert [pending.call_id for pending in place.session.state.pending] == ["t0001c003"]
        assert world.handler.recovered == [open_] and len(world.handler.started) == 3
        said = texts(world.model.requests[-1])
        assert said.count("exit status 0") == said.count("exit status 1") == said.count("still running") == 1
        await world.checked(place.session.id)


@pytest.mark.parametrize("how", ["one after the other", "together", "during a turn", "a turn that fails"])
async def test_each_result_is_delivered_once_and_the_run_ends_after_the_last(
    autojump_clock: trio.testing.MockClock, how: str
) -> None:
    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a"), call("b"), call("c")])
        await settle()
        operations = [pending.operations[0] for pending in session.state.pending]
        for operation in operations:
            world.handler.end(operation)
            if how == "together":
                continue
            await trio.sleep(2.0)
            if how == "during a turn" and operation is operations[0]:
                continue
            if how == "a turn that fails" and operation is operations[-1]:
                world.model.fail(ModelError(ErrorKind.OVERLOADED, "overloaded", status=529))
                assert (await run.result()).outcome == "failed"
                run = await session.start_run("go on")
                await settle()
            elif world.model.asked:
                assert not run.ended
                world.model.answer("waiting")
        await trio.sleep(2.0)
        if world.model.asked:
            world.model.answer("done")
        assert (await run.result()).outcome == "completed"
        said = texts(world.model.requests[-1])
        assert [said.count(f"output of {operation}") for operation in operations] == [1, 1, 1]
        assert len(world.model.requests) <= len(operations) + 2, "no turn asks whether something is done"
        await world.checked(session.id)


class Leaping:
    """A wall clock in the place of `datetime`: each look is at another of these times, again and again."""

    def __init__(self, *leaps: timedelta) -> None:
        start = datetime(2038, 1, 19, 3, 14, 7, tzinfo=UTC)
        self._times = itertools.cycle([start + leap for leap in leaps])

    def now(self, _zone: object) -> datetime:
        return next(self._times)


async def told(clock: Leaping, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bytes], list[str], list[str]]:
    """The requests, the kinds of the events, and the sessions as listed, of one story under this wall clock."""
    monkeypatch.setattr("harness.journal.datetime", clock)
    monkeypatch.setattr(ids, "source", Random(1))
    world = World()
    policy = harness.Policy(coalesce_s=1.0, heartbeat_s=60.0)
    async with world.open(policy=policy, limits=harness.Limits(seconds=900)) as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("a"), call("b")])
        await settle()
        first, second = (pending.operations[0] for pending in session.state.pending)
        world.handler.end(first)
        await trio.sleep(2.0)
        world.model.answer("waiting")
        await trio.sleep(61.0)
        world.model.answer("still waiting")
        await run.steer("hurry")
        await settle()
        world.handler.end(second)
        world.model.answer("done")
        await settle()
        world.model.answer("done")
        assert (await run.result()).outcome == "completed"
        branch = await session.fork(at="t2")
        log = await world.checked(session.id)
    async with world.open(branch):
        listed = [summary.id for summary in await harness.sessions(world.store)]
    requests = [msgspec.json.encode(request.items) for request in world.model.requests]
    return requests, [entry.kind for entry in log], listed


async def test_a_wall_clock_that_leaps_changes_nothing_but_the_times_that_are_recorded(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = await told(Leaping(timedelta()), monkeypatch)
    hours = [timedelta(hours=hours) for hours in (0, -1, 2, -2, 0, 9000)]
    assert await told(Leaping(*hours), monkeypatch) == steady
    assert len(steady[0]) == 6 and len(steady[2]) == 2
