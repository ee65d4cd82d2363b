"""Export, import, salvage and backup."""

import os
import sqlite3
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import (
    CallerError,
    CorruptLog,
    MemoryStore,
    NewRecord,
    SessionExists,
    SqliteStore,
    StoreUnavailable,
    UnknownSession,
    UnsupportedVersion,
)
from store.maintenance import backup, export_session, import_session
from store.testing import event, events, limit_disk
from tests.store.helpers import damaged_copy

MAKERS = ("sqlite", "memory")


@asynccontextmanager
async def fresh(kind, folder, name):
    if kind == "memory":
        yield MemoryStore()
    else:
        async with SqliteStore.open(folder / f"{name}.db") as store:
            yield store


async def lines_of(store, session_id):
    return [line async for line in export_session(store, session_id)]


async def family(store):
    """A root, a branch of it, and a branch of the branch that starts before the branch does."""
    (digest,) = await store.put_blobs([b"\x89PNG image"])
    shown = NewRecord("shown", 2, "2026-01-01T00:00:00Z", f'{{"image":"{digest}","other":"{"0" * 32}"}}'.encode())
    await store.create("root", [*events(3), shown, event(5)], created_at="2025-01-01T00:00:00Z", title="the root")
    await store.fork("root", "branch", events(2, first=10), at=4, created_at="c", title="a branch")
    await store.fork("branch", "twig", [event(20)], at=2, created_at="c", title="")
    await store.submit("branch", "one", b'"hello \\u2028"', received_at="r")
    await store.submit("branch", "two", b'"again"', received_at="r")
    return digest


@pytest.mark.parametrize("source", MAKERS)
@pytest.mark.parametrize("target", MAKERS)
async def test_a_branch_arrives_with_its_history_inbox_and_images(tmp_path, source, target):
    async with fresh(source, tmp_path, "a") as old, fresh(target, tmp_path, "b") as new:
        digest = await family(old)
        info = await import_session(new, await lines_of(old, "branch"))
        assert info == await new.session("branch") == await old.session("branch")
        assert await new.read("branch") == await old.read("branch")
        assert await new.inputs("branch") == await old.inputs("branch")
        assert await new.ancestors("branch") == await old.ancestors("branch") == [("root", 4)]
        assert await new.blob(digest) == b"\x89PNG image"
        assert (await new.session("root")).length == 4, "an ancestor arrives cut at the fork"
        assert await new.verify() == []
        assert await lines_of(new, "branch") == await lines_of(old, "branch")
        lease = await new.acquire("branch")
        await new.append(lease, [event(9)], expected_seq=6)


@pytest.mark.parametrize("kind", MAKERS)
async def test_branches_of_one_family_share_the_ancestors_that_are_there(tmp_path, kind):
    async with fresh(kind, tmp_path, "a") as old, fresh(kind, tmp_path, "b") as new:
        await family(old)
        for name in ("root", "twig"):
            await import_session(new, await lines_of(old, name))
        assert await new.ancestors("twig") == await old.ancestors("twig") == [("root", 2), ("branch", 2)]
        assert (await new.session("root")).length == 5
        assert await new.read("twig") == await old.read("twig")
        with pytest.raises(SessionExists):
            await import_session(new, await lines_of(old, "branch"))  # came with the twig, cut at its fork
        assert await new.verify() == []


