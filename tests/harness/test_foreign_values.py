"""What models, tools and callers give wrongly ends the turn, the call or the argument; never the session or its log."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

import harness
from harness import events as ev
from harness.llm.model import (
    Emit,
    ErrorKind,
    ModelError,
    ModelRequest,
    ModelResponse,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    Usage,
)
from harness.log import MOST_DEPTH, recorded
from harness.nesting import is_deeper
from harness.tools.registry import Presented, read_arguments
from operations import Operation, OperationSpec
from store import MemoryStore
from tests.harness.world import World, call, settle


class Saying:
    """A model whose nth answer is what a function makes of n."""

    name = "saying"

    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function, self._asked = function, 0

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        self._asked += 1
        answer = self._function(self._asked)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]  # wrong answers are the point


def says(text: str, **more: Any) -> ModelResponse:
    return ModelResponse((Text(text),), **more)


def calls(tool: str, arguments: str = "{}") -> Saying:
    """A model that makes one call and then stops."""
    made = ModelResponse((ToolCall(tool, arguments),), StopReason.TOOL_CALLS)
    return Saying(lambda n: made if n == 1 else says("done"))


async def run_and_reopen(model: Saying, tools: list[Any]) -> harness.RunResult:
    """One run in a session that must be whole afterwards: readable, within the rules, and going on when reopened."""
    world = World()
    async with world.open(model=model, tools=tools) as session:
        result = await session.run("go")
    await world.checked(session.id)
    async with world.open(session.id, model=Saying(lambda n: says("still here")), tools=tools) as session:
        assert (await session.run("again")).text == "still here"
    await world.checked(session.id)
    return result


# --- models


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "answer",
    [
        None,
        says("x", usage=Usage(input=1.5)),  # type: ignore[arg-type]  # as all of these, on purpose
        says("x", usage=None),
        says("x", attempts="many"),
        says("x", stop="whenever"),
        says("x", response_id=7),
        ModelResponse((Text(None),)),  # type: ignore[arg-type]
        ModelResponse(("text",)),  # type: ignore[arg-type]
        ModelResponse(({"type": "text", "text": "x"},)),  # type: ignore[arg-type]
        ModelResponse((ToolCall("t", {"a": 1}),)),  # type: ignore[arg-type]
        ModelResponse((ToolCall(None, "{}"),)),  # type: ignore[arg-type]
        ModelError("odd", "x"),  # type: ignore[arg-type]
        ModelError(ErrorKind.SERVER_ERROR, "x", status="500"),  # type: ignore[arg-type]
        ModelError(ErrorKind.SERVER_ERROR, "x", usage=None),  # type: ignore[arg-type]
        ValueError("half a character: \ud800"),
        Speechless(),
        SystemExit(3),
        GeneratorExit(),
        asyncio.CancelledError(),
        BaseExceptionGroup("several", [SystemExit(), ValueError("x")]),
    ],
    ids=lambda answer: ascii(answer)[:60],
)
async def test_a_wrong_answer_of_a_model_fails_the_run(
    answer: Any, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    caplog.set_level(logging.CRITICAL, "turnlog")  # tracebacks with half characters: no report of a test can hold them
    result = await run_and_reopen(Saying(lambda n: answer), [])
    assert result.outcome is ev.Outcome.FAILED
    assert result.error.startswith("unexpected: ")


async def test_a_model_error_without_a_message_keeps_its_kind(autojump_clock: trio.testing.MockClock) -> None:
    nothing: Any = None
    result = await run_and_reopen(Saying(lambda n: ModelError(ErrorKind.OVERLOADED, nothing)), [])
    assert result.error == "overloaded: no reason given"


class Spoiling(Saying):
    """A model that edits every list and dictionary of its requests."""

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        assert [tool.parameters["properties"]["wake"]["enum"] for tool in request.tools] == [["each", "batch", "quiet"]]
        assert request.items and not request.blobs
        spoil(request)
        return await super().respond(request, emit=emit)


def spoil(request: ModelRequest) -> None:
    for tool in request.tools:
        tool.parameters["properties"]["wake"]["enum"].clear()
        tool.parameters["properties"].clear()
        tool.parameters["additionalProperties"] = False
    request.items.clear()  # type: ignore[attr-defined]  # a list, as it happens
    request.blobs["digest"] = b"bytes"  # type: ignore[index]  # a dictionary, as it happens


@harness.tool
def sole() -> str:
    """A tool."""
    return "done"


async def test_a_model_that_edits_its_request_changes_neither_the_session_nor_the_next_request(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made = says("", stop=StopReason.TOOL_CALLS)
    made = msgspec.structs.replace(made, output=(ToolCall("no_such", "{}"),))
    world = World()
    async with world.open(model=Spoiling(lambda n: made if n == 1 else says("done")), tools=[sole]) as session:
        assert (await session.run("go")).error == ""
        assert (await session.run("again")).text == "done"
    log = await world.checked(session.id)
    async with world.open(session.id, model=Spoiling(lambda n: says("still here"))) as session:
        assert (await session.run("on")).text == "still here"
    assert len(await world.checked(session.id)) > len(log)


async def test_a_summarising_model_that_edits_its_request_changes_no_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Small(Spoiling):
        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            if request.tools:
                return await super().respond(request, emit=emit)
            spoil(request)
            return says("what was said")

    world = World()
    policy = harness.Policy(window_tokens=1000)
    async with world.open(model=Small(lambda n: says("done")), tools=[sole], policy=policy) as session:
        for _ in range(3):
            assert (await session.run("x" * 2000)).text == "done"
    log = await world.checked(session.id)
    assert any(isinstance(logged.event, ev.ContextCompacted) for logged in log)


async def test_an_edited_request_of_a_replay_does_not_change_what_it_checks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open(model=Saying(lambda n: says("done")), tools=[sole]) as session:
        await session.run("go")
    replay = harness.Replay(session.id, await world.log(session.id))
    for turn in replay.requests():
        spoil(turn.request)
    assert replay.check() == []


async def test_half_characters_of_a_model_are_replaced(autojump_clock: trio.testing.MockClock) -> None:
    result = await run_and_reopen(Saying(lambda n: says("a\ud800b", provider="p\udfff", response_id="\ud800")), [])
    assert (result.outcome, result.text) == (ev.Outcome.COMPLETED, "a\ufffdb")


async def test_counts_below_zero_are_unknown_and_do_not_stretch_a_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    result = await run_and_reopen(Saying(lambda n: says("x", usage=Usage(input=-500, output=3))), [])
    assert result.usage == Usage(output=3)


async def test_an_error_while_a_turn_is_cut_off_does_not_hide_the_message(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Dropping:
        name = "dropping"
        asked = 0

        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            self.asked += 1
            if self.asked > 1:
                (part,) = request.items[-1].parts  # type: ignore[union-attr]  # a user's item, as the test shows
                return says(f"heard: {part.text}")
            try:
                await trio.sleep_forever()
            except trio.Cancelled:
                raise ModelError(ErrorKind.CONNECTION, "dropped") from None

    world = World()
    async with world.open(model=Dropping(), tools=[]) as session:
        run = await session.start_run("go")
        await settle()
        await run.steer("second")
        assert (await run.result()).text == "heard: second"
    await world.checked(session.id)


async def test_a_model_that_swallows_its_cancellation_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    class Stubborn:
        name = "stubborn"

        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            emit(TextDelta("so far"))
            while True:
                with contextlib.suppress(trio.Cancelled):
                    await trio.sleep_forever()

    world = World()
    async with world.open(model=Stubborn(), tools=[]) as session:
        run = await session.start_run("go")
        await settle()
        assert (await run.interrupt()).outcome is ev.Outcome.INTERRUPTED
        await session.start_run("once more")
        await settle()
        closing_s = trio.current_time()
    assert trio.current_time() - closing_s < 6
    log = await world.checked(session.id)
    cut = [logged.event for logged in log if isinstance(logged.event, ev.TurnInterrupted)]
    assert [event.text for event in cut] == ["so far"]


async def test_a_model_that_shields_itself_ends_its_turn_late_and_not_never(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Shielded:
        name = "shielded"

        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
            return says("too late")

    world = World()
    async with world.open(model=Shielded(), tools=[]) as session:
        run = await session.start_run("go")
        await settle()
        asked_s = trio.current_time()
        assert (await run.interrupt()).outcome is ev.Outcome.INTERRUPTED
        assert trio.current_time() - asked_s < 6
    await world.checked(session.id)


async def cleanup_fails() -> None:
    async def failing() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("cleanup")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(failing)
        nursery.start_soon(trio.sleep_forever)


@pytest.mark.parametrize("interrupted", [True, False])
async def test_an_error_in_a_models_cleanup_is_not_the_sessions(
    interrupted: bool, autojump_clock: trio.testing.MockClock
) -> None:
    class Untidy:
        name = "untidy"

        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            await cleanup_fails()
            raise AssertionError

    world = World()
    async with world.open(model=Untidy(), tools=[]) as session:
        run = await session.start_run("go")
        await settle()
        if interrupted:
            assert (await run.interrupt()).outcome is ev.Outcome.INTERRUPTED
    await world.checked(session.id)


async def test_an_error_in_a_tools_cleanup_is_not_the_sessions(autojump_clock: trio.testing.MockClock) -> None:
    @harness.tool
    async def untidy() -> None:
        """Clean up badly."""
        await cleanup_fails()

    async with harness.open_session(MemoryStore(), model=calls("untidy"), tools=[untidy]) as session:
        await session.start_run("go")
        await trio.sleep(1)


# --- tools


def raising(error: BaseException) -> Any:
    @harness.tool(name="t")
    def raises() -> None:
        """Raise."""
        raise error

    return raises


@pytest.mark.parametrize(
    "error",
    [
        ValueError("cannot open caf\udce9"),
        Speechless(),
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        BaseExceptionGroup("several", [SystemExit()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_tool_raises_is_the_calls_failure(error: BaseException) -> None:
    async with harness.open_session(MemoryStore(), model=calls("t"), tools=[raising(error)]) as session:
        result = await session.run("go")
    assert result.outcome is ev.Outcome.COMPLETED
    (made,) = result.tool_calls
    assert made.outcome is ev.CallOutcome.FAILED
    leaf = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    assert type(leaf).__name__ in made.text


class Custom:
    """A tool of somebody's own, over the functions of `inner`."""

    def __init__(self, inner: Any, *, translated: Any = None, presented: Any = None) -> None:
        self.name, self.functions = inner.name, inner.functions
        self._inner, self._translated, self._presented = inner, translated, presented

    def record(self) -> ev.ToolRecord:
        return self._inner.record()  # type: ignore[no-any-return]  # inner is Any

    def translate(self, arguments: dict[str, Any], workspace: str) -> Any:
        made = self._inner.translate(arguments, workspace)
        return made if self._translated is None else self._translated(made)

    def present(self, operations: list[Operation]) -> Any:
        return self._inner.present(operations) if self._presented is None else self._presented(operations)


