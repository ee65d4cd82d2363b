"""A disk that refuses: everybody concerned is told, nothing half is left, and the store goes on afterwards."""

import pytest
import trio

from store import CallerError, NewRecord, SequenceConflict, SqliteStore, StoreUnavailable
from store.testing import WHEN, event, events, limit_disk

BIG = NewRecord("big", 1, WHEN, b'"' + b"x" * 20_000 + b'"')


async def test_full_disk_is_one_clear_line_and_the_same_session_goes_on_later(tmp_path):
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(1), created_at="", title="")
        lease = await store.acquire("s")
        await limit_disk(store, 2)
        with pytest.raises(StoreUnavailable) as failure:
            await store.append(lease, [BIG], expected_seq=1)
        assert str(failure.value) == f"{path}: the disk is full. Free some space, then try again."
        assert len(await store.read("s")) == 1
        await limit_disk(store, None)
        await store.append(lease, [BIG], expected_seq=1)
        assert await store.verify() == []


async def test_when_a_group_commit_fails_every_waiter_is_told_and_nothing_is_durable(tmp_path):
    outcomes = []
    async with SqliteStore.open(tmp_path / "s.db") as store:
        leases = []
        for number in range(50):
            await store.create(f"s{number}", events(1), created_at="", title="")
            leases.append(await store.acquire(f"s{number}"))
        await limit_disk(store, 2)

        async def work(lease):
            try:
                await store.append(lease, [BIG], expected_seq=1)
                outcomes.append((lease.session_id, "durable"))
            except StoreUnavailable:
                outcomes.append((lease.session_id, "refused"))

        async with trio.open_nursery() as nursery:
            for lease in leases:
                nursery.start_soon(work, lease)
        assert {outcome for _, outcome in outcomes} == {"refused"}
        assert len(outcomes) == 50
        await limit_disk(store, None)
        outcomes.clear()
        async with trio.open_nursery() as nursery:
            for lease in leases:
                nursery.start_soon(work, lease)
        assert {outcome for _, outcome in outcomes} == {"durable"}
        assert await store.verify() == []
        assert [info.length for info in await store.sessions()] == [2] * 50


async def test_what_was_told_durable_is_there_when_the_disk_fills_up_in_the_middle(tmp_path):
    path = tmp_path / "s.db"
    durable = {}
    async with SqliteStore.open(path) as store:
        for number in range(8):
            await store.create(f"s{number}", events(1), created_at="", title="")
        await limit_disk(store, 20)

        async def work(name):
            lease = await store.acquire(name)
            try:
                for seq in range(1, 200):
                    durable[name] = (await store.append(lease, [event(seq)] * 3, expected_seq=3 * seq - 2))[-1].seq
            except StoreUnavailable:
                return

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(work, f"s{number}")
        await limit_disk(store, None)
    async with SqliteStore.open(path) as store:
        assert {name: (await store.session(name)).length for name in durable} == durable
        assert await store.verify() == []


async def test_one_refused_request_in_a_batch_fails_alone(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(1), created_at="", title="")
        await store.create("t", events(1), created_at="", title="")
        lease, other = await store.acquire("s"), await store.acquire("t")
        outcomes = {}

        async def record(name, call):
            try:
                outcomes[name] = await call()
            except CallerError as error:
                outcomes[name] = error

        def half(connection):
            connection.execute("DELETE FROM leases")  # undone by the savepoint around this request
            raise CallerError("on purpose")

        async with trio.open_nursery() as nursery:  # all are queued before the writer gets its turn
            nursery.start_soon(record, "good", lambda: store.append(lease, [event(2)], expected_seq=1))
            nursery.start_soon(record, "stale", lambda: store.append(other, [event(2)], expected_seq=5))
            nursery.start_soon(record, "half", lambda: store.write(half))
            nursery.start_soon(record, "input", lambda: store.submit("s", "i", b"1", received_at=""))
        assert isinstance(outcomes["stale"], SequenceConflict)
        assert str(outcomes["half"]) == "on purpose"
        assert outcomes["input"] is True
        assert outcomes["good"][0].seq == 2
        await store.append(lease, [event(3)], expected_seq=2)


async def test_a_bug_in_a_piece_of_work_reaches_its_caller_and_not_the_others(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        with pytest.raises(ZeroDivisionError):
            await store.write(lambda connection: 1 / 0)
        await store.create("s", events(1), created_at="", title="")
