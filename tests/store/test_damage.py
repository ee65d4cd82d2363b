"""Damage to the file is named by session and event, and never read past."""

import asyncio
import os
import sqlite3
from contextlib import closing

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from store import CorruptBlob, CorruptLog, Damage, NewRecord, SqliteStore, StoreError, StoreUnavailable
from store.asyncio_reader import open_reader
from store.chain import Altered, checked, committed, frame, link, prepare, seed
from store.maintenance import export_session
from store.testing import event, events
from tests.store.helpers import damaged_copy

ALTERED = "it was altered or moved (its hash does not match)"


@pytest.fixture
async def healthy(tmp_path):
    path = tmp_path / "healthy.db"
    async with SqliteStore.open(path) as store:
        await store.create("s", events(6), created_at="", title="")
        await store.fork("s", "b", events(2, first=100), at=4, created_at="", title="")
        await store.submit("s", "i", b'"hello"', received_at="")
        await store.put_blobs([b"blob"])
    return path


def set_data(seq, value):
    return ("UPDATE events SET data = ? WHERE session_id = 's' AND seq = ?", (value, seq))


CASES = {
    "NUL bytes": ([set_data(3, "\0" * 300)], 3, ALTERED),
    "a blob": ([set_data(3, b"\0" * 300)], 3, ALTERED),
    "not UTF-8": (["UPDATE events SET data = CAST(x'ff' AS TEXT) WHERE session_id = 's' AND seq = 3"], 3, ALTERED),
    "a number": ([set_data(3, 5), "UPDATE events SET kind = x'ff' WHERE seq = 3"], 3, "it cannot be read"),
    "null hash": (["UPDATE events SET hash = '' WHERE session_id = 's' AND seq = 3"], 3, ALTERED),
    "kind": (["UPDATE events SET kind = 'other' WHERE session_id = 's' AND seq = 1"], 1, ALTERED),
    "deleted": (["DELETE FROM events WHERE session_id = 's' AND seq = 2"], 2, "it is missing"),
    "many deleted": (
        ["DELETE FROM events WHERE session_id = 's' AND seq BETWEEN 2 AND 4"], 2, "3 events from here on are missing",
    ),
    "last lost": (["DELETE FROM events WHERE session_id = 's' AND seq = 6"], 6, "it is missing"),
    "version is text": (["UPDATE events SET version = 'x' WHERE session_id = 's' AND seq = 4"], 4, "it cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("statements", "seq", "problem"), CASES.values(), ids=CASES)
async def test_damage_is_named_and_nothing_is_read_past_it(healthy, tmp_path, statements, seq, problem):
    async with SqliteStore.open(damaged_copy(healthy, tmp_path / "d.db", *statements)) as store:
        assert [(d.session_id, d.seq, d.problem) for d in await store.verify("s")] == [("s", seq, problem)]
        with pytest.raises(CorruptLog) as error:
            await store.read("s")
        assert (error.value.session_id, error.value.seq) == ("s", seq)
        assert len(await store.read("s", upto=seq - 1)) == seq - 1, "what is before the damage stays readable"
        with pytest.raises(CorruptLog):
            await store.read("s", after=seq - 1, limit=1)
        if seq <= 4:
            with pytest.raises(CorruptLog) as error:
                await store.read("b")
            assert (error.value.session_id, error.value.seq) == ("b", seq)
            with pytest.raises(CorruptLog):
                await store.fork("s", "new", [], at=seq, created_at="", title="")


async def test_events_whose_data_was_swapped_are_both_named(healthy, tmp_path):
    third, fourth = (record.data.decode() for record in events(2, first=3))
    path = damaged_copy(healthy, tmp_path / "d.db", set_data(3, fourth), set_data(4, third))
    async with SqliteStore.open(path) as store:
        assert await store.verify("s") == [Damage("s", 3, ALTERED), Damage("s", 4, ALTERED)]


async def test_events_that_changed_places_are_named(healthy, tmp_path):
    moves = ((-3, 3), (3, 4), (4, -3))
    statements = [f"UPDATE events SET seq = {to} WHERE session_id = 's' AND seq = {was}" for to, was in moves]
    async with SqliteStore.open(damaged_copy(healthy, tmp_path / "d.db", *statements)) as store:
        assert [damage.seq for damage in await store.verify("s")][:2] == [3, 4]
        with pytest.raises(CorruptLog, match="at event 3"):
            await store.read("s")


ROWS = {
    "length too long": ("UPDATE sessions SET length = 7 WHERE id = 's'", 7),
    "length too short": ("UPDATE sessions SET length = 5 WHERE id = 's'", 5),
    "last hash": ("UPDATE sessions SET last_hash = x'00112233445566778899aabbccddeeff' WHERE id = 's'", 6),
    "length is text": ("UPDATE sessions SET length = 'many' WHERE id = 's'", None),
    "title is not text": ("UPDATE sessions SET title = CAST(x'ff' AS TEXT) WHERE id = 's'", None),
    "its own parent": ("UPDATE sessions SET parent_id = 's', parent_seq = 1 WHERE id = 's'", None),
}


@pytest.mark.parametrize(("statement", "seq"), ROWS.values(), ids=ROWS)
async def test_a_damaged_row_of_sessions_is_found(healthy, tmp_path, statement, seq):
    async with SqliteStore.open(damaged_copy(healthy, tmp_path / "d.db", statement)) as store:
        with pytest.raises(CorruptLog) as error:
            await store.read("s")
        assert error.value.seq == seq
        assert (await store.verify("s"))[0].seq == seq


async def test_a_missing_ancestor_is_damage_of_the_branch(healthy, tmp_path):
    async with SqliteStore.open(
        damaged_copy(healthy, tmp_path / "d.db", "DELETE FROM sessions WHERE id = 's'")
    ) as store:
        with pytest.raises(CorruptLog, match="its ancestor 's' is missing"):
            await store.read("b")
        problems = {(damage.session_id, damage.problem) for damage in await store.verify()}
        assert problems == {("b", "its ancestor 's' is missing"), ("s", "6 events belong to no session")}


async def test_a_forged_event_beyond_the_end_is_found_and_stops_the_next_append(healthy, tmp_path):
    columns = "session_id, seq, kind, version, recorded_at, data, hash"
    forged = f"INSERT INTO events ({columns}) VALUES ('s', 7, 'k', 1, '', '', x'')"

    async with SqliteStore.open(damaged_copy(healthy, tmp_path / "d.db", forged)) as store:
        assert await store.verify("s") == [Damage("s", 7, "it is outside its log")]
        lease = await store.acquire("s")
        with pytest.raises(CorruptLog, match="at event 7"):
            await store.append(lease, [event(7)], expected_seq=6)


async def test_damaged_inputs_and_blobs_are_found(healthy, tmp_path):
    path = damaged_copy(
        healthy, tmp_path / "d.db", "UPDATE inputs SET data = '\"bye\"'", "UPDATE blobs SET data = x'00'"
    )
    async with SqliteStore.open(path) as store:
        with pytest.raises(CorruptLog, match="entry 1 of its inbox was altered"):
            await store.inputs("s")
        (digest,) = await store.put_blobs([b"blob"])
        with pytest.raises(CorruptBlob, match=f"blob {digest} is altered"):
            await store.blob(digest)
        assert [damage.problem for damage in await store.verify()] == [
            "entry 1 of its inbox was altered",
            f"blob {digest} is altered",
        ]


async def test_overwritten_pages_are_an_error_and_not_a_crash(healthy, tmp_path):
    raw = bytearray(healthy.read_bytes())
    raw[8192:] = b"\xa5" * (len(raw) - 8192)
    path = tmp_path / "d.db"
    path.write_bytes(raw)
    with pytest.raises(StoreError):
        async with SqliteStore.open(path) as store:
            await store.read("s")


async def test_a_damaged_row_of_sessions_hides_no_other_session(healthy, tmp_path):
    damage = "UPDATE sessions SET length = 'many', title = CAST(x'ff' AS TEXT) WHERE id = 's'"
    async with SqliteStore.open(damaged_copy(healthy, tmp_path / "d.db", damage)) as store:
        listed = {info.id: info for info in await store.sessions()}
        assert (listed["s"].length, listed["s"].title, listed["b"].length) == (6, "\ufffd", 6)


@pytest.fixture
async def long_log(tmp_path):
    path = tmp_path / "long.db"
    async with SqliteStore.open(path) as store:
        for name in ("early", "late"):
            await store.create(name, events(1200), created_at="", title="")
    return path


async def test_an_event_on_a_lost_page_is_named_and_what_is_before_it_is_read(long_log):
    os.truncate(long_log, long_log.stat().st_size * 3 // 4)
    before = long_log.read_bytes()
    async with SqliteStore.open(long_log) as store:
        assert len(await store.read("early")) == 1200
        with pytest.raises(CorruptLog, match="the database file is damaged there") as lost:
            await store.read("late")
        assert len(await store.read("late", upto=lost.value.seq - 1)) == lost.value.seq - 1 > 100
        assert ("late", lost.value.seq) in [(damage.session_id, damage.seq) for damage in await store.verify()]
        assert await store.verify("early") == []
        for write in (store.acquire("early"), store.submit("early", "i", b"1", received_at="")):
            with pytest.raises(StoreUnavailable, match="the database file is damaged"):
                await write
    lines, damage = [], None
    async with SqliteStore.open(long_log) as store:
        try:
            async for line in export_session(store, "late"):
                lines.append(line)  # noqa: PERF401  # those before the damage are to be kept
        except CorruptLog as error:
            damage = error.seq
    assert (len(lines), damage) == (lost.value.seq + 1, lost.value.seq)  # a header, the events before it, and the end
    assert long_log.read_bytes() == before
    assert [entry.name for entry in long_log.parent.iterdir()] == [long_log.name]


async def test_an_asyncio_reader_finds_the_same_lost_page(long_log):
    os.truncate(long_log, long_log.stat().st_size * 3 // 4)

    async def read():
        async with open_reader(long_log) as reader:
            assert len(await reader.read("early")) == 1200
            await reader.read("late")

    async with SqliteStore.open(long_log) as store:
        with pytest.raises(CorruptLog) as ours:
            await store.read("late")
    with pytest.raises(CorruptLog) as theirs:
        await trio.to_thread.run_sync(asyncio.run, read())
    assert str(theirs.value) == str(ours.value)


async def test_the_database_refuses_to_change_what_was_committed(healthy):
    with closing(sqlite3.connect(healthy)) as connection:
        for table in ("events", "inputs", "blobs"):
            for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET data = ''"):
                with pytest.raises(sqlite3.IntegrityError, match=f"{table} are append-only"):
                    connection.execute(statement)
            with pytest.raises(sqlite3.IntegrityError, match=f"{table} are append-only"):
                connection.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
new_records = st.builds(NewRecord, texts, st.integers(0, 2**40), texts, texts.map(str.encode))


def stored(records):
    return [(r.seq, r.kind.encode(), r.version, r.recorded_at.encode(), r.data, r.hash) for r in records]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(new_records, min_size=1, max_size=3))
def test_every_flipped_byte_of_every_field_breaks_the_chain(records):
    rows = stored(committed("s", seed("s"), 1, prepare(records)))
    assert len(checked("s", seed("s"), 1, rows)) == len(records)
    for number, row in enumerate(rows):
        for column in (1, 3, 4, 5):
            for place in range(len(row[column])):
                changed = bytearray(row[column])
                changed[place] ^= 0x20
                damaged = list(rows)
                damaged[number] = (*row[:column], bytes(changed), *row[column + 1 :])
                with pytest.raises(Altered):
                    checked("s", seed("s"), 1, damaged)


@given(st.lists(texts.map(str.encode), min_size=6, max_size=6))
def test_moving_bytes_between_fields_is_another_hash(parts):
    one, other = (frame(parts[i], 1, parts[i + 1], parts[i + 2]) for i in (0, 3))
    assert (link(b"p", 1, one) == link(b"p", 1, other)) == (parts[:3] == parts[3:])


async def test_every_flipped_byte_of_a_small_log_is_found_by_verify_in_the_database(healthy, tmp_path):
    path = damaged_copy(healthy, tmp_path / "d.db")
    async with SqliteStore.open(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as vandal:
            rows = vandal.execute(
                "SELECT position, seq, column, CAST(value AS BLOB) FROM ("
                + " UNION ALL ".join(
                    f"SELECT position, seq, '{c}' AS column, {c} AS value FROM events WHERE session_id = 's'"
                    for c in ("kind", "recorded_at", "data", "hash")
                )
                + ")"
            ).fetchall()
            flips = 0
            for position, seq, column, value in rows:
                kind = "BLOB" if column == "hash" else "TEXT"
                for place in range(0, len(value), 5 if column == "data" else 7):
                    changed = bytearray(value)
                    changed[place] ^= 1
                    sql = f"UPDATE events SET {column} = CAST(? AS {kind}) WHERE position = ?"
                    vandal.execute(sql, (bytes(changed), position))
                    assert (await store.verify("s"))[0].seq == seq
                    vandal.execute(sql, (value, position))
                    flips += 1
            assert flips > 60
        assert await store.verify() == []


def test_the_same_record_has_another_hash_at_another_place():
    framed = frame(b"kind", 1, b"then", b"{}")
    assert link(b"previous", 1, framed) != link(b"previous", 2, framed)
    assert seed("a") != seed("b")
