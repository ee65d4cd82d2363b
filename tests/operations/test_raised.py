"""What handlers and functions raise, or give back, is the end of their call and of nothing else."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing

from operations import Ended, Operation, OperationGroup, OperationManager, Status, Update
from operations.wording import MOST_CHARS
from tests.operations.helpers import Held, drain, ends, function, group_of, held, run, shell

settled = trio.testing.wait_all_tasks_blocked


class Mute(Exception):
    def __str__(self) -> str:
        raise OSError("no text")


class MuteForGood(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class Foreign(BaseException):
    """As of a framework that has its own idea of a cancellation."""


def deep_group() -> BaseException:
    error: BaseException = Foreign("leaf")
    for _ in range(5000):
        error = BaseExceptionGroup("level", [error])
    return error


ERRORS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "half a character": (lambda: ValueError("caf\udce9"), "ValueError: caf\ufffd"),
    "no text": (Mute, "Mute"),
    "an exit instead of a text": (MuteForGood, "MuteForGood"),
    "enormous": (lambda: ValueError("x" * 5_000_000), "ValueError: xxx"),
    "asyncio's cancellation": (asyncio.CancelledError, "CancelledError"),
    "GeneratorExit": (GeneratorExit, "GeneratorExit"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit: 3"),
    "StopIteration": (lambda: StopIteration(3), "RuntimeError: "),
    "another framework's": (lambda: Foreign("gone"), "Foreign: gone"),
    "a group": (lambda: BaseExceptionGroup("", [Foreign("a"), ValueError("b\udce9")]), "Foreign: a; ValueError: b"),
    "a deep group": (deep_group, "Foreign: leaf"),
}
INTERRUPTS: dict[str, tuple[Callable[[], BaseException], str]] = {
    "KeyboardInterrupt": (KeyboardInterrupt, "KeyboardInterrupt"),
    "a group with KeyboardInterrupt": (lambda: BaseExceptionGroup("", [KeyboardInterrupt()]), "KeyboardInterrupt"),
}


def raising(make: Callable[[], BaseException]) -> Callable[[Any], Any]:
    def function(_: Any) -> None:
        raise make()

    return function


def raising_async(make: Callable[[], BaseException]) -> Callable[[Any], Any]:
    async def function(_: Any) -> None:
        await trio.lowlevel.checkpoint()
        raise make()

    return function


CASES = [
    *(pytest.param(raising_async(make), text, id=f"{name}, in the loop") for name, (make, text) in ERRORS.items()),
    *(
        pytest.param(raising(make), text, id=f"{name}, in a thread")
        for name, (make, text) in {**ERRORS, **INTERRUPTS}.items()
    ),
]


@pytest.mark.parametrize(("raises", "text"), CASES)
async def test_whatever_a_function_raises_ends_its_call_and_nothing_beside_it(
    tmp_path: Path, raises: Callable[[Any], Any], text: str
) -> None:
    beside = trio.Event()

    async def waits(_: Any) -> dict[str, Any]:
        await beside.wait()
        return {"went": "on"}

    async with group_of(tmp_path, {"f": raises, "waits": waits}) as group:
        group.start([function("beside", "waits")])
        error = failure(await run(group, function("op", "f")))
        assert error.startswith(text) and error.strip()
        assert len(error) <= MOST_CHARS + 10
        beside.set()
        assert (await ends(group, "beside"))["beside"].result == {"went": "on"}


def failure(end: Update) -> str:
    """The text of a failed operation; the update can be written down."""
    assert end.status is Status.FAILED, end
    msgspec.json.encode(end)
    return str((end.result or {})["error"])


async def test_ctrl_c_in_the_middle_of_a_function_is_not_the_functions(tmp_path: Path) -> None:
    async def interrupted(_: Any) -> None:
        await trio.lowlevel.checkpoint()
        os.kill(os.getpid(), signal.SIGINT)
        await trio.sleep_forever()

    seen: list[BaseException] = []
    try:
        async with group_of(tmp_path, {"f": interrupted}) as group:
            group.start([function("op", "f")])
            await trio.sleep_forever()
    except* KeyboardInterrupt as raised:
        seen.append(raised)
    assert seen


async def test_a_cancellation_that_a_function_kept_from_elsewhere_is_its_error(tmp_path: Path) -> None:
    kept: list[BaseException] = []

    async def keeps(_: Any) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as cancelled:
                kept.append(cancelled)
                raise
        raise kept[0]

    async with group_of(tmp_path, {"f": keeps}) as group:
        assert failure(await run(group, function("op", "f"))).startswith("Cancelled")


# --- cleanup that fails


async def fails_in_finally(_: Any) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("while cleaning up")


async def fails_instead(_: Any) -> None:
    try:
        await trio.sleep_forever()
    except trio.Cancelled:
        raise Foreign("instead") from None


async def fails_beside(_: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_in_finally, None)
        nursery.start_soon(trio.sleep_forever)


async def fails_beside_for_good(_: Any) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_instead, None)
        nursery.start_soon(trio.sleep_forever)


CLEANUPS = pytest.mark.parametrize(
    ("cleanup", "text"),
    [
        (fails_in_finally, "ValueError: while cleaning up"),
        (fails_instead, "Foreign: instead"),
        (fails_beside, "ValueError: while cleaning up"),
        (fails_beside_for_good, "Foreign: instead"),
    ],
)


@CLEANUPS
async def test_cleanup_that_fails_after_a_cancel_is_how_the_call_ended(
    tmp_path: Path, cleanup: Callable[[Any], Any], text: str
) -> None:
    async with group_of(tmp_path, {"f": cleanup}) as group:
        group.start([function("op", "f")])
        await settled()
        group.cancel(["op"], "enough")
        end = (await ends(group, "op"))["op"]
        assert (end.status, end.result) == (Status.FAILED, {"reason": "enough", "error": text})
        assert group.updates.take_nowait() == []


@CLEANUPS
async def test_cleanup_that_fails_after_a_time_limit_is_told_with_it(
    tmp_path: Path, autojump_clock: Any, cleanup: Callable[[Any], Any], text: str
) -> None:
    async with group_of(tmp_path, {"f": cleanup}) as group:
        end = await run(group, function("op", "f", timeout_s=7))
        assert end.result == {"error": f"timed out after 7 s, and then {text}", "timed_out": True}


@CLEANUPS
async def test_cleanup_that_fails_while_the_owner_leaves_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cleanup: Callable[[Any], Any], text: str
) -> None:
    with caplog.at_level(logging.WARNING, "turnlog.operations"):
        async with group_of(tmp_path, {"f": cleanup}) as group:
            group.start([function("op", "f")])
            await settled()
            drain(group)
    assert [record.getMessage() for record in caplog.records] == [f"operation op had been let go when it raised {text}"]
    assert drain(group) == []


class Unstoppable(Held):
    """Its cancel raises what is no Exception."""

    async def cancel(self, operation: Operation) -> bool:
        raise Foreign


async def test_a_handler_whose_cancel_raises_anything_leaves_it_to_the_manager(tmp_path: Path) -> None:
    async with group_of(tmp_path, handlers=[Unstoppable()]) as group:
        group.start(held("a"))
        await settled()
        group.cancel(["a"], "enough")
        assert (await ends(group, "a"))["a"].status is Status.CANCELLED


# --- results that no log would take


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"in": [value]}
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = value
    return value


@pytest.mark.parametrize(
    "given",
    [
        {"x": object()},
        deep(60),
        deep(5_000),
        circular(),
        Ended(Status.COMPLETED, "text"),  # type: ignore[arg-type]  # what a function without type checks returns
        Ended(Status.COMPLETED, {}, blobs=("text",)),  # type: ignore[arg-type]  # the same
        Ended(Status.COMPLETED, {}, seconds="long"),  # type: ignore[arg-type]  # the same
        Ended([], {}),  # type: ignore[arg-type]  # the same
    ],
    ids=["object", "deep", "very deep", "circular", "text", "text blobs", "text seconds", "no status"],
)
async def test_a_result_that_cannot_be_recorded_is_a_failure(tmp_path: Path, given: Any) -> None:
    async with group_of(tmp_path, {"f": lambda _: given}) as group:
        assert failure(await run(group, function("op", "f")))


async def test_what_an_owner_gets_is_what_a_reader_of_its_log_will_find(tmp_path: Path) -> None:
    given = {"caf\udce9": ["\ud83d", {"t": ("\udce9",)}], 1: float("nan"), "bytes": b"x", "set": {1}}
    async with group_of(tmp_path, {"f": lambda _: given}) as group:
        end = await run(group, function("op", "f"))
    assert end.status is Status.COMPLETED
    assert end.result == {"caf\ufffd": ["\ufffd", {"t": ["\ufffd"]}], "1": None, "bytes": "eA==", "set": [1]}
    assert msgspec.json.decode(msgspec.json.encode(end), type=Update) == end


@pytest.mark.parametrize(("seconds", "kept"), [(float("inf"), None), (float("nan"), None), (-1.0, 0.0), (2, 2.0)])
async def test_seconds_are_a_number_of_them_or_not_known(tmp_path: Path, seconds: float, kept: float | None) -> None:
    async with group_of(tmp_path, {"f": lambda _: Ended(Status.COMPLETED, {}, seconds=seconds)}) as group:
        assert (await run(group, function("op", "f"))).seconds == kept


class Checkpointing(Held):
    async def start(self, operation: Operation, context: Any) -> Ended:
        await context.running({"path": os.fsdecode(b"caf\xe9")})
        await context.running({"path": object()})
        raise AssertionError


async def test_a_checkpoint_goes_the_same_way(tmp_path: Path) -> None:
    async with group_of(tmp_path, handlers=[Checkpointing()]) as group:
        group.start(held("a"))
        assert (await group.updates.receive()).checkpoint == {"path": "caf\ufffd"}
        assert "object" in failure((await ends(group, "a"))["a"])


async def test_a_folder_whose_name_is_not_utf_8_can_be_told_of(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    async with group_of(folder / "operations") as group:
        end = await run(group, shell("op", "pwd; seq 100000", folder))
        missing = failure(await run(group, shell("other", "true", folder / "gone")))
    assert end.status is Status.COMPLETED
    assert "/caf\ufffd/operations/op/" in (end.result or {})["output_path"]
    assert "caf" in missing
    msgspec.json.encode(end)


# --- before there is a group


async def test_a_folder_that_cannot_be_one_is_refused_as_it_is() -> None:
    entered: list[OperationGroup] = []
    with pytest.raises(ValueError, match="null byte"):
        async with OperationManager().open_group(Path("a\0b")) as group:
            entered.append(group)
    assert not entered
