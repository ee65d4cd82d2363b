"""An open store whose files are taken away, replaced or cut short says so, and acknowledges nothing."""

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest
import trio
import trio.testing

from store import SqliteStore, StoreUnavailable
from store.asyncio_reader import open_reader
from store.files import OpenFiles
from store.maintenance import backup
from store.testing import event, events
from tests.store.helpers import ROOT, eventually


def remove(path):
    path.unlink()


def replace(path):
    """Put a copy with the same content over it, as a restored backup is."""
    shutil.copy(path, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def rename(path):
    path.rename(path.with_name("elsewhere"))


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def beside(path, kind):
    return path.with_name(path.name + kind)


def other_process(path, sql="SELECT max(seq) FROM events"):
    """Another process opens the store, asks, and closes it again: as the last to close it may tidy the log away."""
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "print(c.execute(sys.argv[2]).fetchone()); c.close()"
    )
    done = subprocess.run([sys.executable, "-c", program, path, sql], capture_output=True, text=True, check=True)
    return done.stdout.strip()


FILES = {"": "the store file", "-wal": "its write-ahead log", "-shm": "the index of its write-ahead log"}
WAYS = {remove: "removed or replaced", replace: "removed or replaced", rename: "removed or replaced"}
WAYS |= {cut: "cut short", empty: "cut short"}


async def is_refused(store):
    """Whether the store has noticed: another log in the place of its own is looked for every 50 ms, not each time."""
    try:
        await store.write(lambda connection: None)
    except StoreUnavailable:
        return True
    return False


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", FILES, ids=lambda kind: kind or "database")
async def test_nothing_is_acknowledged_once_a_file_is_not_what_was_opened(tmp_path, kind, way):
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(30), created_at="", title="")
        lease = await store.acquire("s")
        await store.read("s")
        way(beside(path, kind))
        if (kind, way) == ("-wal", replace):
            await eventually(lambda: is_refused(store))
        calls = {
            "append": lambda: store.append(lease, [event(31)], expected_seq=30),
            "submit": lambda: store.submit("s", "i", b'"hello"', received_at=""),
            "renew": lease.renew,
            "put_blobs": lambda: store.put_blobs([b"blob"]),
            "fork": lambda: store.fork("s", "b", [], at=3, created_at="", title=""),
            "read": lambda: store.read("s"),
            "wait": lambda: store.wait_for_change("s", after=30),
        }
        for name, call in calls.items():
            with pytest.raises(StoreUnavailable) as refusal:
                await call()
            assert str(refusal.value).startswith(f"{path}: {FILES[kind]} was {WAYS[way]} while it was open."), name
        left = {entry.name: entry.stat().st_size for entry in tmp_path.iterdir()}
    assert {entry.name: entry.stat().st_size for entry in tmp_path.iterdir()} == left, "closing touches nothing"


async def test_the_store_stays_refused_when_the_file_is_back(tmp_path):
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(1), created_at="", title="")
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreUnavailable):
            await store.session("s")
        (tmp_path / "elsewhere").rename(path)
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.submit("s", "i", b'"hello"', received_at="")
    async with SqliteStore.open(path) as store:
        assert await store.inputs("s") == []
        assert await store.verify() == []


async def test_who_waits_for_more_is_told_that_it_cannot_come(tmp_path):
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(1), created_at="", title="")

        async def told(call):
            with pytest.raises(StoreUnavailable, match="was removed or replaced"):
                await call()

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(told, lambda: anext(store.follow("s", after=1)))
                nursery.start_soon(told, lambda: store.wait_for_input("s", after=0))
                await trio.testing.wait_all_tasks_blocked(0.05)
                path.unlink()


async def test_all_waiters_of_a_group_commit_are_told(tmp_path):
    path = tmp_path / "s.db"
    outcomes = []
    async with SqliteStore.open(path) as store:
        leases = []
        for number in range(20):
            await store.create(f"s{number}", events(1), created_at="", title="")
            leases.append(await store.acquire(f"s{number}"))

        async def work(lease):
            try:
                await store.append(lease, [event(2)], expected_seq=1)
            except StoreUnavailable as error:
                outcomes.append(error)

        async with trio.open_nursery() as nursery:
            for lease in leases:
                nursery.start_soon(work, lease)
            # Inside the batch: after the look before it, and before the one that comes ahead of the acknowledgement.
            nursery.start_soon(told_while_writing, store, path)
    assert len(outcomes) == len({id(error) for error in outcomes}) == 20


async def told_while_writing(store, path):
    with pytest.raises(StoreUnavailable, match="was removed or replaced"):
        await store.write(lambda _: path.unlink())


async def test_a_link_to_a_store_is_the_store_and_another_target_is_another_store(tmp_path):
    real, other, link = tmp_path / "real.db", tmp_path / "other.db", tmp_path / "link.db"
    async with SqliteStore.open(real) as store:
        await store.create("s", events(1), created_at="", title="")
    shutil.copy(real, other)
    link.symlink_to(real)
    async with SqliteStore.open(link) as store:
        await store.submit("s", "i", b'"hello"', received_at="")
        link.unlink()
        link.symlink_to(other)
        with pytest.raises(StoreUnavailable, match="was removed or replaced"):
            await store.submit("s", "j", b'"hello"', received_at="")


