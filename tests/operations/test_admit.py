"""An owner that is not sure to be the owner still holds back what would begin. In virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from operations import Operation, Status
from tests.operations.helpers import Held, drain, ends, group_of, held, shell, statuses

settled = trio.testing.wait_all_tasks_blocked


class Owner:
    """Whether it is still the owner; admit: waits until it is."""

    def __init__(self, *, sure: bool) -> None:
        self.asked = 0
        self._is_sure = trio.Event()
        if sure:
            self._is_sure.set()

    async def admit(self) -> None:
        self.asked += 1
        await self._is_sure.wait()

    def doubt(self) -> None:
        self._is_sure = trio.Event()

    def be_sure(self) -> None:
        self._is_sure.set()


STARTED = held("a", "b", "c")
RECOVERED = [*held("a", "b", status=Status.RUNNING), *held("c")]
BOTH_WAYS = pytest.mark.parametrize(("verb", "operations"), [("start", STARTED), ("recover", RECOVERED)])


@BOTH_WAYS
async def test_nothing_is_begun_or_taken_up_before_it_is_admitted(
    tmp_path: Path, verb: str, operations: Sequence[Operation]
) -> None:
    handler, owner = Held(), Owner(sure=False)
    async with group_of(tmp_path, handlers=[handler], admit=owner.admit) as group:
        getattr(group, verb)(operations)
        await settled()
        assert (handler.begun, handler.recovered, drain(group)) == ([], [], [])
        owner.be_sure()
        await settled()
        assert sorted(handler.begun + handler.recovered) == ["a", "b"]


@BOTH_WAYS
async def test_one_that_waited_for_its_slot_is_asked_for_when_it_has_one(
    tmp_path: Path, verb: str, operations: Sequence[Operation]
) -> None:
    handler, owner = Held(), Owner(sure=True)
    async with group_of(tmp_path, handlers=[handler], admit=owner.admit) as group:
        getattr(group, verb)(operations)
        await settled()
        assert owner.asked == 2
        owner.doubt()
        handler.finish("a")
        await ends(group, "a")
        await settled()
        assert owner.asked == 3
        assert "c" not in handler.begun + handler.recovered
        owner.be_sure()
        await settled()
        assert "c" in handler.begun + handler.recovered


async def test_no_command_is_started_for_an_owner_that_is_not_admitted(tmp_path: Path) -> None:
    owner = Owner(sure=False)
    async with group_of(tmp_path / "operations", admit=owner.admit) as group:
        group.recover([])
        group.start([shell("op", "echo x > ran", tmp_path)])
        await settled()
    assert not (tmp_path / "operations" / "op").exists()


async def test_one_that_is_not_admitted_yet_is_cancelled_at_once_and_never_begins(tmp_path: Path) -> None:
    handler, owner = Held(), Owner(sure=False)
    async with group_of(tmp_path, handlers=[handler], limits={"held": 1}, admit=owner.admit) as group:
        group.start(held("a", "b"))
        await settled()
        group.cancel(["a"], "enough")
        assert drain(group) == [("a", Status.CANCELLED)]
        owner.be_sure()
        await settled()
        assert handler.begun == ["b"], "the slot was not given back, or what was cancelled began"


async def test_one_of_a_predecessor_that_is_never_admitted_is_unknown_after_the_grace(
    tmp_path: Path, autojump_clock: Any
) -> None:
    handler, owner = Held(), Owner(sure=False)
    async with group_of(tmp_path, handlers=[handler], admit=owner.admit) as group:
        group.recover(held("a", status=Status.RUNNING))
        await settled()
        group.cancel(["a"], "enough")
        assert await statuses(group, "a") == [Status.CANCELLING, Status.UNKNOWN]
        owner.be_sure()
        await settled()
        assert handler.recovered == []


async def test_the_time_limit_does_not_count_the_wait_for_it(tmp_path: Path, autojump_clock: Any) -> None:
    owner = Owner(sure=False)
    async with group_of(tmp_path, handlers=[Held()], admit=owner.admit) as group:
        group.start(held("a", timeout_s=10))
        await trio.sleep(60)
        owner.be_sure()
        end = (await ends(group, "a", within_s=100))["a"]
        assert end.seconds == pytest.approx(10)


async def test_leaving_does_not_wait_for_it(tmp_path: Path) -> None:
    owner = Owner(sure=False)
    with trio.fail_after(5):
        async with group_of(tmp_path, handlers=[Held()], admit=owner.admit) as group:
            group.start(held("a"))
            await settled()
    assert drain(group) == []
