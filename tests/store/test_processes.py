"""Several real processes on one store: kills, takeovers, followers, contention."""

import os
import signal
import threading

import pytest
import trio
import trio.testing

from store import SessionBusy, SqliteStore, StaleWriter, StoreUnavailable
from store.testing import event, events
from tests.store.helpers import child, eventually, line, tell


async def made(path, session_id="s"):
    async with SqliteStore.open(path) as store:
        await store.create(session_id, events(1), created_at="", title="")


async def test_every_acknowledged_append_is_there_after_kill_9(tmp_path):
    path = tmp_path / "s.db"
    await made(path)
    for appends in (1, 7, 40):
        with child("append_for_ever", path, "s") as process:
            for _ in range(appends):
                acknowledged = int(await line(process))
            os.kill(process.pid, signal.SIGKILL)
            rest = await trio.to_thread.run_sync(process.stdout.read)
            acknowledged = max([acknowledged, *map(int, rest.split("\n")[:-1])])
        async with SqliteStore.open(path) as store:
            records = await store.read("s")
            assert len(records) >= acknowledged
            assert len(records) % 2 == 1, "an append of two records is whole or nothing"
            assert await store.verify() == []
            await (await store.acquire("s")).release()  # free at once: its holder is dead


async def test_a_live_holder_in_another_process_is_named(tmp_path):
    path = tmp_path / "s.db"
    await made(path)
    with child("append_when_told", path, "s") as process:
        assert await line(process) == "holding"
        async with SqliteStore.open(path) as store:
            with pytest.raises(SessionBusy) as busy:
                await store.acquire("s")
            assert f"a child (process {process.pid} on {os.uname().nodename})" in str(busy.value)
            assert 0 < busy.value.lease_left_s <= 10
            assert str(process.pid) in (await store.session("s")).holder
            # Readers and forks are not disturbed.
            await store.fork("s", "b", [event(2)], at=1, created_at="", title="")
            assert len(await store.read("b")) == 2
            process.stdin.close()
            await trio.to_thread.run_sync(process.wait)
            assert (await store.acquire("s")).epoch == 2, "an orderly end frees it at once"


async def test_a_stopped_holder_is_taken_over_and_appends_nothing_afterwards(tmp_path):
    path = tmp_path / "s.db"
    await made(path)
    with child("append_when_told", path, "s", "0.3") as process:
        assert await line(process) == "holding"
        os.kill(process.pid, signal.SIGSTOP)
        async with SqliteStore.open(path, lease_ttl_s=0.3) as store:
            taken = []

            async def can_be_taken():
                try:
                    taken.append(await store.acquire("s"))
                except SessionBusy:
                    return False
                return True

            assert not await can_be_taken(), "a stopped holder keeps it until its time to live is over"
            await eventually(can_be_taken)
            await store.append(taken[0], [event(2)], expected_seq=1)
            tell(process, "append")
            os.kill(process.pid, signal.SIGCONT)
            assert await line(process) == (
                "stale: session 's' was taken over by another process. This one has stopped writing. valid for 0"
            )
            assert len(await store.read("s")) == 2


async def test_a_renewed_lease_outlives_its_time_to_live(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db", lease_ttl_s=0.25) as store:
        await store.create("s", events(1), created_at="", title="")
        lease = await store.acquire("s")

        async def renewed_over_and_over():
            await lease.renew()
            with pytest.raises(SessionBusy):
                await store.acquire("s")
            return trio.current_time() > until

        until = trio.current_time() + 0.6
        await eventually(renewed_over_and_over)
        assert lease.valid_for_s > 0


async def test_a_lapsed_lease_that_nobody_took_still_writes(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db", lease_ttl_s=0.01) as store:
        await store.create("s", events(1), created_at="", title="")
        lease = await store.acquire("s")
        await eventually(lambda: _is(lease.valid_for_s == 0))
        await store.append(lease, [event(2)], expected_seq=1)
        await store.acquire("s")
        with pytest.raises(StaleWriter):
            await store.append(lease, [event(3)], expected_seq=2)


async def _is(value):
    await trio.lowlevel.checkpoint()
    return value


async def test_two_openers_in_one_process_exclude_each_other(tmp_path):
    path = tmp_path / "s.db"
    await made(path)
    async with SqliteStore.open(path) as one, SqliteStore.open(path) as two:
        lease = await one.acquire("s")
        with pytest.raises(SessionBusy):
            await two.acquire("s")
        await lease.release()
        await two.acquire("s")


async def test_closing_a_store_frees_what_it_held(tmp_path):
    path = tmp_path / "s.db"
    await made(path)
    async with SqliteStore.open(path) as one:
        await one.acquire("s")
    async with SqliteStore.open(path) as two:
        assert (await two.session("s")).holder is None
        await two.acquire("s")


async def test_followers_and_inbox_waiters_see_another_processs_commits_soon(tmp_path):
    path = tmp_path / "s.db"
    await made(path)
    async with SqliteStore.open(path) as store:
        with child("append_when_told", path, "s") as appender, child("submit_when_told", path, "s") as submitter:
            assert (await line(appender), await line(submitter)) == ("holding", "ready")
            records = store.follow("s", after=1)
            for seq in range(2, 6):
                tell(appender, "append")
                with trio.fail_after(5):
                    assert (await anext(records)).seq == seq
                    assert await line(appender) == f"appended {seq}"
            for number in range(1, 4):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(lambda after=number - 1: store.wait_for_input("s", after=after))
                    await trio.testing.wait_all_tasks_blocked()
                    tell(submitter, f"input {number}")
                    assert await line(submitter) == "submitted"
                assert (await store.inputs("s"))[-1].input_id == f"input {number}"


async def test_no_thread_is_left_after_closing_even_with_a_follower_in_the_air(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(1), created_at="", title="")

        async def wait_in_vain():
            with pytest.raises(StoreUnavailable, match="closed"):
                await store.wait_for_change("s", after=1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_in_vain)
            await trio.testing.wait_all_tasks_blocked()
            await store.aclose()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.read("s")
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.create("t", [], created_at="", title="")
    assert not [thread for thread in threading.enumerate() if thread.name == "turnlog writer"]


async def test_three_processes_write_one_file_without_a_lock_error(tmp_path):
    path = tmp_path / "s.db"  # not there yet: they also race to make it
    with child("write_many", path, "x") as one, child("write_many", path, "y") as two:
        async with SqliteStore.open(path) as store:
            await store.create("mine", events(1), created_at="", title="")
            lease = await store.acquire("mine")
            for seq in range(1, 31):
                await store.append(lease, [event(seq + 1)], expected_seq=seq)
            assert (await line(one), await line(two)) == ("done", "done")
            found = await store.sessions()
            assert sorted(info.length for info in found) == [11] * 20 + [31]
            assert await store.verify() == []
