"""What is opened, what is refused, in which words, and that a refusal leaves the file alone."""

import os
import sqlite3
import sys
from contextlib import closing

import pytest
import trio

from store import FORMAT_VERSION, CallerError, SqliteStore, StoreUnavailable, UnsupportedVersion
from store.schema import SCHEMA_VERSION
from store.testing import events
from tests.store.helpers import ROOT, damaged_copy


async def refusal(path, error=StoreUnavailable, **options):
    with pytest.raises(error) as caught:
        async with SqliteStore.open(path, **options):
            pass
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


async def made(path):
    async with SqliteStore.open(path) as store:
        await store.create("s", events(2), created_at="", title="")
    return path


async def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "no" / "s.db"
    assert "its folder does not exist. Create" in await refusal(path)
    assert not path.parent.exists()


async def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "its folder does not exist" in await refusal(tmp_path / "file" / "s.db")


async def test_a_folder_that_cannot_be_written_is_named():
    with pytest.raises(StoreUnavailable, match=r"^/proc/s\.db: "):
        async with SqliteStore.open("/proc/s.db"):
            pass


async def test_a_folder_or_a_pipe_is_no_store(tmp_path):
    assert "this is not a file" in await refusal(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    assert "this is not a file" in await refusal(tmp_path / "fifo")


@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b"SQLite format 3\0"], ids=["short", "long", "header only"])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "it is not a turnlog store" in await refusal(path)
    assert path.read_bytes() == content
    assert names(tmp_path) == ["notes.txt"]


@pytest.mark.parametrize("pragma", ["PRAGMA application_id = 77", "PRAGMA user_version = 0"])
async def test_another_programs_database_is_refused_and_left_alone(tmp_path, pragma):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mine (a)")
        connection.execute(pragma)
    before = path.read_bytes()
    assert "it is another program's database" in await refusal(path)
    assert path.read_bytes() == before
    assert names(tmp_path) == ["other.db"]


async def test_a_newer_schema_is_refused_before_anything_on_disk_changes(tmp_path):
    path = damaged_copy(await made(tmp_path / "a.db"), tmp_path / "b.db", f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    (tmp_path / "a.db").unlink()
    before = names(tmp_path), path.read_bytes(), path.stat().st_mtime_ns
    message = await refusal(path, UnsupportedVersion)
    assert f"has version {SCHEMA_VERSION + 1}, but this turnlog knows up to {SCHEMA_VERSION}" in message
    assert (names(tmp_path), path.read_bytes(), path.stat().st_mtime_ns) == before


async def test_a_newer_schema_that_is_still_in_the_write_ahead_log_is_refused(tmp_path):
    path = await made(tmp_path / "s.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        newer.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
        await refusal(path, UnsupportedVersion)


async def test_a_newer_session_is_refused_by_every_call_and_listed(tmp_path):
    change = f"UPDATE sessions SET format_version = {FORMAT_VERSION + 1}"
    async with SqliteStore.open(damaged_copy(await made(tmp_path / "a.db"), tmp_path / "b.db", change)) as store:
        for call in (
            lambda: store.session("s"),
            lambda: store.read("s"),
            lambda: store.acquire("s"),
            lambda: store.inputs("s"),
            lambda: store.submit("s", "i", b"1", received_at=""),
            lambda: store.fork("s", "b", [], at=1, created_at="", title=""),
            lambda: anext(store.follow("s")),
        ):
            with pytest.raises(UnsupportedVersion):
                await call()
        assert [info.format_version for info in await store.sessions()] == [FORMAT_VERSION + 1]


async def test_an_empty_file_is_made_a_store_or_is_damage_when_one_is_expected(tmp_path):
    path = tmp_path / "s.db"
    path.touch()
    assert "the file is empty" in await refusal(path, create=False)
    async with SqliteStore.open(path) as store:
        assert await store.sessions() == []


async def test_nothing_is_made_where_a_store_is_expected(tmp_path):
    assert "there is no store here" in await refusal(tmp_path / "s.db", create=False)
    assert names(tmp_path) == []


async def test_a_name_with_odd_characters_is_a_name(tmp_path):
    path = await made(tmp_path / "a ?mode=memory#%41é.db")
    assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf")])
async def test_an_impossible_time_to_live_is_refused(tmp_path, ttl_s):
    with pytest.raises(CallerError, match="lease_ttl_s"):
        async with SqliteStore.open(tmp_path / "s.db", lease_ttl_s=ttl_s):
            pass


async def test_a_store_is_private_and_durable_by_its_settings(tmp_path):
    path = await made(tmp_path / "s.db")
    assert path.stat().st_mode & 0o077 == 0
    async with SqliteStore.open(path) as store:
        settings = await store.write(
            lambda connection: [
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
            ]
        )
    assert settings == [b"wal", 2]
    assert names(tmp_path) == ["s.db"], "closing leaves one file"


async def test_the_tables_can_be_queried_by_other_tools(tmp_path):
    with closing(sqlite3.connect(await made(tmp_path / "s.db"))) as connection:
        rows = connection.execute("SELECT seq, json_extract(data, '$.number'), typeof(data) FROM events").fetchall()
    assert rows == [(1, 1, "text"), (2, 2, "text")]


async def test_an_up_to_date_store_is_opened_without_slow_imports(tmp_path):
    path = await made(tmp_path / "s.db")
    program = (
        "import sys, trio, store\n"
        "async def main():\n"
        f"    async with store.SqliteStore.open({str(path)!r}) as s: await s.read('s')\n"
        "trio.run(main)\n"
        "print(sorted({'sqlite_utils', 'aiosqlite', 'asyncio', 'harness', 'operations'} & set(sys.modules)))"
    )
    done = await trio.run_process([sys.executable, "-c", program], cwd=ROOT, capture_stdout=True)
    assert done.stdout.strip() == b"[]"