@harness.tool
def plain() -> str:
    """Say something."""
    return "said"


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        (Custom(plain, translated=lambda made: made[0]), "what it asked for is no work"),
        (Custom(plain, translated=lambda made: ("shell",)), "what it asked for is no work"),
        (
            Custom(plain, translated=lambda made: (OperationSpec("function", 1, {"name": object()}),)),
            "the work it asked for cannot be recorded",
        ),
        (Custom(plain, presented=lambda operations: "text"), "present has to return a Presented, not str"),
        (Custom(plain, presented=lambda operations: Presented("fine", (Text("x"),))), "it cannot be recorded"),  # type: ignore[arg-type]  # on purpose
        (Custom(plain, presented=lambda operations: Presented(ev.CallOutcome.OK, (Text(7),))), "could not tell"),  # type: ignore[arg-type]  # on purpose
    ],
)
async def test_a_tool_that_breaks_its_contract_fails_its_call(custom: Custom, expected: str) -> None:
    async with harness.open_session(MemoryStore(), model=calls("plain"), tools=[custom]) as session:
        result = await session.run("go")
    assert result.outcome is ev.Outcome.COMPLETED
    (made,) = result.tool_calls
    assert made.outcome is ev.CallOutcome.FAILED
    assert expected in made.text


async def test_half_characters_of_a_presenter_are_replaced() -> None:
    custom = Custom(plain, presented=lambda operations: Presented(ev.CallOutcome.OK, (Text("a\ud800"),)))
    async with harness.open_session(MemoryStore(), model=calls("plain"), tools=[custom]) as session:
        (made,) = (await session.run("go")).tool_calls
    assert (made.outcome, made.text) == (ev.CallOutcome.OK, "a\ufffd")


