"""One commit for all that wait, a defined fate for the cancelled, and a commit that fails."""

import resource
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest
import trio
import trio.testing

from store import SqliteStore, StoreUnavailable
from store.testing import event, events


@asynccontextmanager
async def busy_writer(store):
    """Keep the writer's thread inside a piece of work, so that everything else has to queue."""
    started, go_on = threading.Event(), threading.Event()

    def work(connection):
        started.set()
        assert go_on.wait(20)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write, work)
        await trio.to_thread.run_sync(started.wait)
        try:
            yield go_on
        finally:
            go_on.set()


async def with_sessions(store, count):
    leases = []
    for number in range(count):
        await store.create(f"s{number}", events(1), created_at="", title="")
        leases.append(await store.acquire(f"s{number}"))
    return leases


async def test_fifty_waiting_appends_share_one_commit(tmp_path):
    statements = []
    async with SqliteStore.open(tmp_path / "s.db") as store:
        leases = await with_sessions(store, 50)
        await store.write(lambda connection: connection.set_trace_callback(statements.append))
        async with trio.open_nursery() as nursery, busy_writer(store):
            for lease in leases:
                nursery.start_soon(lambda lease=lease: store.append(lease, [event(2)], expected_seq=1))
            await trio.testing.wait_all_tasks_blocked()
            statements.clear()
        assert statements.count("COMMIT") <= 2  # the busy one's own, and one for all fifty
        assert [info.length for info in await store.sessions()] == [2] * 50


async def test_a_cancelled_append_that_has_not_begun_is_withdrawn(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        (lease,) = await with_sessions(store, 1)
        async with busy_writer(store):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda: store.append(lease, [event(2)], expected_seq=1))
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()  # returns at once, although the writer is still busy
        assert scope.cancelled_caught
        assert len(await store.read("s0")) == 1


async def test_a_cancelled_call_that_has_begun_runs_to_its_end_and_returns_its_result(tmp_path):
    results = []
    async with SqliteStore.open(tmp_path / "s.db") as store:
        started, go_on = threading.Event(), threading.Event()

        def work(connection):
            started.set()
            assert go_on.wait(20)
            return "done"

        async def call():
            with trio.CancelScope() as scope:
                scopes.append(scope)
                results.append(await store.write(work))

        scopes = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await trio.to_thread.run_sync(started.wait)
            scopes[0].cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert results == []
            go_on.set()
        assert results == ["done"]


@contextmanager
def largest_file(size):
    """Make the system itself refuse to let any file grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_commit_that_the_system_refuses_fails_for_everyone_in_it_and_the_store_recovers(tmp_path):
    path = tmp_path / "s.db"
    errors = []
    async with SqliteStore.open(path) as store:
        leases = await with_sessions(store, 10)
        grown = []

        async def work(lease):
            try:
                grown.append(await store.append(lease, [event(2)], expected_seq=1))
            except StoreUnavailable as error:
                errors.append(error)

        # SQLite writes its log at COMMIT, after every piece of work of the batch has succeeded.
        with largest_file((tmp_path / "s.db-wal").stat().st_size):
            async with trio.open_nursery() as nursery, busy_writer(store):
                for lease in leases:
                    nursery.start_soon(work, lease)
                await trio.testing.wait_all_tasks_blocked()
        assert grown == []
        assert len(errors) == len(set(map(id, errors))) == 10
        assert {str(error).count("\n") for error in errors} == {0}
        assert [info.length for info in await store.sessions()] == [1] * 10
        for lease in leases:
            await store.append(lease, [event(2)], expected_seq=1)
        assert await store.verify() == []
    with pytest.raises(StoreUnavailable):
        await store.read("s0")
