"""When a holder counts as gone: a table, with clocks and processes given. And what a store remembers of it."""

import gc
import os
import subprocess
import time
import weakref

import msgspec
import pytest

from store import SqliteStore, StaleWriter
from store.lease import Holding, Place, here, left_s, process_started
from store.testing import events
from tests.store.helpers import eventually

PLACE = Place(host="h", machine="m", boot_id="boot", namespace="ns")
HELD = Holding(
    epoch=1, token="t", holder="", place=PLACE, pid=7, pid_started="100",
    renewed_boottime_s=1000, ttl_s=10, expires_unix_s=5010,
)  # fmt: skip


def moved(**changes):
    return msgspec.structs.replace(HELD, place=msgspec.structs.replace(PLACE, **changes))


CASES = {
    "fresh": (HELD, 1000, "100", 10),
    "half over": (HELD, 1005, "100", 5),
    "over, though the process lives (stopped or hung)": (HELD, 1010, "100", 0),
    "its process has ended": (HELD, 1000, None, 0),
    "its process id belongs to another process now": (HELD, 1000, "999", 0),
    "released": (msgspec.structs.replace(HELD, token=None), 1000, "100", 0),
    "another container of this boot: its process id means nothing here": (moved(namespace="x"), 1004, None, 6),
    "this machine, started again": (moved(boot_id="earlier"), 3, "100", 0),
    "another machine: the wall clock decides": (moved(boot_id="b", host="other", machine="n"), 3, None, 8),
    "a machine that cannot be told from this one by name": (moved(boot_id="b", machine="n"), 3, None, 8),
    "no boot id there, so the wall clock decides": (moved(boot_id=""), 1000, "100", 8),
}


@pytest.mark.parametrize(("row", "boottime", "started", "left"), CASES.values(), ids=CASES)
def test_what_a_holder_has_left(row, boottime, started, left):
    assert left_s(row, PLACE, boottime=boottime, unix=5002, started=lambda pid: started) == left


@pytest.mark.parametrize("unix", [0, 5000 - 7200, 5000 + 7200, 10**12])
def test_the_wall_clock_may_jump_without_any_effect_on_one_machine(unix):
    assert left_s(HELD, PLACE, boottime=1004, unix=unix, started=lambda pid: "100") == 6


def test_a_process_that_ended_counts_as_gone_before_anybody_reaps_it():
    assert process_started(os.getpid()) is not None
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert process_started(process.pid) is not None
        process.kill()
        deadline = time.monotonic() + 10
        while process_started(process.pid) is not None and time.monotonic() < deadline:
            pass
        assert process_started(process.pid) is None
    finally:
        process.wait()
    assert process_started(process.pid) is None


def test_this_place_is_known():
    assert here().boot_id
    assert here().namespace
    assert here() == here()


async def test_a_store_forgets_leases_that_are_held_no_longer(tmp_path):
    async with SqliteStore.open(tmp_path / "s.db") as store:
        for number in range(4):
            await store.create(f"s{number}", events(1), created_at="", title="")
        released, taken_over, stale, held = [await store.acquire(f"s{number}") for number in range(4)]
        await store.write(lambda connection: connection.execute("UPDATE leases SET epoch = 9 WHERE session_id != 's3'"))
        await released.release()
        with pytest.raises(StaleWriter):
            await taken_over.renew()
        with pytest.raises(StaleWriter):
            await store.append(stale, events(1, first=2), expected_seq=1)
        known = [weakref.ref(lease) for lease in (released, taken_over, stale, held)]
        del released, taken_over, stale, held

        async def forgotten():  # the writing thread lets go of its last batch a moment after it has told of it
            gc.collect()
            return [lease() is None for lease in known] == [True, True, True, False]

        await eventually(forgotten)
    async with SqliteStore.open(tmp_path / "s.db") as store:
        assert (await store.session("s3")).holder is None, "what was held is released on closing"
