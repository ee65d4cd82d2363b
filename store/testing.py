"""The contract of a store, executable: run `check_store` on your own implementation.

Belongs here: one small check for each promise of `store.records.Store`, with a message that says which was broken.
Must not know: how a store keeps its promises. Durability and other processes cannot be seen from here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import trio
import trio.testing

from store.records import (
    CallerError,
    CorruptLog,
    NewRecord,
    Record,
    SequenceConflict,
    SessionBusy,
    SessionExists,
    StaleWriter,
    Store,
    StoreError,
    UnknownSequence,
    UnknownSession,
)
from store.sqlite import SqliteStore

WHEN = "2026-01-02T03:04:05Z"
PATIENCE_S = 5.0
"""Seconds (of trio's clock) that a wait may take before it counts as one that never returns."""

Check = Callable[[Store], Awaitable[None]]


def event(number: int, *, kind: str = "noted") -> NewRecord:
    """A small record, different for each number."""
    return NewRecord(kind, 1, WHEN, f'{{"number":{number},"text":"é\\u0000"}}'.encode())


def events(count: int, *, first: int = 1) -> list[NewRecord]:
    """`count` records numbered from `first`."""
    return [event(number) for number in range(first, first + count)]


async def check_store(make_store: Callable[[], AbstractAsyncContextManager[Store]]) -> None:
    """Run every check, each on a fresh store. Raises AssertionError with the broken promise in words.

    make_store: gives an empty store and closes it on leaving. Runs under trio, also under its autojump clock.
    """
    for check in CHECKS:
        async with make_store() as store:
            with trio.fail_after(10 * PATIENCE_S):
                await check(store)


def expect(condition: bool, promise: str) -> None:
    """Raise AssertionError unless `condition`. Not a plain assert: this ships, and must hold under `python -O`."""
    if not condition:
        raise AssertionError(f"the store broke its contract: {promise}")


@contextmanager
def refused(error: type[StoreError], promise: str) -> Iterator[None]:
    """Expect exactly this error."""
    try:
        yield
    except error:
        return
    raise AssertionError(f"the store broke its contract: {promise} ({error.__name__} expected)")


async def make(store: Store, session_id: str = "s", count: int = 1) -> None:
    """Create a session with `count` events."""
    await store.create(session_id, events(count), created_at=WHEN, title="a title")


async def numbers(store: Store, session_id: str) -> list[bytes]:
    """The data of a whole log."""
    return [record.data for record in await store.read(session_id)]


def data_of(records: list[NewRecord]) -> list[bytes]:
    """The data of records that were given."""
    return [record.data for record in records]


async def _what_was_created_is_read_back(store: Store) -> None:
    given = [*events(3), NewRecord("late_kind", 7, "2026-01-02T03:04:06Z", b"[]")]
    info = await store.create("s", given, created_at=WHEN, title="title \u2028")
    expect(info == await store.session("s"), "create returns the session's row")
    expect((info.length, info.title, info.parent_id) == (4, "title \u2028", None), "the row says what was created")
    expect(info.last_recorded_at == "2026-01-02T03:04:06Z", "the row has the time of the last event")
    read = await store.read("s")
    expect([record.seq for record in read] == [1, 2, 3, 4], "sequence numbers start at 1 without gaps")
    same = [NewRecord(record.kind, record.version, record.recorded_at, record.data) for record in read]
    expect(same == given, "kind, version, time and data come back byte for byte")
    expect({record.session_id for record in read} == {"s"}, "records name the session that owns them")
    expect(read[-1].hash == info.last_hash, "the row has the last hash")


async def _a_session_id_is_used_once(store: Store) -> None:
    await make(store)
    with refused(SessionExists, "create refuses an id that is taken"):
        await make(store)
    with refused(SessionExists, "fork refuses an id that is taken"):
        await store.fork("s", "s", [], at=1, created_at=WHEN, title="")
    expect(len(await store.read("s")) == 1, "a refused create changes nothing")


async def _an_unknown_session_is_an_error_everywhere(store: Store) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.session("no"),
        lambda: store.read("no"),
        lambda: store.ancestors("no"),
        lambda: store.acquire("no"),
        lambda: store.inputs("no"),
        lambda: store.submit("no", "i", b"{}", received_at=WHEN),
        lambda: store.wait_for_change("no", after=0),
        lambda: store.wait_for_input("no", after=0),
        lambda: store.verify("no"),
        lambda: store.fork("no", "b", [], at=1, created_at=WHEN, title=""),
        lambda: anext(store.follow("no")),
    ]
    for number, call in enumerate(calls):
        with refused(UnknownSession, f"a session that is not there is an error (call {number})"):
            await call()