async def test_what_may_shrink_a_file_rightly_is_no_reason_to_refuse(tmp_path):
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(2000), created_at="", title="")
        lease = await store.acquire("s")
        other_process(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        assert beside(path, "-wal").stat().st_size == 0
        await store.append(lease, [event(2001)], expected_seq=2000)
        await store.write(lambda c: c.execute("CREATE TABLE ballast AS SELECT data FROM events"))
        other_process(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        await store.write(lambda c: c.execute("DROP TABLE ballast"))
        before = path.stat().st_size
        other_process(path, "VACUUM")
        other_process(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < before
        await store.append(lease, [event(2002)], expected_seq=2001)
        assert await store.verify() == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.db"]


def test_a_log_that_grows_while_it_is_looked_at_was_not_cut_short(tmp_path):
    path = tmp_path / "s.db"
    writer, other = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    writer.execute("PRAGMA journal_mode = WAL")
    writer.execute("CREATE TABLE t (a)")

    class Watched(OpenFiles):
        def _size_of_log(self, file, connection):
            size = super()._size_of_log(file, connection)
            if connection is not None:  # another process commits, and a reader in another thread finds that
                other.execute("INSERT INTO t VALUES (zeroblob(10000))")
                self.check()
            return size

    files = Watched(path)
    files.opened(writing=True)
    for _ in range(3):
        files.check(writer)
    files.close(writer)
    other.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["s.db"]


async def second_store(path):
    async with SqliteStore.open(path):
        pass


async def asyncio_reader(path):
    program = "import asyncio\nasync def main():\n async with reader(path): pass\nasyncio.run(main())"
    await trio.to_thread.run_sync(exec, program, {"reader": open_reader, "path": path})


async def copied(path):
    await backup(path, path.with_suffix(".copy"))


@pytest.mark.parametrize("beside_it", [second_store, asyncio_reader, copied], ids=lambda f: f.__name__)
async def test_opening_a_store_twice_in_one_process_loses_no_append(tmp_path, beside_it):
    """Closing any descriptor of a file drops all POSIX locks that the process has on it."""
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(5), created_at="", title="")
        lease = await store.acquire("s")
        await beside_it(path)
        assert other_process(path) == "(5,)"
        await store.append(lease, [event(6)], expected_seq=5)
        assert other_process(path) == "(6,)", "what was acknowledged is there for everyone"


async def test_a_follower_in_asyncio_is_told_too(tmp_path):
    path = tmp_path / "s.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(1), created_at="", title="")
    program = (
        "import asyncio, os, sys\n"
        "from store import StoreUnavailable\n"
        "from store.asyncio_reader import open_reader\n"
        "async def main():\n"
        "    async with open_reader(sys.argv[1]) as reader:\n"
        "        records = reader.follow('s')\n"
        "        print((await anext(records)).seq)\n"
        "        asyncio.get_running_loop().call_later(0.01, os.unlink, sys.argv[1])\n"
        "        try: await anext(records)\n"
        "        except StoreUnavailable as error: print(error)\n"
        "asyncio.run(main())"
    )
    done = await trio.run_process([sys.executable, "-c", program, str(path)], cwd=ROOT, capture_stdout=True)
    assert done.stdout.decode().startswith(f"1\n{path}: the store file was removed or replaced")


GONE = {
    "the file is empty, its contents are lost": lambda path: os.truncate(path, 0),
    "the file is gone, its log s.db-wal is not": lambda path: path.unlink(),
    "s.db-wal beside it is another database's log": lambda path: foreign_log(path),
    "the database file is damaged": lambda path: os.truncate(path, 8192),
}


def foreign_log(path):
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('PRAGMA journal_mode = WAL'); c.execute('CREATE TABLE t (a)'); os.kill(os.getpid(), 9)"
    )
    other = path.with_name("other.db")
    subprocess.run([sys.executable, "-c", program, other], check=False)
    beside(other, "-wal").replace(beside(path, "-wal"))
    other.unlink()
    beside(other, "-shm").unlink()


@pytest.mark.parametrize(("message", "damage"), GONE.items(), ids=GONE)
async def test_a_log_that_does_not_fit_is_neither_used_nor_deleted(tmp_path, message, damage):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(300), created_at="", title="")
        other_process(tmp_path / "s.db", "PRAGMA wal_checkpoint")
        await store.submit("s", "i", b'"hello"', received_at="")
        shutil.copytree(tmp_path, tmp_path / "crashed")
    path = tmp_path / "crashed" / "s.db"
    damage(path)

    def left():
        return {entry.name: entry.read_bytes() for entry in path.parent.iterdir() if not entry.name.endswith("-shm")}

    before = left()
    assert before["s.db-wal"]
    with pytest.raises(StoreUnavailable, match=message):
        async with SqliteStore.open(path) as store:
            await store.sessions()
    assert left() == before


async def test_the_database_is_not_mapped_into_memory(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        assert await store.write(lambda connection: connection.execute("PRAGMA mmap_size").fetchone()) == (0,)
