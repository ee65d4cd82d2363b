"""Tools and models that are written for asyncio: trio calls them in the asyncio loop that it is a guest of.

Belongs here: running a coroutine in asyncio for a trio task, with cancellation; the two adapters.
Must not know: sessions, or how the guest run is kept.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar, overload

import outcome
import trio

from harness.aio.places import LoopInUse
from harness.errors import HarnessError
from harness.llm.model import Emit, Model, ModelRequest, ModelResponse
from harness.tools.function import FunctionTool
from operations.group import CANCEL_GRACE_S

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

STOP_S = CANCEL_GRACE_S + 1
"""Seconds for which a cancelled coroutine is waited for: longer than the grace of an operation, so that one that does
not stop is recorded as unknown, and not as cancelled."""


async def in_asyncio(function: Callable[[], Awaitable[T]]) -> T:
    """`await function()` in the asyncio loop that this trio run is a guest of.

    Cancelled: so is the coroutine; it is waited for, at most STOP_S seconds, and left alone after that. A result or an
    error that it ends with all the same goes before the cancellation. Raises LoopInUse when no asyncio loop runs here.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise LoopInUse("this tool or model needs asyncio. Open the session with harness.aio.") from None
    ended = trio.Event()

    async def outside() -> outcome.Outcome[T]:
        await asyncio.sleep(0)  # a loop with eager tasks makes the first step here, inside a step of trio's
        try:
            return outcome.Value(await function())
        except SystemExit as error:  # as a task's own exception it would end the loop, and the program
            return outcome.Error(error)

    task = loop.create_task(outside())
    # The session's own end stops it. Were it among asyncio.all_tasks(), asyncio.run would cancel it first when the
    # program ends, and a turn that is merely lost would be recorded as one that has failed.
    asyncio._unregister_task(task)

    def done(_: asyncio.Task[outcome.Outcome[T]]) -> None:
        if not task.cancelled():
            task.exception()  # seen: asyncio has nothing to complain of when nobody waits any more
        ended.set()

    task.add_done_callback(done)
    try:
        await ended.wait()
    except trio.Cancelled:
        task.cancel()
        try:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + STOP_S):
                await ended.wait()
        finally:
            if not task.done():  # nobody here waits for it any more: it is the loop's now
                asyncio._register_task(task)
        if not task.done() or task.cancelled():
            raise
    if task.cancelled():
        # Not by us. CancelledError means nothing to trio, and would end the whole session.
        raise HarnessError("the asyncio coroutine cancelled itself. Catch CancelledError in it.")
    return task.result().unwrap()


class AsyncioTool(FunctionTool[P, R]):
    """A function that a model may call; async ones run in the asyncio loop, plain ones in a thread."""

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The callable that the `function` operation runs."""
        return {name: _crossing(function) for name, function in super().functions.items()}


def _crossing(function: Callable[..., Any]) -> Callable[..., Any]:
    if not inspect.iscoroutinefunction(function):

        def called(arguments: dict[str, Any]) -> Any:
            returned = function(arguments)
            # A plain function that makes a coroutine, as one that wraps an async function does.
            return in_asyncio(lambda: returned) if inspect.isawaitable(returned) else returned

        return called

    async def crossing(arguments: dict[str, Any]) -> Any:
        return await in_asyncio(lambda: function(arguments))

    return crossing


@overload
def tool(function: Callable[P, R], /) -> AsyncioTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
) -> Callable[[Callable[P, R]], AsyncioTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
) -> AsyncioTool[P, R] | Callable[[Callable[P, R]], AsyncioTool[P, R]]:
    """Make a Python function a tool of an asyncio program; arguments and errors as for `harness.tool`.

    An async function runs in the asyncio loop, as a task that `asyncio.all_tasks()` does not list: it is cancelled with
    its call or its session. A plain one runs in a thread.
    """
    made: Callable[[Callable[P, R]], AsyncioTool[P, R]] = partial(
        AsyncioTool, name=name, description=description, timeout_s=timeout_s, idempotent=idempotent
    )
    return made if function is None else made(function)


class AsyncioModel:
    """A model object whose `respond` runs in the asyncio loop. name: the object's, or that of its type."""

    def __init__(self, model: Model) -> None:
        self.name = str(getattr(model, "name", type(model).__name__))
        self._model = model

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        """Have the object answer. Cancelled with the turn."""
        return await in_asyncio(lambda: self._model.respond(request, emit=emit))


def model(of: Model) -> AsyncioModel:
    """A model object written for asyncio, for `open_session(model=...)`.

    of: has `async def respond(request, *, emit)` as every model object (`harness.Model`), awaiting asyncio's things.
    """
    return AsyncioModel(of)
