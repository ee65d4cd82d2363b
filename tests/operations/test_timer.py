"""Timers, in virtual time: whole waits, the rest of one, and very many."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from operations import Operation, OperationSpec, Status
from operations.boot import boot_id, boottime_s
from tests.operations.helpers import ends, group_of, memory_bytes, run, statuses


def timer(id_: str, seconds: Any, **more: Any) -> Operation:
    return Operation(id_, OperationSpec("timer", 1, {"seconds": seconds}), **more)


async def test_a_timer_takes_its_time_and_no_more(tmp_path: Path, autojump_clock: Any) -> None:
    async with group_of(tmp_path) as group:
        end = await run(group, timer("t", 3600), within_s=4000)
        assert (end.status, end.result) == (Status.COMPLETED, {})
        assert end.seconds == pytest.approx(3600)


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf, "soon", None])
async def test_a_duration_that_is_none_fails(tmp_path: Path, seconds: Any) -> None:
    async with group_of(tmp_path) as group:
        end = await run(group, timer("t", seconds))
        assert end.status is Status.FAILED
        assert (end.result or {})["error"]


@pytest.mark.parametrize("boot", [boot_id(), "another"], ids=["same boot", "restarted"])
async def test_a_recovered_timer_waits_for_the_rest(tmp_path: Path, autojump_clock: Any, boot: str) -> None:
    here = boot == boot_id()
    checkpoint = {
        "boot": boot,
        "due_boottime_s": boottime_s() + (100 if here else -100),
        "due_unix_s": time.time() + (-100 if here else 100),
    }
    async with group_of(tmp_path) as group:
        before = trio.current_time()
        group.recover([timer("t", 3600, status=Status.RUNNING, checkpoint=checkpoint)])
        await ends(group, "t", within_s=4000)
        assert trio.current_time() - before == pytest.approx(100, abs=2)


async def test_a_recovered_timer_that_is_overdue_ends_at_once(tmp_path: Path, autojump_clock: Any) -> None:
    checkpoint = {"boot": boot_id(), "due_boottime_s": 1.0, "due_unix_s": 1.0}
    async with group_of(tmp_path) as group:
        group.recover([timer("t", 3600, status=Status.RUNNING, checkpoint=checkpoint)])
        await ends(group, "t", within_s=1)


async def test_cancelling_a_timer_ends_it(tmp_path: Path, autojump_clock: Any) -> None:
    async with group_of(tmp_path) as group:
        group.start([timer("t", 3600)])
        await trio.sleep(1)
        group.cancel(["t"], "enough")
        assert await statuses(group, "t") == ["running", "cancelling", "cancelled"]


async def test_ten_thousand_pending_timers_are_cheap(tmp_path: Path, autojump_clock: Any) -> None:
    names = [f"t{number}" for number in range(10_000)]
    async with group_of(tmp_path) as group:
        before, began = memory_bytes(), time.process_time()
        group.start([timer(name, 60) for name in names])
        await trio.sleep(30)
        assert memory_bytes() - before < 200_000_000
        await ends(group, *names, within_s=100)
        assert time.process_time() - began < 8
