"""A log that a crash left behind, and that was changed before the next start, is not taken for one that was cut off."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from store import SqliteStore, StoreUnavailable
from store.log_check import is_in_use, lost_commits
from store.maintenance import backup
from store.testing import events

HEADER, FRAME = 32, 24


@pytest.fixture(params=[512, 4096])
def crashed(tmp_path, request):
    """A database and its log as a crash leaves them: five commits of one to three pages behind a log used before."""
    (tmp_path / "live").mkdir()
    with closing(sqlite3.connect(tmp_path / "live" / "s.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {request.param}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (a)")
        for number in range(9):
            connection.execute("INSERT INTO t VALUES (?)", (bytes([number]) * request.param,))
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        for number in range(5):
            connection.execute("INSERT INTO t VALUES (?)", (bytes([number]) * request.param * (number % 3),))
        shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    log = tmp_path / "crashed" / "s.db-wal"
    found = frames(log, request.param)
    assert found[-1][1] and sum(ends for _, ends in found) == 5
    assert log.stat().st_size > found[-1][0] + 2 * (FRAME + request.param), "frames of its former use lie behind it"
    return log, request.param


def frames(log, page_bytes):
    """Where each frame of the log's last use begins, and whether it ends a commit."""
    data = log.read_bytes()
    starts = range(HEADER, len(data), FRAME + page_bytes)
    return [
        (start, data[start + 4 : start + 8] != bytes(4))
        for start in starts
        if data[start + 8 : start + 16] == data[16:24]
    ]


def flip(log, at):
    data = bytearray(log.read_bytes())
    data[at] ^= 0x5A
    log.write_bytes(data)


def test_each_changed_byte_before_the_last_commit_is_found(crashed):
    log, page_bytes = crashed
    healthy = log.read_bytes()
    assert lost_commits(log, page_bytes) == ""
    found = frames(log, page_bytes)
    last = max(start for start, ends in found[:-1] if ends) + FRAME + page_bytes
    heads = [start + byte for start, _ in found if start < last for byte in range(FRAME)]
    step = 7 if page_bytes == 512 else 97
    for at in [*range(HEADER), *range(HEADER, last, step), *heads]:
        flip(log, at)
        number = (at - HEADER) // (FRAME + page_bytes) + 1
        expected = "its header was changed" if at < HEADER else f"its frame {number} was changed"
        assert lost_commits(log, page_bytes) == expected, at
        log.write_bytes(healthy)


def test_a_log_that_a_crash_cut_off_is_as_good_as_whole(crashed):
    log, page_bytes = crashed
    healthy = log.read_bytes()
    found = frames(log, page_bytes)
    end = found[-1][0] + FRAME + page_bytes
    for at in [0, 1, HEADER - 1, HEADER, *range(HEADER, end, 211)]:
        log.write_bytes(healthy[:at])
        assert lost_commits(log, page_bytes) == "", at


def test_a_commit_of_which_only_parts_reached_the_disk_is_not_damage(crashed):
    log, page_bytes = crashed
    healthy = log.read_bytes()
    found = frames(log, page_bytes)
    *_, before, last = (place for place, (_, ends) in enumerate(found) if ends)
    for start, _ in found[before + 1 : last + 1]:
        for at in range(start, start + FRAME + page_bytes, 64):
            log.write_bytes(healthy[:at] + bytes(64) + healthy[at + 64 :])
            assert lost_commits(log, page_bytes) == "", at


def test_what_commits_that_failed_left_behind_is_not_damage(crashed):
    """Two of them, of different lengths, written over each other behind the last one that succeeded."""
    log, page_bytes = crashed
    whole = log.read_bytes()
    found = frames(log, page_bytes)
    end = found[-1][0] + FRAME + page_bytes
    attempts = []
    for fill in (b"a", b"b"):
        shutil.copytree(log.parent, log.parent.with_name(f"more-{fill.decode()}"))
        with closing(sqlite3.connect(log.parent.with_name(f"more-{fill.decode()}") / "s.db")) as connection:
            connection.execute("INSERT INTO t VALUES (?)", (fill * page_bytes * (6 if fill == b"a" else 3),))
            connection.commit()
            attempts.append((log.parent.with_name(f"more-{fill.decode()}") / "s.db-wal").read_bytes())
    long, short = (attempt[end : attempt.rindex(attempt[16:24]) + 16 + page_bytes] for attempt in attempts)
    assert len(short) < len(long)
    left = bytearray(whole[:end] + long)
    left[end : end + len(short)] = short
    left[end + 40] ^= 1  # the page that the next commit, which the crash cut off, had begun to write
    log.write_bytes(left)
    assert lost_commits(log, page_bytes) == ""


async def test_a_store_whose_log_was_changed_is_only_read_and_left_as_it_is(tmp_path):
    (tmp_path / "live").mkdir()
    async with SqliteStore.open(tmp_path / "live" / "s.db") as store:
        await store.create("s", events(3), created_at="", title="")
        await store.create("t", events(3), created_at="", title="")
        await store.create("u", events(3), created_at="", title="")
        shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    path = tmp_path / "crashed" / "s.db"
    log = path.with_name("s.db-wal")
    starts = [start for start, ends in frames(log, 4096) if ends]
    flip(log, starts[-2] + FRAME + 100)

    def left():
        return {entry.name: entry.read_bytes() for entry in path.parent.iterdir() if not entry.name.endswith("-shm")}

    before = left()
    async with SqliteStore.open(path) as store:
        assert "t" not in [row.id for row in await store.sessions()]
        assert await store.read("s")
        for session_id in (None, "s"):
            (damage,) = await store.verify(session_id)
            assert (damage.session_id, damage.seq) == ("", None)
            assert damage.problem.startswith("commits in s.db-wal are lost (its frame ")
        with pytest.raises(StoreUnavailable, match=r"commits in s.db-wal are lost \(its frame \d+ was changed\)"):
            await store.create("v", events(3), created_at="", title="")
    assert left() == before
    with pytest.raises(StoreUnavailable, match=r"commits in s.db-wal are lost .*Restore a backup"):
        await backup(path, tmp_path / "backup.db")
    assert left() == before


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not say who has locks")
async def test_whether_a_log_is_in_use_is_known(tmp_path):
    index = tmp_path / "s.db-shm"
    assert not is_in_use(index)
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(3), created_at="", title="")
        assert is_in_use(index)
        shutil.copytree(tmp_path, tmp_path / "crashed")
    assert not is_in_use(index)
    assert not is_in_use(tmp_path / "crashed" / "s.db-shm")
