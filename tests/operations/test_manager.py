"""The life of operations: order, limits, cancelling in each state, time limits, letting go. In virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from operations import (
    TERMINAL,
    Context,
    Ended,
    IllegalTransition,
    Operation,
    OperationManager,
    OperationSpec,
    Progress,
    Status,
    Update,
)
from tests.operations.helpers import Held, drain, ends, group_of, held, run, statuses, until

settled = trio.testing.wait_all_tasks_blocked
CANCEL = ("running", "cancelling", "cancelled")


class Doing:
    """A handler that does what the test gives it."""

    type, version, limit = "doing", 1, 10

    def __init__(self, work: Callable[[Context], Any]) -> None:
        self._work = work

    async def start(self, operation: Operation, context: Context) -> Ended:
        return await self._work(context)

    recover = start

    async def cancel(self, operation: Operation) -> bool:
        return False


def doing(timeout_s: float | None = None) -> Operation:
    return Operation("d", OperationSpec("doing", 1, {}, timeout_s))


async def test_those_over_the_limit_wait_as_ready_and_begin_in_order(tmp_path: Path) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        names = [f"op{number}" for number in range(20)]
        group.start(held(*names))
        await settled()
        assert sorted(handler.begun) == names[:2]
        for begun, name in enumerate(names, start=3):
            handler.finish(name)
            await settled()
            assert handler.begun[2:] == names[2:begun]


async def test_one_limit_holds_over_all_groups(tmp_path: Path) -> None:
    handler = Held()
    manager = OperationManager([handler], {"held": 3})
    async with manager.open_group(tmp_path / "a") as first, manager.open_group(tmp_path / "b") as second:
        first.start(held("a1", "a2"))
        second.start(held("b1", "b2"))
        await settled()
        assert sorted(handler.begun) == ["a1", "a2", "b1"]
        handler.finish("a1")
        await settled()
        assert handler.begun[3:] == ["b2"]


async def test_a_closed_group_gives_its_slots_back(tmp_path: Path) -> None:
    handler = Held()
    manager = OperationManager([handler])
    async with manager.open_group(tmp_path / "a") as first:
        first.start(held("a1", "a2", "a3"))
        await settled()
    async with manager.open_group(tmp_path / "b") as second:
        second.start(held("b1", "b2"))
        await settled()
        assert sorted(handler.begun[2:]) == ["b1", "b2"]


@pytest.mark.parametrize("limits", [{"held": 0}, {"other": 1}])
def test_a_limit_that_cannot_hold_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="limit"):
        OperationManager([Held()], limits)


def test_two_handlers_of_one_type_and_version_are_refused() -> None:
    with pytest.raises(ValueError, match="two handlers"):
        OperationManager([Held(), Held()])


async def test_an_id_is_used_once_and_only_ready_operations_start(tmp_path: Path) -> None:
    async with group_of(tmp_path, handlers=[Held()]) as group:
        group.start(held("a"))
        for wrong in (held("a"), held("b", "b"), held("c", status=Status.RUNNING)):
            with pytest.raises(ValueError, match="operation"):
                group.start(wrong)
        with pytest.raises(ValueError, match="completed"):
            group.recover(held("d", status=Status.COMPLETED))
        await settled()
        assert drain(group) == [("a", Status.RUNNING)]


@pytest.mark.parametrize("obeys", [False, None], ids=["leaves it to the manager", "raises"])
async def test_cancelling_a_running_one_is_announced_and_then_done(tmp_path: Path, obeys: bool | None) -> None:
    async with group_of(tmp_path, handlers=[Held(obeys=obeys)]) as group:
        group.start(held("a"))
        await settled()
        group.cancel(["a"], "enough")
        group.cancel(["a"], "again")
        assert drain(group) == [("a", Status.RUNNING), ("a", Status.CANCELLING)]
        end = (await ends(group, "a"))["a"]
        assert (end.status, end.result) == (Status.CANCELLED, {"reason": "enough"})
        group.cancel(["a", "never was"], "late")
        await settled()
        assert drain(group) == []


async def test_cancelling_one_that_waits_never_begins_it(tmp_path: Path) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.start(held("a", "b", "c", "d"))
        await settled()
        drain(group)
        group.cancel(["c"], "enough")
        assert drain(group) == [("c", Status.CANCELLED)]
        handler.finish("a")
        await settled()
        assert handler.begun[2:] == ["d"]
        assert handler.asked == []


async def test_cancelling_before_the_task_had_a_turn_never_begins_it(tmp_path: Path) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.start(held("a"))
        group.cancel(["a"], "at once")
        assert await statuses(group, "a") == ["cancelled"]
        await settled()
        assert handler.begun == []


async def test_work_that_ends_first_wins_the_race_against_its_cancellation(tmp_path: Path) -> None:
    handler = Held(obeys=True)
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.start(held("a"))
        await settled()
        group.cancel(["a"], "enough")
        handler.finish("a")
        assert await statuses(group, "a") == ["running", "cancelling", "completed"]


async def test_what_the_log_shows_as_cancelling_goes_on_being_cancelled(tmp_path: Path) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.recover(held("a", status=Status.CANCELLING))
        assert await statuses(group, "a") == ["cancelled"]
        assert (handler.begun, handler.recovered) == ([], ["a"])


async def test_recovery_calls_recover_and_running_ones_do_not_wait_for_slots(tmp_path: Path) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.recover([*held("a", "b", "c", status=Status.RUNNING), *held("d", "e")])
        await settled()
        assert sorted(handler.recovered) == ["a", "b", "c"]
        for name in "ab":
            handler.finish(name)
            await settled()
        assert handler.recovered[3:] == ["d"]
        assert handler.begun == []


async def test_a_recovered_one_that_waits_is_cancelled_by_its_handler_not_by_assumption(tmp_path: Path) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        group.recover([*held("a", "b", status=Status.RUNNING), *held("c")])
        await settled()
        group.cancel(["c"], "enough")
        assert await statuses(group, "c") == list(CANCEL)
        assert "c" in handler.recovered


async def test_an_unknown_type_is_an_end_that_names_it(tmp_path: Path) -> None:
    strange = Operation("x", OperationSpec("teleport", 7, {}))
    async with group_of(tmp_path, handlers=[Held()]) as group:
        end = await run(group, strange)
        assert end.status is Status.FAILED
        assert "'teleport' version 7" in (end.result or {})["error"]
        group.recover([strange])
        assert (await ends(group, "x"))["x"].status is Status.UNKNOWN


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, math.nan, math.inf])
async def test_a_time_limit_that_is_none_is_refused_before_anything_runs(tmp_path: Path, timeout_s: float) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler]) as group:
        end = await run(group, held("a", timeout_s=timeout_s)[0])
        assert end.status is Status.FAILED
        assert "timeout_s" in (end.result or {})["error"]
        assert handler.begun == []


async def test_the_time_limit_counts_from_the_beginning_of_the_work(tmp_path: Path, autojump_clock: Any) -> None:
    handler = Held()
    async with group_of(tmp_path, handlers=[handler], limits={"held": 1}) as group:
        group.start(held("a"))
        group.start(held("b", timeout_s=10))
        await trio.sleep(60)
        handler.finish("a")
        end = (await ends(group, "b", within_s=100))["b"]
        assert end.status is Status.FAILED
        assert end.result == {"error": "timed out after 10 s", "timed_out": True}
        assert end.seconds == pytest.approx(10)


async def test_seconds_are_elapsed_time(tmp_path: Path, autojump_clock: Any) -> None:
    async def work(context: Context) -> Ended:
        await trio.sleep(12.5)
        return Ended(Status.COMPLETED, {})

    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        assert (await run(group, doing())).seconds == pytest.approx(12.5)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError(), "RuntimeError"),
        (KeyError("where"), "KeyError: 'where'"),
        (ValueError("   "), "ValueError"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("two", [ValueError("a"), TypeError("b")]), "ValueError: a; TypeError: b"),
    ],
)
async def test_whatever_a_handler_raises_is_a_failure_with_a_text(
    tmp_path: Path, error: BaseException, text: str
) -> None:
    async def work(context: Context) -> Ended:
        raise error

    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        end = await run(group, doing())
        assert (end.status, end.result) == (Status.FAILED, {"error": text})


@pytest.mark.parametrize("answer", [None, Ended(Status.RUNNING, {})])
async def test_a_handler_that_does_not_say_how_it_ended_has_failed(tmp_path: Path, answer: Any) -> None:
    async def work(context: Context) -> Any:
        return answer

    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        assert (await run(group, doing())).status is Status.FAILED


async def test_an_illegal_step_is_raised_and_never_emitted(tmp_path: Path) -> None:
    async def work(context: Context) -> Ended:
        await context.running()
        cast("Any", context).emit(Update("d", Status.READY))  # which handlers are not offered
        raise AssertionError

    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        end = await run(group, doing())
        assert IllegalTransition.__name__ in (end.result or {})["error"]


async def test_work_that_swallows_its_cancellation_is_given_up_after_the_grace(tmp_path: Path) -> None:
    left: list[str] = []

    async def work(context: Context) -> Ended:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                while True:
                    with suppress(trio.Cancelled):
                        await trio.sleep(60)
        finally:
            left.append(context.folder.name)

    async with group_of(tmp_path, handlers=[Doing(work)], cancel_grace_s=0.1) as group:
        group.start([doing()])
        await settled()
        group.cancel(["d"], "enough")
        end = (await ends(group, "d"))["d"]
        assert end.status is Status.UNKNOWN
        assert "could not be stopped within 0.1 s" in (end.result or {})["error"]
        await until(lambda: left)
        assert await run(group, Operation("e", OperationSpec("none", 1, {})))


async def test_a_time_limit_that_the_work_ignores_ends_it_as_unknown(tmp_path: Path) -> None:
    async def work(context: Context) -> Ended:
        while True:
            with suppress(trio.Cancelled):
                await trio.sleep(60)

    async with group_of(tmp_path, handlers=[Doing(work)], cancel_grace_s=0.1) as group:
        end = await run(group, doing(timeout_s=0.05))
        assert end.status is Status.UNKNOWN
        assert (end.result or {})["timed_out"] is True


async def test_closing_does_not_wait_for_work_that_ignores_it(tmp_path: Path) -> None:
    async def work(context: Context) -> Ended:
        while True:
            with suppress(trio.Cancelled):
                await trio.sleep(60)

    with trio.fail_after(10):
        async with group_of(tmp_path, handlers=[Doing(work)], cancel_grace_s=0.1) as group:
            group.start([doing()])
            await settled()


async def test_closing_lets_go_without_recording_anything(tmp_path: Path) -> None:
    async def work(context: Context) -> Ended:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("while it was let go")

    async with group_of(tmp_path, handlers=[Held(), Doing(work)]) as group:
        group.start([*held("a", "b", "c"), doing()])
        await settled()
        drain(group)
    assert drain(group) == []
    with pytest.raises(trio.EndOfChannel):
        await group.updates.receive()


async def test_every_operation_has_one_end_under_random_cancels(tmp_path: Path, autojump_clock: Any) -> None:
    async def work(context: Context) -> Ended:
        await context.running()
        await trio.sleep(1)
        return Ended(Status.COMPLETED, {})

    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        operations = [Operation(f"o{number}", OperationSpec("doing", 1, {})) for number in range(100)]
        group.start(operations)
        for number in range(0, 100, 3):
            await trio.sleep(0.07)
            group.cancel([f"o{number}", f"o{99 - number}"], "some")
        found = await ends(group, *(operation.id for operation in operations), within_s=1000)
        assert all(update.status in TERMINAL for update in found.values())


async def test_live_output_reaches_the_owner_and_nobody_else_pays(tmp_path: Path) -> None:
    seen: list[Progress] = []
    listening: list[bool] = []

    async def work(context: Context) -> Ended:
        listening.append(context.listening)
        context.progress("half")
        return Ended(Status.COMPLETED, {})

    async with group_of(tmp_path, handlers=[Doing(work)], on_progress=seen.append) as group:
        await run(group, doing())
    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        await run(group, doing())
    assert (seen, listening) == ([Progress("d", "half")], [True, False])


async def test_an_iteration_over_updates_can_be_left_and_taken_up_again(tmp_path: Path) -> None:
    async with group_of(tmp_path, handlers=[Held()]) as group:
        group.start(held("a", "b"))
        async for update in group.updates:
            assert update.operation_id in "ab"
            break
        async for _ in group.updates:
            break
        assert group.updates.take_nowait() == []


async def test_ids_that_are_no_file_names_stay_inside_the_folder(tmp_path: Path) -> None:
    folders: list[Path] = []

    async def work(context: Context) -> Ended:
        folders.append(context.folder)
        return Ended(Status.COMPLETED, {})

    names = ["../up", "/abs", ".", "..", "", "a" * 300, "a\0b", "\ud800", "ok-1"]
    async with group_of(tmp_path, handlers=[Doing(work)]) as group:
        group.start([Operation(name, OperationSpec("doing", 1, {})) for name in names])
        await ends(group, *names)
    assert {folder.parent for folder in folders} == {tmp_path}
    assert len(set(folders)) == len(names)
    assert tmp_path / "ok-1" in folders