async def inner(a: int) -> str:
    """Take a number."""
    return f"got {a}"


@functools.wraps(inner)
def wrapped(*args: Any, **kwargs: Any) -> Any:
    return inner(*args, **kwargs)


class Adder:
    """Take a number."""

    async def __call__(self, a: int) -> str:
        return f"got {a}"


@pytest.mark.parametrize("function", [inner, wrapped, functools.partial(inner), Adder()], ids=type)
async def test_a_function_that_makes_a_coroutine_is_awaited(function: Any) -> None:
    made_tool = harness.tool(name="inner")(function)
    async with harness.open_session(MemoryStore(), model=calls("inner", '{"a":1}'), tools=[made_tool]) as session:
        (made,) = (await session.run("go")).tool_calls
    assert made.text == "got 1"


def test_what_cannot_be_a_tool_is_refused_where_it_is_defined() -> None:
    async def streaming() -> AsyncIterator[str]:
        yield "x"

    def yielding() -> Any:
        yield "x"

    def dunder(__y: int) -> str:
        return ""

    for function in (streaming, yielding, dunder):
        with pytest.raises(harness.ToolDefinitionError):
            harness.tool(function)


# --- depth


def test_depth_is_counted_outside_of_strings() -> None:
    assert not is_deeper(b'{"a": "[[[[{{{{", "b": "\\"[[[["}', 2)
    assert not is_deeper(b'[{"a": []}, {"b": []}]', 3)
    assert is_deeper(b'[{"a": []}]', 2)


