"""Logs of released versions load for ever, and what is newer than this code is refused before any of it is read."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing

import harness
from harness import events as ev
from store import MemoryStore, NewRecord, SqliteStore, Store
from store.maintenance import import_session
from tests.harness.world import TestModel, World

GOLDEN = Path(__file__).parents[1] / "golden"
RELEASES = sorted(path.name for path in GOLDEN.iterdir() if (path / "store.db").exists())
WHEN = "2026-01-01T00:00:00.000Z"

release = pytest.mark.parametrize("version", RELEASES)


@pytest.fixture
def copy(version: str, tmp_path: Path) -> Path:
    """A store of that release, to be opened by this one."""
    return Path(shutil.copy(GOLDEN / version / "store.db", tmp_path / "store.db"))


async def imported(version: str, name: str, store: Store) -> list[ev.Logged]:
    with (GOLDEN / version / f"{name}.jsonl").open("rb") as lines:
        info = await import_session(store, lines)
    return await harness.read_events(store, info.id)


def test_there_is_a_golden_log_of_this_release() -> None:
    assert harness.__version__ in RELEASES


@release
async def test_an_old_store_opens_and_its_sessions_are_whole(version: str, copy: Path) -> None:
    async with SqliteStore.open(copy) as store:
        assert await store.verify() == []
        for summary in await harness.sessions(store):
            log = await harness.read_events(store, summary.id)
            assert harness.check(log) == []
            assert harness.Replay(summary.id, log).check() == []
            assert summary.state == "idle" and len(log) == summary.events


@release
async def test_an_old_export_is_the_same_log(version: str, copy: Path) -> None:
    kinds: set[str] = set()
    async with SqliteStore.open(copy) as old:
        for name in ("session", "branch"):
            store = MemoryStore()
            log = await imported(version, name, store)
            (summary,) = [found for found in await harness.sessions(store) if found.events == len(log)]
            assert log == await harness.read_events(old, summary.id)
            kinds.update(entry.kind for entry in log)
    assert kinds == set(ev.BY_KIND), "a golden log has every kind of event that its release could write"


@release
async def test_an_old_session_goes_on(version: str, copy: Path) -> None:
    async with SqliteStore.open(copy) as store:
        before = await harness.read_events(store, "golden")
        model = harness.Scripted([{"text": "still here", "repeat": True}])
        async with harness.open_session(store, session_id="golden", model=model, workspace="/") as session:
            assert (await session.run("Are you there?")).text == "still here"
        log = await harness.read_events(store, "golden")
        assert log[: len(before)] == before
        assert harness.check(log) == [] and await store.verify() == []


# --- older


async def test_an_older_event_is_lifted_step_by_step_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if run_finished had been written by two older releases: without `text`, then with it under another name."""
    monkeypatch.setitem(ev.VERSIONS, "run_finished", 3)  # type: ignore[arg-type]
    monkeypatch.setitem(ev.UPCASTERS, ("run_finished", 1), lambda data: {**data, "said": "(not recorded)"})
    monkeypatch.setitem(
        ev.UPCASTERS,
        ("run_finished", 2),
        lambda data: {**{key: value for key, value in data.items() if key != "said"}, "text": data["said"]},
    )
    store = MemoryStore()
    await began(store)
    lease = await store.acquire("s")
    old: dict[str, Any] = {"kind": "run_finished", "run_id": "in-1", "outcome": "interrupted", "turns": 0}
    middle = {**old, "run_id": "in-2", "said": "nearly"}
    records = [
        record("input_accepted", 1, message("in-1")),
        record("run_finished", 1, old),
        record("input_accepted", 1, message("in-2")),
        record("run_finished", 2, middle),
    ]
    await store.append(lease, records, expected_seq=1)
    log = await harness.read_events(store, "s")
    ended = [entry.event for entry in log if isinstance(entry.event, ev.RunFinished)]
    assert [event.text for event in ended] == ["(not recorded)", "nearly"]
    assert harness.check(log) == []
    assert [found.version for found in await store.read("s") if found.kind == "run_finished"] == [1, 2]


# --- newer


def record(kind: str, version: int, data: dict[str, Any]) -> NewRecord:
    return NewRecord(kind, version, WHEN, msgspec.json.encode(data))


def message(input_id: str) -> dict[str, Any]:
    content = {"type": "message", "text": "go"}
    return {"kind": "input_accepted", "input_id": input_id, "source": "user", "content": content}


async def began(store: Store) -> None:
    opened = ev.SessionOpened(instructions="", model="test", tools=(), workspace="/")
    await store.create(
        "s", [NewRecord("session_opened", 1, WHEN, msgspec.json.encode(opened))], created_at=WHEN, title=""
    )


@pytest.mark.parametrize(("kind", "version", "needed"), [("run_finished", 2, "1"), ("dream_recorded", 1, "0")])
async def test_an_event_from_the_future_is_refused_and_nothing_runs(
    autojump_clock: trio.testing.MockClock, kind: str, version: int, needed: str
) -> None:
    world = World()
    await began(world.store)
    lease = await world.store.acquire("s")
    await world.store.append(lease, [record("input_accepted", 1, message("in-1"))], expected_seq=1)
    await world.store.append(lease, [record(kind, version, {"kind": kind})], expected_seq=2)
    await lease.release()
    with pytest.raises(harness.UnsupportedVersion) as refused:
        async with world.open("s"):
            pass
    line = str(refused.value)
    assert f"event 3 ({kind}) of session 's' has version {version}" in line
    assert f"knows up to {needed}" in line and "\n" not in line
    assert world.model.requests == [] and (await world.store.session("s")).length == 3
    with pytest.raises(harness.UnsupportedVersion):
        await harness.read_events(world.store, "s")
    assert (await world.store.session("s")).holder is None, "a refused opening holds nothing"


@release
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("PRAGMA user_version = 99", "store.db"),
        ("UPDATE sessions SET format_version = 99 WHERE id = 'golden'", "session 'golden'"),
    ],
)
async def test_a_store_or_session_from_the_future_is_refused(version: str, copy: Path, change: str, what: str) -> None:
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(change)
        connection.commit()
    before = copy.read_bytes()  # noqa: ASYNC240
    model = TestModel()
    with pytest.raises(harness.UnsupportedVersion) as refused:
        async with harness.open_session(copy, session_id="golden", model=model, workspace="/"):
            pass
    line = str(refused.value)
    assert what in line and "version 99" in line and "Upgrade turnlog" in line and "\n" not in line
    assert model.requests == []
    if "user_version" in change:
        assert copy.read_bytes() == before, "a file of a newer version is not touched"  # noqa: ASYNC240
