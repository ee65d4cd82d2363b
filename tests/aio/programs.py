"""Asyncio programs under test: run to their end in debug mode, with models and tools that wait to be told.

Belongs here: what several tests of this folder share. Must not know: the inside of harness.aio.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from harness.aio.places import in_trio_run
from harness.llm.model import Emit, ModelRequest, ModelResponse, OutputItem, Text, TextDelta, ToolCall

T = TypeVar("T")

HELLO = """
# Look around

~~~sh
echo hello
~~~
"""


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """`asyncio.run` in debug mode. Afterwards nothing is left: no trio, nothing for the collector to complain of."""
    try:
        return asyncio.run(main(), debug=True)
    finally:
        assert not in_trio_run()
        gc.collect()


class AskedModel:
    """An asyncio model: each request waits for its answer."""

    name = "asked"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []
        self.cancelled = 0
        self.asked = asyncio.Event()
        self._answer: asyncio.Future[ModelResponse] | None = None

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        self.requests.append(request)
        self._answer = asyncio.get_running_loop().create_future()
        self.asked.set()
        emit(TextDelta("let me see"))
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def answers(self, *output: OutputItem) -> None:
        """Wait for a request, and answer it."""
        await self.asked.wait()
        self.asked.clear()
        assert self._answer is not None
        self._answer.set_result(ModelResponse(output))

    async def fails(self, error: Exception) -> None:
        await self.asked.wait()
        self.asked.clear()
        assert self._answer is not None
        self._answer.set_exception(error)


class SayingModel:
    """An asyncio model: calls a tool once, then repeats what that said."""

    name = "saying"

    def __init__(self, tool: str, arguments: str = "{}") -> None:
        self._call = ToolCall(tool, arguments)

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        await asyncio.sleep(0)
        if len(request.items) == 1:
            return ModelResponse((self._call,))
        (part,) = request.items[-1].parts  # type: ignore[union-attr]
        assert isinstance(part, Text)
        return ModelResponse((part,))


async def stopped(task: asyncio.Task[Any]) -> None:
    """Cancel a task and see it end as cancelled."""
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
