"""Python callables: what they return, what they raise, and those that do not stop."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from operations import Ended, Operation, OperationManager, OperationSpec, Status
from tests.operations.helpers import drain, ends, function, group_of, run, until

settled = trio.testing.wait_all_tasks_blocked


async def test_arguments_go_in_and_a_result_comes_out_of_both_kinds(tmp_path: Path) -> None:
    async def in_the_loop(arguments: dict[str, Any]) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"sum": arguments["a"] + arguments["b"]}

    threads: list[int] = []

    def in_a_thread(arguments: dict[str, Any]) -> dict[str, Any]:
        threads.append(threading.get_ident())
        return {"sum": arguments["a"] + arguments["b"]}

    class Callable_:  # noqa: N801
        async def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
            return {"sum": arguments["a"] + arguments["b"]}

    functions = {"loop": in_the_loop, "thread": in_a_thread, "object": Callable_(), "lambda": lambda a: in_the_loop(a)}
    async with group_of(tmp_path, functions) as group:
        for name in functions:
            args = {"name": name, "arguments": {"a": 1, "b": 2}}
            end = await run(group, Operation(name, OperationSpec("function", 1, args)))
            assert (end.status, end.result) == (Status.COMPLETED, {"sum": 3})
    assert threads[0] != threading.get_ident()


async def test_a_function_may_say_itself_how_it_ended(tmp_path: Path) -> None:
    answer = Ended(Status.FAILED, {"error": "no luck"}, blobs=(b"picture",))
    async with group_of(tmp_path, {"f": lambda _: answer}) as group:
        end = await run(group, function("op", "f"))
        assert (end.status, end.result, end.blobs) == (Status.FAILED, answer.result, answer.blobs)


@pytest.mark.parametrize("value", [None, "text", 3, {"x": object()}, [1]])
async def test_what_is_no_json_object_is_a_failure(tmp_path: Path, value: Any) -> None:
    async with group_of(tmp_path, {"f": lambda _: value}) as group:
        end = await run(group, function("op", "f"))
        assert end.status is Status.FAILED
        assert (end.result or {})["error"]


async def test_a_failure_without_a_message_has_a_text(tmp_path: Path) -> None:
    def fails(_: Any) -> None:
        raise RuntimeError()

    async with group_of(tmp_path, {"f": fails}) as group:
        end = await run(group, function("op", "f"))
        assert (end.status, end.result) == (Status.FAILED, {"error": "RuntimeError"})


async def test_a_function_that_is_not_registered_is_named(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        end = await run(group, function("op", "gone"))
        assert end.status is Status.FAILED
        assert "'gone'" in (end.result or {})["error"]


async def test_cancelling_a_coroutine_cancels_it(tmp_path: Path) -> None:
    async def waits(_: Any) -> dict[str, Any]:
        await trio.sleep_forever()
        return {}

    async with group_of(tmp_path, {"f": waits}) as group:
        group.start([function("op", "f")])
        await settled()
        group.cancel(["op"], "enough")
        end = (await ends(group, "op"))["op"]
        assert (end.status, end.result) == (Status.CANCELLED, {"reason": "enough"})


async def test_a_thread_that_does_not_end_is_said_to_be_running_still(tmp_path: Path) -> None:
    stop = threading.Event()
    begun = threading.Event()

    def stuck(_: Any) -> dict[str, Any]:
        begun.set()
        stop.wait(20)
        return {"late": True}

    async with group_of(tmp_path, {"f": stuck, "quick": lambda _: {}}, cancel_grace_s=0.1) as group:
        group.start([function("op", "f")])
        await trio.to_thread.run_sync(begun.wait)
        group.cancel(["op"], "enough")
        end = (await ends(group, "op"))["op"]
        assert end.status is Status.UNKNOWN
        assert "may still be running" in (end.result or {})["error"]
        stop.set()
        await run(group, function("other", "quick"))
        assert ("op", Status.COMPLETED) not in drain(group), "the late result was recorded"


async def test_a_thread_that_ends_within_the_grace_has_its_result_recorded(tmp_path: Path) -> None:
    stop, begun = threading.Event(), threading.Event()

    def slow(_: Any) -> dict[str, Any]:
        begun.set()
        stop.wait(20)
        return {"done": True}

    async with group_of(tmp_path, {"f": slow}) as group:
        group.start([function("op", "f")])
        await trio.to_thread.run_sync(begun.wait)
        group.cancel(["op"], "enough")
        stop.set()
        end = (await ends(group, "op"))["op"]
        assert (end.status, end.result) == (Status.COMPLETED, {"done": True})


async def test_closing_does_not_wait_for_a_stuck_thread(tmp_path: Path) -> None:
    stop, begun = threading.Event(), threading.Event()

    def stuck(_: Any) -> None:
        begun.set()
        stop.wait(20)

    try:
        with trio.fail_after(5):
            async with group_of(tmp_path, {"f": stuck}) as group:
                group.start([function("op", "f")])
                await trio.to_thread.run_sync(begun.wait)
    finally:
        stop.set()


async def test_the_time_limit_of_a_function_is_the_managers(tmp_path: Path, autojump_clock: Any) -> None:
    async def waits(_: Any) -> dict[str, Any]:
        await trio.sleep_forever()
        return {}

    async with group_of(tmp_path, {"f": waits}) as group:
        end = await run(group, function("op", "f", timeout_s=7), within_s=60)
        assert (end.status, end.result) == (Status.FAILED, {"error": "timed out after 7 s", "timed_out": True})


async def test_a_thread_that_is_over_its_time_is_not_said_to_have_failed(tmp_path: Path) -> None:
    """Its effect may still come: that it failed would be a guess, and a wrong one."""
    stop = threading.Event()
    effects: list[str] = []

    def slow(_: Any) -> dict[str, Any]:
        stop.wait(20)
        effects.append("charged")
        return {}

    async with group_of(tmp_path, {"f": slow}, cancel_grace_s=0.1) as group:
        end = await run(group, function("op", "f", timeout_s=0.05))
        assert end.status is Status.UNKNOWN and not effects
        text = "timed out after 0.05 s; it could not be stopped within 0.1 s and may still be running"
        assert end.result == {"error": text, "timed_out": True}
        stop.set()
        await until(lambda: effects == ["charged"])


async def test_what_ends_in_the_grace_after_its_time_is_what_it_became(tmp_path: Path, autojump_clock: Any) -> None:
    async def stubborn(_: Any) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await trio.sleep(3)
        return {"charged": True}

    async with group_of(tmp_path, {"f": stubborn}) as group:
        end = await run(group, function("op", "f", timeout_s=1), within_s=60)
        assert (end.status, end.result, end.seconds) == (Status.COMPLETED, {"charged": True}, 3.0)


async def test_a_cancel_of_what_is_over_its_time_does_not_make_it_another_end(
    tmp_path: Path, autojump_clock: Any
) -> None:
    async def slow_to_stop(_: Any) -> dict[str, Any]:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(2)
        return {}

    async with group_of(tmp_path, {"f": slow_to_stop}) as group:
        group.start([function("op", "f", timeout_s=1)])
        await trio.sleep(2)
        group.cancel(["op"], "enough")
        end = (await ends(group, "op"))["op"]
        assert (end.status, end.result) == (Status.FAILED, {"error": "timed out after 1 s", "timed_out": True})


async def test_functions_that_wait_for_functions_of_others_do_not_take_their_places(tmp_path: Path) -> None:
    """As tools do that open sessions of their own: a limit over all of them would keep the inner ones out for ever."""
    manager = OperationManager(limits={"function": 2})

    async def outer(_: Any) -> dict[str, Any]:
        async with manager.open_group(tmp_path / "inner", {"f": lambda _: {"inner": True}}) as group:
            return (await run(group, function("op", "f"))).result or {}

    async with manager.open_group(tmp_path / "outer", {"f": outer}) as group:
        group.start([function(name, "f") for name in "abc"])
        found = await ends(group, *"abc")
        assert [end.result for end in found.values()] == [{"inner": True}] * 3


@pytest.mark.parametrize(("idempotent", "status"), [(True, Status.COMPLETED), (False, Status.UNKNOWN)])
async def test_recovery_calls_again_only_what_is_declared_harmless(
    tmp_path: Path, idempotent: bool, status: Status
) -> None:
    calls: list[int] = []

    def counted(_: Any) -> dict[str, Any]:
        calls.append(1)
        return {}

    async with group_of(tmp_path, {"f": counted}) as group:
        group.recover([function("op", "f", idempotent=idempotent)])
        assert (await ends(group, "op"))["op"].status is status
    assert len(calls) == idempotent
