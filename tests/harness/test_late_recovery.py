"""What an opener takes up when its lease did not last until then. In virtual time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import harness
from store import LEASE_TTL_S, Lease, MemoryStore
from tests.harness.world import World, call, settle


class SlowOpenings(MemoryStore):
    """Between taking a lease and doing anything with it, `delay_s` pass; overtaken: another holder comes then."""

    delay_s = 0.0
    overtaken = False
    another: Lease

    async def acquire(self, session_id: str, holder: str = "") -> Lease:
        lease = await super().acquire(session_id, holder)
        await trio.sleep(self.delay_s)
        if self.overtaken:
            self.drop_lease(session_id)
            self.another = await super().acquire(session_id, "another")
        return lease


async def with_a_running_operation() -> tuple[World, SlowOpenings, str]:
    """A session that was closed while a command ran, and nothing else."""
    world, store = World(), SlowOpenings()
    world.store = store
    async with world.open() as session:
        await session.start_run("go")
        await settle()
        world.model.answer(calls=[call()])
        await settle()
        assert len(world.handler.started) == 1
        return world, store, session.id


async def test_an_opener_that_was_overtaken_takes_nothing_up(autojump_clock: trio.testing.MockClock) -> None:
    world, store, session_id = await with_a_running_operation()
    before = await world.log(session_id)
    store.overtaken = True
    async with world.open(session_id) as session:
        with pytest.raises(harness.StaleWriter):
            await session.run("more")
    assert world.handler.recovered == []
    assert await world.log(session_id) == before
    store.overtaken = False
    await store.another.release()
    async with world.open(session_id):
        assert world.handler.recovered == world.handler.started


async def test_a_lease_that_ran_out_and_that_nobody_took_is_renewed_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world, store, session_id = await with_a_running_operation()
    store.delay_s = LEASE_TTL_S + 1
    async with world.open(session_id) as session:
        assert world.handler.recovered == world.handler.started
        assert (await store.session(session_id)).holder is not None
        world.handler.end(world.handler.started[0])
        await trio.sleep(2.0)
        world.model.answer("done")
        assert session.current_run is not None
        assert (await session.current_run.result()).text == "done"
    await world.checked(session_id)
