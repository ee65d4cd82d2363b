"""Any family of branches is, for each branch, its ancestors up to the fork and then its own."""

import tempfile
from pathlib import Path

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from store import MemoryStore, SqliteStore
from store.testing import event, events

STEPS = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.integers(0, 3), st.booleans()), max_size=12)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_both_stores_agree_with_plain_lists_for_any_family(steps):
    async def grow(store):
        """Fork or append at random; `model` holds what each log must be, copied as the store never does."""
        model = {"s0": [record.data for record in events(3)]}
        await store.create("s0", events(3), created_at="", title="")
        for number, (which, where, count, fork) in enumerate(steps, 1):
            parent = list(model)[which % len(model)]
            log = model[parent]
            new = [event(1000 * number + place) for place in range(count)]
            if fork:
                at = 1 + where % len(log)
                await store.fork(parent, f"s{number}", new, at=at, created_at="", title="")
                model[f"s{number}"] = log[:at] + [record.data for record in new]
            else:
                lease = await store.acquire(parent)
                await store.append(lease, new, expected_seq=len(log))
                await lease.release()
                model[parent] = log + [record.data for record in new]
        for name, log in model.items():
            assert [record.data for record in await store.read(name)] == log
            middle = len(log) // 2
            assert [record.seq for record in await store.read(name, after=middle)] == [*range(middle + 1, len(log) + 1)]
            ancestors = await store.ancestors(name)
            for owner, last in ancestors:
                assert (await store.read(owner, upto=last)) == (await store.read(name, upto=last))
        assert await store.verify() == []
        order = [info.id for info in await store.sessions()]
        return {name: [record.hash for record in await store.read(name)] for name in model}, order

    async def both():
        with tempfile.TemporaryDirectory() as folder:
            async with SqliteStore.open(Path(folder) / "s.db") as store:
                assert await grow(store) == await grow(MemoryStore())

    trio.run(both)


async def test_a_fork_costs_no_rows_but_its_own(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(500), created_at="", title="")

        def count(connection):
            return connection.execute("SELECT count(*) FROM events").fetchone()[0]

        before = await store.write(count)
        for number in range(5):
            await store.fork("s", f"b{number}", [event(1)], at=400, created_at="", title="")
        assert await store.write(count) == before + 5


async def test_a_branch_is_read_while_its_parent_goes_on(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(40), created_at="", title="")
        await store.fork("s", "b", [event(100)], at=20, created_at="", title="")
        lease = await store.acquire("s")
        expected = await store.read("b")

        async def go_on():
            for seq in range(40, 80):
                await store.append(lease, [event(seq + 1)], expected_seq=seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            for _ in range(40):
                assert await store.read("b") == expected