async def _append_goes_on_after_the_last(store: Store) -> None:
    await make(store)
    lease = await store.acquire("s")
    added = await store.append(lease, events(2, first=2), expected_seq=1)
    expect([record.seq for record in added] == [2, 3], "append returns the records with their numbers")
    expect(added == await store.read("s", after=1), "append returns what is in the log")
    info = await store.session("s")
    expect((info.length, info.last_hash) == (3, added[-1].hash), "the row follows the log")
    expect(await store.append(lease, [], expected_seq=3) == [], "appending nothing appends nothing")


async def _a_stale_view_is_refused(store: Store) -> None:
    await make(store, count=2)
    lease = await store.acquire("s")
    for expected in (1, 3):
        with refused(SequenceConflict, "append refuses an expected_seq that is not the last"):
            await store.append(lease, events(1), expected_seq=expected)
    expect(len(await store.read("s")) == 2, "a refused append changes nothing")


async def _what_cannot_be_text_is_refused(store: Store) -> None:
    await make(store)
    lease = await store.acquire("s")
    with refused(CallerError, "data that is not UTF-8 is refused"):
        await store.append(lease, [event(2), NewRecord("noted", 1, WHEN, b"\xff")], expected_seq=1)
    with refused(CallerError, "a kind with half a character is refused"):
        await store.append(lease, [NewRecord("\ud800", 1, WHEN, b"{}")], expected_seq=1)
    expect(len(await store.read("s")) == 1, "an append is whole or nothing")


async def _parts_of_a_log_can_be_read(store: Store) -> None:
    await make(store, count=6)

    async def seqs(after: int = 0, upto: int | None = None, limit: int | None = None) -> list[int]:
        return [record.seq for record in await store.read("s", after=after, upto=upto, limit=limit)]

    expect(await seqs(after=2, upto=4) == [3, 4], "`after` is left out and `upto` is included")
    expect(await seqs(limit=2) == [1, 2], "`limit` bounds from the start")
    expect(await seqs(after=4, upto=99, limit=9) == [5, 6], "bounds beyond the end are the end")
    expect(await seqs(after=6) == [] and await seqs(after=99) == [], "there is nothing after the end")
    expect(await seqs(after=3, upto=2) == [] and await seqs(limit=0) == [], "an empty range is empty")


async def _a_lease_has_one_holder(store: Store) -> None:
    await make(store)
    first = await store.acquire("s", "the first")
    expect(first.valid_for_s > 0 and first.session_id == "s", "a lease that was just taken is valid")
    with refused(SessionBusy, "a held session is busy, in the same process too"):
        await store.acquire("s", "the second")
    holder = (await store.session("s")).holder
    expect(holder is not None and "the first" in holder, "the session's row names the holder")
    await first.renew()
    await first.release()
    await first.release()
    expect(first.valid_for_s == 0, "a released lease is not valid")
    expect((await store.session("s")).holder is None, "a released session has no holder")
    second = await store.acquire("s")
    expect(second.epoch > first.epoch, "the epoch grows with every holder")
    await first.release()
    await store.append(second, events(1), expected_seq=1)
    expect(second.valid_for_s > 0, "an old holder's release does nothing to the new one")


async def _an_old_holder_is_fenced_off(store: Store) -> None:
    await make(store)
    old = await store.acquire("s")
    await old.release()
    new = await store.acquire("s")
    with refused(StaleWriter, "an append with an old lease is refused, whatever it expects"):
        await store.append(old, events(1), expected_seq=77)
    with refused(StaleWriter, "an old lease cannot be renewed"):
        await old.renew()
    await store.append(new, events(1), expected_seq=1)
    expect(len(await store.read("s")) == 2, "only the new holder's append is there")