@pytest.mark.parametrize("kind", MAKERS)
async def test_an_ancestor_with_another_history_is_refused_and_nothing_is_added(tmp_path, kind):
    async with fresh(kind, tmp_path, "a") as old, fresh(kind, tmp_path, "b") as new:
        await family(old)
        await new.create("root", events(9, first=50), created_at="", title="")
        with pytest.raises(CallerError, match="'root' is here with another history"):
            await import_session(new, await lines_of(old, "branch"))
        assert [info.id for info in await new.sessions()] == ["root"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
records = st.lists(
    st.builds(
        NewRecord,
        st.text("abc_é", min_size=1, max_size=5),
        st.integers(0, 9),
        st.just("2026-01-01T00:00:00Z"),
        json_values.map(msgspec.json.encode),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(own=records, branch=records, data=st.data())
def test_any_log_survives_export_and_import(own, branch, data):
    at = data.draw(st.integers(1, len(own)))

    async def round_trip():
        old, new = MemoryStore(), MemoryStore()
        await old.create("s", own, created_at="c", title="é\n")
        await old.fork("s", "b", branch, at=at, created_at="c", title="")
        for name in ("s", "b"):
            await import_session(new, await lines_of(old, name))
            assert await new.read(name) == await old.read(name)
            assert await new.session(name) == await old.session(name)

    trio.run(round_trip)


async def test_every_damaged_byte_of_an_export_is_refused_and_nothing_is_added():
    old, new = MemoryStore(), MemoryStore()
    await family(old)
    whole = b"".join(await lines_of(old, "branch"))
    for place in range(0, len(whole) - 1, 3):
        damaged = bytearray(whole)
        damaged[place] ^= 0x04
        with pytest.raises((CallerError, CorruptLog, UnsupportedVersion)):
            await import_session(new, bytes(damaged).splitlines(keepends=True))
        assert await new.sessions() == []


@pytest.mark.parametrize("keep", [0, 1, 4, -1])
async def test_an_export_that_is_cut_off_is_refused(keep):
    old = MemoryStore()
    await family(old)
    lines = await lines_of(old, "branch")
    with pytest.raises(CallerError, match=r"export is (cut off|empty)"):
        await import_session(MemoryStore(), lines[:keep])
    with pytest.raises(CallerError, match="after its end"):
        await import_session(MemoryStore(), [*lines, lines[1]])


async def test_what_is_no_export_or_a_newer_one_is_refused():
    with pytest.raises(CallerError, match="not an exported session"):
        await import_session(MemoryStore(), [b'{"hello": 1}\n'])
    newer = b'{"type":"turnlog_export","version":2,"what":"ever"}\n'
    with pytest.raises(UnsupportedVersion, match="the export has version 2"):
        await import_session(MemoryStore(), [newer])
    with pytest.raises(UnknownSession):
        await lines_of(MemoryStore(), "no")


async def test_the_healthy_part_of_a_damaged_session_can_be_salvaged(tmp_path):
    async with SqliteStore.open(tmp_path / "a.db") as store:
        await store.create("s", events(9), created_at="", title="")
        await store.fork("s", "b", events(2), at=8, created_at="", title="")
    change = "UPDATE events SET data = '{}' WHERE session_id = 's' AND seq = 6"
    async with SqliteStore.open(damaged_copy(tmp_path / "a.db", tmp_path / "d.db", change)) as damaged:
        for name in ("s", "b"):
            lines = []
            with pytest.raises(CorruptLog, match="at event 6"):
                async for line in export_session(damaged, name):
                    lines.append(line)  # noqa: PERF401  # what came before the error counts
            with pytest.raises(CorruptLog, match="at event 6"):
                await import_session(MemoryStore(), lines)
            saved = MemoryStore()
            assert (await import_session(saved, lines, salvaged=True)).length == 5
            assert await saved.read(name) == await damaged.read(name, upto=5)


async def test_an_import_that_finds_the_disk_full_adds_nothing(tmp_path):
    old = MemoryStore()
    await old.create("s", events(400), created_at="", title="")
    await old.fork("s", "b", events(1), at=300, created_at="", title="")
    async with SqliteStore.open(tmp_path / "s.db") as new:
        await limit_disk(new, 5)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await import_session(new, await lines_of(old, "b"))
        await limit_disk(new, None)
        assert await new.sessions() == []
        await import_session(new, await lines_of(old, "b"))


async def test_an_export_may_be_left_at_any_point():
    store = MemoryStore()
    await family(store)
    async for line in export_session(store, "branch"):
        assert line.startswith(b'{"type":"turnlog_export"')
        break
    await store.read("branch")


async def test_a_backup_is_whole_while_sessions_write(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        await store.create("s", events(1), created_at="", title="")
        lease = await store.acquire("s")
        lengths = []

        async def write():
            for seq in range(1, 200):
                await store.append(lease, [event(seq + 1)], expected_seq=seq)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            for number in range(3):
                target = tmp_path / f"backup{number}.db"
                await backup(tmp_path / "s.db", target)
                async with SqliteStore.open(target) as copy:
                    assert await copy.verify() == []
                    lengths.append((await copy.session("s")).length)
        assert lengths == sorted(lengths)
    assert not list(tmp_path.glob("*.partial"))


async def test_a_backup_is_as_private_as_the_store_while_it_is_made_and_afterwards(tmp_path, monkeypatch):
    async with SqliteStore.open(tmp_path / "s.db"):
        pass
    modes = []
    connect = sqlite3.connect

    def connected(path, *args, **kwargs):
        modes.extend(each.stat().st_mode & 0o777 for each in tmp_path.glob("*.partial"))
        return connect(path, *args, **kwargs)

    monkeypatch.setattr(sqlite3, "connect", connected)
    before = os.umask(0)
    try:
        await backup(tmp_path / "s.db", tmp_path / "b.db")
    finally:
        os.umask(before)
    assert modes and set(modes) == {0o600}
    assert (tmp_path / "b.db").stat().st_mode & 0o777 == 0o600


async def test_a_backup_never_replaces_a_file_and_names_what_is_wrong(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db"):
        pass
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(CallerError, match="precious exists already"):
        await backup(tmp_path / "s.db", tmp_path / "precious")
    assert (tmp_path / "precious").read_text() == "mine"
    with pytest.raises(StoreUnavailable, match="no store here"):
        await backup(tmp_path / "none.db", tmp_path / "b.db")
    with pytest.raises(StoreUnavailable) as caught:
        await backup(tmp_path / "s.db", tmp_path / "no" / "b.db")
    missing, folder = tmp_path / "no" / "b.db", tmp_path / "no"
    assert str(caught.value) == f"{missing}: its folder does not exist. Create {folder}, or name another file."
    with pytest.raises(StoreUnavailable) as caught:  # a folder that takes no files, for the superuser too
        await backup(tmp_path / "s.db", Path("/proc/b.db"))
    assert str(caught.value).startswith("/proc/b.db: ") and "s.db" not in str(caught.value)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE t (a)")
    with pytest.raises(StoreUnavailable, match="another program"):
        await backup(tmp_path / "other.db", tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()
