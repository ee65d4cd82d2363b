"""One writer: who may hold a session, who takes over when, and what the one that lost it still does (nothing)."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

import harness
from harness import events as ev
from harness.holding import wait_until_held
from operations import OperationManager
from store import MemoryStore, SqliteStore
from tests.harness.scripts import replies
from tests.harness.world import World, call, settle

ROOT = Path(__file__).parents[2]
PATIENCE_S = 20.0


class Holder:
    """A process that holds a session, and what it prints."""

    def __init__(self, folder: Path, ttl_s: float = 10.0, prompt: str = "") -> None:
        self.folder, self.store = folder, folder / "s.db"
        command = [
            sys.executable,
            "-m",
            "tests.harness.holder",
            str(self.store),
            "held",
            str(folder),
            str(ttl_s),
            prompt,
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self.line() == "open\n"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lines_written(self) -> list[str]:
        path = self.folder / "lines.txt"
        return path.read_text().split() if path.exists() else []

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    made: list[Holder] = []
    yield made
    for holder in made:
        holder.end()


async def until(condition: Callable[[], Awaitable[bool]], *, within_s: float = PATIENCE_S) -> float:
    """Seconds until `condition` (a coroutine function) holds."""
    started = time.monotonic()
    with trio.fail_after(within_s):
        while not await condition():  # noqa: ASYNC110  (another process cannot set our events)
            await trio.sleep(0.01)
    return time.monotonic() - started


def opened(store: SqliteStore, holder: Holder):
    return harness.open_session(
        store, session_id="held", workspace=holder.folder, model=harness.Scripted(replies()), tools=[harness.bash()]
    )


async def test_a_second_opener_is_told_who_holds_the_session_and_a_killed_holder_holds_nothing(
    tmp_path: Path, holders: list[Holder]
) -> None:
    holders.append(holder := Holder(tmp_path))
    async with SqliteStore.open(holder.store) as store:
        before = await store.read("held")
        with pytest.raises(harness.SessionBusy) as refused:
            async with opened(store, holder):
                pass
        assert str(holder.process.pid) in str(refused.value) and socket.gethostname() in str(refused.value)
        assert await store.read("held") == before
        holder.signal(signal.SIGKILL)
        holder.process.wait()
        started = time.monotonic()
        async with opened(store, holder) as session:
            assert time.monotonic() - started < 2.0, "a dead holder's lease has not to run out"
            assert (await session.run("hello")).text == "done"


async def test_a_holder_that_was_stopped_beyond_its_lease_appends_nothing_and_starts_nothing(
    tmp_path: Path, holders: list[Holder]
) -> None:
    holders.append(holder := Holder(tmp_path, ttl_s=1.0, prompt="two commands"))

    async def first_runs() -> bool:
        return holder.lines_written() == ["one"]

    await until(first_runs)
    # The second command waits for its slot in the process that is stopped here; it is queued, and in the log as ready.
    holder.signal(signal.SIGSTOP)
    async with SqliteStore.open(holder.store) as store:

        async def lease_ran_out() -> bool:
            return (await store.session("held")).holder is None

        await until(lease_ran_out)
        async with opened(store, holder) as session:
            taken_at = session.state.seq
            assert session.current_run is not None
            result = await session.current_run.result()
            holder.signal(signal.SIGCONT)
            assert holder.line().startswith("StaleWriter")
            assert result.outcome == "completed" and holder.lines_written() == ["one", "two"]
        log = await harness.read_events(store, "held")
        assert len(log) > taken_at and harness.check(log) == []
        assert await store.verify() == []


async def test_inputs_from_another_process_are_taken_up_within_a_tenth_of_a_second(
    tmp_path: Path, holders: list[Holder]
) -> None:
    holders.append(holder := Holder(tmp_path))
    async with SqliteStore.open(holder.store) as store:

        async def accepted(input_id: str) -> bool:
            log = await harness.read_events(store, "held")
            return any(isinstance(e.event, ev.InputAccepted) and e.event.input_id == input_id for e in log)

        took_s = []
        for number in range(5):
            input_id = f"message-{number}"
            assert await harness.submit(store, "held", "think", input_id) == input_id
            assert await harness.submit(store, "held", "think", input_id) == input_id
            took_s.append(await until(lambda: accepted(input_id)))  # noqa: B023
        # The median: the machine that runs this may be busy with something else.
        assert sorted(took_s)[2] < 0.25, took_s
        with pytest.raises(harness.CallerError):
            await harness.submit(store, "held", "something else", "message-0")
        log = await harness.read_events(store, "held")
        assert sum(isinstance(e.event, ev.InputAccepted) for e in log) == 5


@pytest.mark.parametrize(
    ("control", "outcome"), [(ev.Interrupt("enough"), "interrupted"), (ev.Cancel("stop"), "cancelled")]
)
async def test_another_process_interrupts_and_cancels(
    tmp_path: Path, holders: list[Holder], control: ev.Content, outcome: str
) -> None:
    holders.append(holder := Holder(tmp_path, prompt="two commands"))
    async with SqliteStore.open(holder.store) as store:

        async def first_runs() -> bool:
            return holder.lines_written() == ["one"]

        await until(first_runs)
        await harness.submit(store, "held", control)
        assert holder.line() == outcome + "\n"
        log = await harness.read_events(store, "held")
        assert harness.check(log) == []
        if outcome == "cancelled":
            assert holder.lines_written() == ["one"], "what waited for its slot never ran"


# --- the same in virtual time, where the moment can be chosen


async def test_an_operation_that_waits_for_its_slot_is_not_started_by_a_holder_that_lost_its_lease(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.manager = OperationManager([world.handler], limits={"shell": 1})
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call("one"), call("two")])
        await settle()
        (running,) = world.handler.started
        world.store.drop_lease(session.id)
        lease = await world.store.acquire(session.id, "another")
        world.handler.end(running)
        with pytest.raises(harness.StaleWriter):
            await run.result()
        assert world.handler.started == [running]
        await lease.release()


async def test_a_store_that_grants_little_time_has_its_leases_renewed_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    world.store = MemoryStore(lease_ttl_s=0.9)
    async with world.open() as session:
        for _ in range(20):
            await trio.sleep(0.5)
            assert (await world.store.session(session.id)).holder is not None


async def test_what_waits_for_a_lease_goes_on_when_the_disk_has_room_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    full = True

    def fail(name: str) -> None:
        if name == "renew" and full:
            raise harness.StoreUnavailable("database or disk is full")

    store = MemoryStore(fail=fail)
    await store.create("s", [], created_at="2026-01-01T00:00:00.000Z", title="")
    lease = await store.acquire("s")
    await trio.sleep(11.0)
    with trio.move_on_after(5.0) as waiting:
        await wait_until_held(lease)
    assert waiting.cancelled_caught
    full = False
    await wait_until_held(lease)
    assert lease.valid_for_s > 0