async def _a_branch_is_its_ancestors_and_its_own(store: Store) -> None:
    await make(store, count=5)
    lease = await store.acquire("s")
    info = await store.fork("s", "b", [event(100)], at=3, created_at=WHEN, title="a branch")
    expect((info.parent_id, info.parent_seq, info.length) == ("s", 3, 4), "a branch's row has its parent and length")
    await store.append(lease, [event(6)], expected_seq=5)
    branch = await store.acquire("b")
    await store.append(branch, [event(101)], expected_seq=4)
    expect(await numbers(store, "b") == data_of([*events(3), event(100), event(101)]), "a branch has its own history")
    expect(await numbers(store, "s") == data_of(events(6)), "the parent goes on by itself")
    expect((await store.read("b"))[:3] == (await store.read("s"))[:3], "inherited records are the parent's, unchanged")
    expect([r.seq for r in await store.read("b", after=2, upto=4)] == [3, 4], "a read crosses the fork point")
    expect(await store.ancestors("b") == [("s", 3)], "ancestors are named with the last inherited event")
    for at in (0, 7, -1):
        with refused(UnknownSequence, "only an event of the log can be forked at"):
            await store.fork("s", "c", [], at=at, created_at=WHEN, title="")


async def _a_fork_of_a_fork_may_start_before_it(store: Store) -> None:
    await make(store, count=5)
    await store.fork("s", "b", [event(11)], at=4, created_at=WHEN, title="")
    await store.fork("b", "early", [event(12)], at=2, created_at=WHEN, title="")
    await store.fork("b", "late", [], at=5, created_at=WHEN, title="")
    expect(await numbers(store, "early") == data_of([*events(2), event(12)]), "it inherits from the grandparent only")
    expect(await numbers(store, "late") == data_of([*events(4), event(11)]), "it inherits from both")
    expect(await store.ancestors("early") == [("s", 2), ("b", 2)], "ancestors run from the root to the parent")
    expect(await store.ancestors("late") == [("s", 4), ("b", 5)], "ancestors run from the root to the parent")
    expect((await store.read("late"))[-1].session_id == "b", "inherited records name their owner")
    expect(await store.verify("early") == [], "a branch verifies")


async def _the_list_is_by_last_activity(store: Store) -> None:
    for name in "abc":
        await make(store, name)
    # Earlier times on later events: a clock that was set back must not change the order.
    await store.append(await store.acquire("a"), [NewRecord("k", 1, "1999-01-01T00:00:00Z", b"1")], expected_seq=1)
    expect([info.id for info in await store.sessions()] == ["a", "c", "b"], "the last active session comes first")


async def _the_inbox_keeps_each_input_once(store: Store) -> None:
    await make(store)
    await make(store, "t")
    expect(await store.submit("s", "one", b'"first"', received_at=WHEN), "a new input is taken")
    expect(await store.submit("s", "two", b'"second"', received_at=WHEN), "a new input is taken")
    expect(not await store.submit("s", "one", b'"first"', received_at="2027-01-01T00:00:00Z"), "a repeat is not")
    with refused(CallerError, "an id that is taken by other data is refused"):
        await store.submit("s", "one", b'"other"', received_at=WHEN)
    expect(await store.submit("t", "one", b'"elsewhere"', received_at=WHEN), "ids are per session")
    found = await store.inputs("s")
    expect(
        [(e.input_id, e.data, e.received_at) for e in found] == [("one", b'"first"', WHEN), ("two", b'"second"', WHEN)],
        "inputs come back in order, as first given",
    )
    expect(found[0].position < found[1].position, "positions grow")
    expect(await store.inputs("s", after=found[0].position) == found[1:], "`after` leaves out what was seen")


async def _blobs_are_named_by_their_content(store: Store) -> None:
    digests = await store.put_blobs([b"one", b"\x00\xff" * 5000, b"one"])
    expect(digests[0] == digests[2] != digests[1], "the same bytes are the same blob")
    expect(await store.put_blobs([b"one"]) == digests[:1], "storing a blob again changes nothing")
    expect(await store.blob(digests[1]) == b"\x00\xff" * 5000, "the bytes come back")
    with refused(CorruptLog, "a blob that is not there is an error"):
        await store.blob("0" * 32)