def nested(depth: int) -> str:
    return '{"x":' * depth + "1" + "}" * depth


def test_arguments_may_be_nested_a_hundred_levels_deep() -> None:
    assert isinstance(read_arguments(nested(100)), dict)
    for depth in (101, 940, 5000, 100_000):
        refused = read_arguments(nested(depth))
        assert not isinstance(refused, dict)
        assert "nested more than 100 levels" in refused.error


def test_an_event_too_deep_for_a_reader_is_not_recorded() -> None:
    deep: Any = 1
    for _ in range(MOST_DEPTH):
        deep = [deep]
    event = ev.OperationUpdated("op", ev.Status.COMPLETED, result={"x": deep})
    with pytest.raises(harness.errors.Unrecordable, match="nested more than"):
        recorded(event, "2026-01-01T00:00:00.000Z")


@pytest.mark.parametrize("depth", [101, 940, 990])
async def test_deep_arguments_are_a_rejection_that_the_model_reads(depth: int) -> None:
    async with harness.open_session(MemoryStore(), model=calls("inner", nested(depth)), tools=[]) as session:
        assert (await session.run("go")).outcome is ev.Outcome.COMPLETED


# --- callers


@pytest.mark.parametrize(
    ("content", "limits"),
    [
        (None, None),
        (3, None),
        (b"x", None),
        (harness.Cancel("x"), None),
        (harness.Interrupt("x"), None),
        (harness.Heartbeat(("nope",), 1.0), None),
        (harness.Message(3), None),  # type: ignore[arg-type]  # as all of these, on purpose
        (harness.Message("x", images=("y",)), None),  # type: ignore[arg-type]
        ("x", harness.Limits(turns=True)),
        ("x", harness.Limits(turns=1.5)),  # type: ignore[arg-type]
        ("x", harness.Limits(seconds="1")),  # type: ignore[arg-type]
        ("x", harness.Limits(calls={"x": 1.5})),  # type: ignore[dict-item]
        ("x", harness.Limits(calls={"\ud800": 1})),
    ],
    ids=ascii,
)
async def test_an_input_that_cannot_be_one_never_reaches_the_inbox(
    content: Any, limits: Any, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    async with world.open(model=Saying(lambda n: says("ok")), tools=[]) as session:
        with pytest.raises(harness.BadInput):
            await session.run(content, limits=limits)
        assert await world.store.inputs(session.id) == []
        assert (await session.run("x")).outcome is ev.Outcome.COMPLETED


@pytest.mark.parametrize(
    "content",
    [
        harness.Cancel(3),  # type: ignore[arg-type]  # as all of these, on purpose
        harness.Interrupt("\ud800"),
        harness.Heartbeat(("nope",), 1.0),
        harness.Settings(workspace="/nope"),
        {"type": "message", "text": "x"},
    ],
)
async def test_submit_takes_only_what_may_be_sent(content: Any, autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open(tools=[]) as session:
        with pytest.raises(harness.BadInput):
            await harness.submit(world.store, session.id, content)
        with pytest.raises(harness.BadInput):
            await harness.submit(world.store, session.id, "x", "")
        assert await world.store.inputs(session.id) == []


@pytest.mark.parametrize(
    "data",
    [
        b"no json",
        b'{"source":"user","content":{"type":"heartbeat","running":["nope"],"idle_s":1.0}}',
        b'{"source":"user","content":{"type":"message","text":null}}',
    ],
)
async def test_an_inbox_row_that_is_no_input_is_left_out(
    data: bytes, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    world = World()
    async with world.open(model=Saying(lambda n: says("ok")), tools=[]) as session:
        await world.store.submit(session.id, "odd", data, received_at="2026-01-01T00:00:00.000Z")
        assert (await session.run("x")).outcome is ev.Outcome.COMPLETED
    assert "input 'odd'" in caplog.text
    await world.checked(session.id)


async def test_an_inbox_row_of_a_newer_harness_says_which_version_it_needs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = World()
    async with world.open(tools=[]) as session:
        pass
    newer = b'{"source":"user","content":{"type":"hologram"},"version":2}'
    await world.store.submit(session.id, "newer", newer, received_at="2026-01-01T00:00:00.000Z")
    with pytest.raises(harness.UnsupportedVersion, match="has version 2"):
        async with world.open(session.id) as session:
            await session.run("x")


async def test_the_same_input_said_in_two_ways_is_the_same(autojump_clock: trio.testing.MockClock) -> None:
    world = World()
    async with world.open(model=Saying(lambda n: says(str(n))), tools=[]) as session:
        first = await session.run("x", idempotency_key="k")
        again = await session.run(harness.Message("x", limits=harness.Limits()), idempotency_key="k")
        with pytest.raises(harness.BadInput):
            await session.run("x", idempotency_key="")
    assert again == first


@pytest.mark.parametrize(
    "options",
    [
        {"session_id": "a\0b"},
        {"session_id": "x" * 300},
        {"session_id": "\ud800"},
        {"session_id": 3},
        {"instructions": "\ud800"},
        {"instructions": 3},
        {"title": None},
        {"title": "\ud800"},
        {"workspace": "/tmp\0"},
        {"workspace": 3},
        {"model": 3},
        {"tools": "bash"},
        {"tools": 3},
        {"tools": [print]},
        {"tools": [3]},
        {"policy": {}},
        {"policy": harness.Policy(window_tokens=1.5)},  # type: ignore[arg-type]  # on purpose
        {"limits": {"turns": 3}},
        {"limits": harness.Limits(turns=True)},
        {"settings": harness.ModelSettings(cache_key="\ud800")},
        {"settings": harness.ModelSettings(temperature="hot")},  # type: ignore[arg-type]  # on purpose
    ],
    ids=ascii,
)
async def test_an_argument_of_open_session_that_no_log_can_hold_is_refused_before_a_file_is_made(
    options: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "s.db"
    with pytest.raises(harness.BadInput) as caught:
        async with harness.open_session(path, **{"model": "runbook", **options}):
            raise AssertionError("never reached")
    assert "\n" not in str(caught.value)
    assert not await trio.Path(path).exists()


async def test_a_store_that_is_none_is_refused() -> None:
    for store in (None, 3, "a\0b"):
        with pytest.raises(harness.BadInput):
            async with harness.open_session(store):  # type: ignore[arg-type]  # on purpose
                raise AssertionError("never reached")


async def test_a_session_id_that_is_no_folder_name_has_its_operations_all_the_same(tmp_path: Path) -> None:
    bash = calls("bash", msgspec.json.encode({"command": "echo hi"}).decode())
    name = "à la carte: " + "x" * 150
    async with harness.open_session(tmp_path / "s.db", session_id=name, model=bash, tools=[harness.bash()]) as session:
        (made,) = (await session.run("go")).tool_calls
    assert "hi" in made.text


async def test_a_rejected_call_of_a_wrong_kind_of_tool(autojump_clock: trio.testing.MockClock) -> None:
    """Another kind of tool under the name of a pending call could not read its result."""

    @harness.tool(name="bash")
    async def mine(command: str) -> str:
        """Do as if."""
        return "mine"

    world = World()
    async with world.open() as session:
        run = await session.start_run("go")
        await settle()
        world.model.answer(calls=[call()])
        await settle()
    with pytest.raises(harness.BadInput, match="has not ended, and another tool"):
        async with world.open(session.id, tools=[mine]):
            raise AssertionError("never reached")
    async with world.open(session.id) as session:
        world.handler.end(world.handler.started[0])
        await settle()
        world.model.answer("done")
        assert session.current_run is not None
        assert (await session.current_run.result()).tool_calls[0].text.startswith("exit status 0")
    assert run.id
