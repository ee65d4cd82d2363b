"""Both stores keep the contract that is shipped for authors of other stores."""

from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from store import MemoryStore, SqliteStore
from store.testing import CHECKS, check_store


@asynccontextmanager
async def memory():
    yield MemoryStore()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
async def test_sqlite_store_keeps_its_promise(check, tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await check(store)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
async def test_memory_store_keeps_its_promise_in_virtual_time(check, autojump_clock):
    await check(MemoryStore())


async def test_the_whole_suite_runs_through_its_public_entry(autojump_clock):
    await check_store(memory)


async def test_the_suite_names_the_promise_that_a_store_breaks(autojump_clock):
    class Forgetful(MemoryStore):
        async def read(self, session_id, *, after=0, upto=None, limit=None):
            return (await super().read(session_id, after=after, upto=upto, limit=limit))[:3]

    @asynccontextmanager
    async def forgetful():
        yield Forgetful()

    with pytest.raises(AssertionError, match="broke its contract: sequence numbers start at 1 without gaps"):
        await check_store(forgetful)


async def test_memory_store_leases_run_out_by_trios_clock(autojump_clock):
    store = MemoryStore(lease_ttl_s=10)
    await store.create("s", [], created_at="", title="")
    first = await store.acquire("s")
    await trio.sleep(9)
    await first.renew()
    await trio.sleep(9)
    assert first.valid_for_s == pytest.approx(1)
    await trio.sleep(2)
    second = await store.acquire("s")
    assert (first.valid_for_s, second.epoch) == (0, 2)