async def _a_follower_sees_each_record_once(store: Store) -> None:
    await make(store, count=2)
    lease = await store.acquire("s")
    seen: list[Record] = []

    async def follow(records: AsyncIterator[Record]) -> None:
        async for record in records:
            seen.append(record)
            if record.seq == 7:
                break

    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, store.follow("s"))
            for seq in range(2, 7):
                await store.append(lease, events(1, first=seq + 1), expected_seq=seq)
    expect(seen == await store.read("s"), "a follower sees every record once, in order")
    tail = store.follow("s", after=6)
    expect((await anext(tail)).seq == 7, "a follower can start anywhere")
    with trio.move_on_after(0.01):
        await anext(tail)
    await store.append(lease, [event(8)], expected_seq=7)
    expect((await anext(tail)).seq == 8, "a follower that was cancelled goes on where it was")


async def _waits_return_when_there_is_more(store: Store) -> None:
    await make(store)
    await store.submit("s", "one", b"1", received_at=WHEN)
    lease = await store.acquire("s")
    with trio.fail_after(PATIENCE_S):
        await store.wait_for_change("s", after=0)
        await store.wait_for_input("s", after=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: store.wait_for_change("s", after=1))
            nursery.start_soon(lambda: store.wait_for_input("s", after=1))
            await trio.testing.wait_all_tasks_blocked()
            await store.append(lease, [event(2)], expected_seq=1)
            await store.submit("s", "two", b"2", received_at=WHEN)
    early = True
    with trio.move_on_after(0.05):
        await store.wait_for_change("s", after=2)
        early = False
    expect(early, "a wait does not return before there is more")


async def _a_cancelled_call_changes_nothing_or_all(store: Store) -> None:
    await make(store)
    lease = await store.acquire("s")
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.append(lease, events(3, first=2), expected_seq=1)
    expect(scope.cancelled_caught, "every method is a checkpoint")
    length = (await store.session("s")).length
    expect(length in (1, 4), "a cancelled append is whole or nothing")
    await store.append(lease, [event(9)], expected_seq=length)
    expect(await store.verify() == [], "the log is healthy afterwards")


async def _many_sessions_write_at_once(store: Store) -> None:
    async def work(name: str) -> None:
        await make(store, name)
        lease = await store.acquire(name)
        for seq in range(1, 5):
            await store.append(lease, events(1, first=seq + 1), expected_seq=seq)
            if seq == 2:
                with refused(SequenceConflict, "one refused append in a crowd fails alone"):
                    await store.append(lease, events(1), expected_seq=99)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(work, f"s{number}")
    for number in range(20):
        expect(await numbers(store, f"s{number}") == data_of(events(5)), "sessions do not mix")
    expect(await store.verify() == [], "everything verifies")


async def limit_disk(store: SqliteStore, free_pages: int | None) -> None:
    """Make SQLite report a full disk once the store's file has grown by `free_pages` pages; None lifts the limit."""

    def limit(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        most = 2**31 if free_pages is None else pages + free_pages
        connection.execute(f"PRAGMA max_page_count = {most}")

    await store.write(limit)


CHECKS: tuple[Check, ...] = (
    _what_was_created_is_read_back,
    _a_session_id_is_used_once,
    _an_unknown_session_is_an_error_everywhere,
    _append_goes_on_after_the_last,
    _a_stale_view_is_refused,
    _what_cannot_be_text_is_refused,
    _parts_of_a_log_can_be_read,
    _a_lease_has_one_holder,
    _an_old_holder_is_fenced_off,
    _a_branch_is_its_ancestors_and_its_own,
    _a_fork_of_a_fork_may_start_before_it,
    _the_list_is_by_last_activity,
    _the_inbox_keeps_each_input_once,
    _blobs_are_named_by_their_content,
    _a_follower_sees_each_record_once,
    _waits_return_when_there_is_more,
    _a_cancelled_call_changes_nothing_or_all,
    _many_sessions_write_at_once,
)
"""Every promise that can be seen from outside, one function each."""
