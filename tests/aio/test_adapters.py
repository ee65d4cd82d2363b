"""Tools and models that live in the asyncio loop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from contextlib import AbstractAsyncContextManager

import trio

import harness
import harness.aio
from harness.aio.places import in_trio_task
from harness.llm.model import Emit, ErrorKind, ModelError, ModelRequest, ModelResponse, Text, ToolCall
from store import MemoryStore
from tests.aio.programs import AskedModel, SayingModel, run


def _opened(model: harness.Model, *tools: harness.Tool) -> AbstractAsyncContextManager[harness.aio.Session]:
    return harness.aio.open_session(MemoryStore(), model=harness.aio.model(model), tools=tools)


def test_an_async_tool_runs_in_the_asyncio_loop() -> None:
    @harness.aio.tool
    async def where(place: str) -> str:
        """Say where this runs."""
        task = asyncio.current_task()
        assert task is not None
        assert not in_trio_task()
        await asyncio.sleep(0)
        return f"{place}: asyncio in {threading.current_thread().name}"

    async def main() -> None:
        assert (await where("here")).startswith("here: asyncio")  # for Python it stays the function that it was
        async with _opened(SayingModel("where", '{"place": "there"}'), where) as session:
            assert (await session.run("go")).text == f"there: asyncio in {threading.current_thread().name}"

    run(main)


def test_a_plain_tool_runs_in_a_thread() -> None:
    @harness.aio.tool(name="elsewhere")
    def where() -> str:
        return threading.current_thread().name

    async def main() -> None:
        async with _opened(SayingModel("elsewhere"), where) as session:
            assert (await session.run("go")).text != threading.current_thread().name

    run(main)


def test_what_an_async_tool_raises_is_told_to_the_model() -> None:
    @harness.aio.tool
    async def broken() -> None:
        raise ZeroDivisionError("by nought")

    @harness.aio.tool
    async def given_up() -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        async with _opened(SayingModel("broken"), broken) as session:
            assert (await session.run("go")).text == "failed: ZeroDivisionError: by nought"
        async with _opened(SayingModel("given_up"), given_up) as session:
            assert "cancelled itself" in (await session.run("go")).text

    run(main)


def test_a_cancelled_session_cancels_its_async_tools() -> None:
    seen: list[str] = []
    begun = asyncio.Event()

    @harness.aio.tool
    async def endless() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # cleaning up may take its time
            seen.append("stopped")

    async def main() -> None:
        async with _opened(SayingModel("endless"), endless) as session:
            going = await session.start_run("go")
            await begun.wait()
            await session.cancel()
            assert seen == ["stopped"]
            assert [call.outcome for call in (await going.result()).tool_calls] == ["cancelled"]

    run(main)


def test_an_async_tool_that_has_its_result_when_it_is_cancelled_gives_it() -> None:
    begun = asyncio.Event()

    @harness.aio.tool
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    async def main() -> None:
        async with _opened(SayingModel("stubborn"), stubborn) as session:
            going = await session.start_run("go")
            await begun.wait()
            await session.cancel()
            assert [call.outcome for call in (await going.result()).tool_calls] == ["ok"]

    run(main)


def test_a_models_errors_are_the_turns() -> None:
    async def main() -> None:
        model = AskedModel()
        async with _opened(model) as session:
            going = await session.start_run("go")
            await model.fails(ModelError(ErrorKind.BAD_REQUEST, "not like this"))
            result = await going.result()
            assert (result.outcome, "not like this" in (result.error or "")) == ("failed", True)

    run(main)


def test_a_model_that_edits_its_request_does_not_change_the_next_one() -> None:
    class Spoiling(SayingModel):
        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            response = await super().respond(request, emit=emit)
            assert request.tools[0].parameters["properties"].pop("wake")["enum"]
            request.items.clear()  # type: ignore[attr-defined]  # a list, as it happens
            return response

    @harness.aio.tool
    async def sole() -> str:
        return "done"

    async def main() -> None:
        async with _opened(Spoiling("sole"), sole) as session:
            assert (await session.run("go")).text == "done"
            log = [logged async for logged in session.events()]
            assert harness.Replay(session.id, log).check() == []

    run(main)


def test_context_variables_and_the_name_of_the_model_come_along() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    class Knowing(AskedModel):
        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            return ModelResponse((Text(who.get()),))

    async def main() -> None:
        who.set("the opener")
        async with _opened(Knowing()) as session:
            assert (await session.run("who?")).text == "the opener"
        model = AskedModel()
        async with _opened(model) as session:
            assert session.state.config.model == "asked"
            going = await session.start_run("go")
            await model.answers(Text("gone"))
            assert (await going.result()).text == "gone"

    run(main)


def test_an_asyncio_tool_in_a_trio_program_says_what_to_do() -> None:
    @harness.aio.tool
    async def here() -> None: ...

    class Native:
        name = "native"

        async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
            if len(request.items) == 1:
                return ModelResponse((ToolCall("here", "{}"),))
            return ModelResponse((request.items[-1].parts[0],))  # type: ignore[union-attr, arg-type]

    async def main() -> None:
        async with harness.open_session(MemoryStore(), model=Native(), tools=[here]) as session:
            assert "Open the session with harness.aio" in (await session.run("go")).text

    trio.run(main)


def test_an_async_tool_that_exits_fails_its_call_and_not_the_program() -> None:
    @harness.aio.tool
    async def leaving() -> None:
        """Leave."""
        await asyncio.sleep(0)
        raise SystemExit(3)

    async def main() -> None:
        async with _opened(SayingModel("leaving"), leaving) as session:
            assert "SystemExit: 3" in (await session.run("go")).text

    run(main)


def test_a_plain_function_that_makes_a_coroutine_has_it_awaited_in_the_asyncio_loop() -> None:
    async def inner() -> str:
        """Say where this runs."""
        assert asyncio.current_task() is not None
        await asyncio.sleep(0)
        return "in asyncio"

    @functools.wraps(inner)
    def wrapping() -> object:
        return inner()

    async def main() -> None:
        wrapped = harness.aio.tool(name="wrapping")(wrapping)
        async with _opened(SayingModel("wrapping"), wrapped) as session:
            assert (await session.run("go")).text == "in asyncio"

    run(main)
