"""An asyncio program reads and follows what a trio program writes."""

import asyncio
import threading

import pytest
import trio

from store import CorruptLog, SqliteStore, StoreUnavailable, UnknownSession, UnsupportedVersion
from store.asyncio_reader import open_reader
from store.testing import event, events
from tests.store.helpers import damaged_copy


async def in_asyncio(function, *arguments):
    """Run an asyncio program in a thread beside this trio test."""
    with trio.fail_after(20):
        return await trio.to_thread.run_sync(lambda: asyncio.run(function(*arguments)))


async def test_it_reads_the_same_records_as_the_store(tmp_path):
    path = tmp_path / "s.db"

    async def program():
        async with open_reader(path) as reader:
            with pytest.raises(UnknownSession):
                await reader.read("no")
            return (
                await reader.sessions(),
                await reader.read("b"),
                await reader.read("b", after=1, limit=2),
                await reader.inputs("s"),
                await reader.session("s"),
            )

    async with SqliteStore.open(path) as store:
        await store.create("s", events(5), created_at="", title="")
        await store.fork("s", "b", events(2), at=3, created_at="", title="")
        await store.submit("s", "i", b"1", received_at="")
        assert await in_asyncio(program) == (
            await store.sessions(),
            await store.read("b"),
            await store.read("b", after=1, limit=2),
            await store.inputs("s"),
            await store.session("s"),
        )


async def test_it_follows_commits_and_may_be_left(tmp_path):
    path = tmp_path / "s.db"
    started = threading.Event()

    async def program():
        seen = []
        async with open_reader(path) as reader:
            async for record in reader.follow("s"):
                seen.append(record.seq)
                started.set()
                if record.seq == 6:
                    return seen
        return None

    async with SqliteStore.open(path) as store:
        await store.create("s", events(2), created_at="", title="")
        lease = await store.acquire("s")

        async def write():
            await trio.to_thread.run_sync(started.wait)
            for seq in range(2, 6):
                await store.append(lease, [event(seq + 1)], expected_seq=seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            assert await in_asyncio(program) == [1, 2, 3, 4, 5, 6]


async def test_it_verifies_and_refuses_like_the_store(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(4), created_at="", title="")

    async def read(path):
        async with open_reader(path) as reader:
            return await reader.read("s")

    damage = "UPDATE events SET data = '' WHERE seq = 3"
    with pytest.raises(CorruptLog, match="at event 3"):
        await in_asyncio(read, damaged_copy(tmp_path / "s.db", tmp_path / "d.db", damage))
    with pytest.raises(UnsupportedVersion):
        await in_asyncio(read, damaged_copy(tmp_path / "s.db", tmp_path / "n.db", "PRAGMA user_version = 99"))
    with pytest.raises(StoreUnavailable, match="no store here"):
        await in_asyncio(read, tmp_path / "none.db")
    with pytest.raises(StoreUnavailable, match="another program"):
        await in_asyncio(read, damaged_copy(tmp_path / "s.db", tmp_path / "o.db", "PRAGMA application_id = 5"))
