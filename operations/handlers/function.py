"""Operations of type `function`: a Python callable of the owner's.

Belongs here: finding the callable, running it in the loop or in a thread, checking what it returns.
Must not know: why it is called, or what its result means.

args: name, arguments (an object). result: what the callable returned.
A callable takes the arguments as one dict and returns a JSON-able dict, or an `Ended`. One that is declared `async`
runs in the trio loop and must await now and then; any other runs in a thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec
import trio

from operations.operation import Context, Ended, Operation, Status
from operations.raised import is_interrupt
from operations.wording import error_text


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation of this type carries."""

    name: str
    arguments: dict[str, Any] = {}


class FunctionHandler:
    """limit: calls at once in one group: a call may open a session of its own and wait for the calls of that one."""

    type = "function"
    version = 1
    per_group = True

    def __init__(self, *, limit: int = 64) -> None:
        self.limit = limit
        self._in_threads: set[str] = set()

    async def start(self, operation: Operation, context: Context) -> Ended:
        """Call it and say what it returned; what it raises is the manager's to record."""
        arguments = msgspec.convert(operation.spec.args, Arguments)
        function = context.functions.get(arguments.name)
        if function is None:
            return Ended(Status.FAILED, {"error": f"no function {arguments.name!r} is registered here. Register it."})
        await context.running()
        returned = await self._call(operation.id, function, arguments.arguments)
        if isinstance(returned, Ended):
            return returned
        if not isinstance(returned, dict):
            text = f"function {arguments.name!r} returned {type(returned).__name__}, which is not an object of JSON."
            return Ended(Status.FAILED, {"error": text})
        return Ended(Status.COMPLETED, returned)

    async def cancel(self, operation: Operation) -> bool:
        """A coroutine is left to the manager. A thread cannot be stopped: it may end by itself within the grace.

        If it does not, nobody knows what it will still do, and its end is not known.
        """
        return operation.id in self._in_threads

    async def recover(self, operation: Operation, context: Context) -> Ended:
        """Call it again only if that is declared harmless: whether it ran, and how far, is not known."""
        if operation.spec.idempotent:
            return await self.start(operation, context)
        return Ended(Status.UNKNOWN, {"error": "the process that ran this function is gone. It may have run in part."})

    async def _call(self, operation_id: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        if _is_async(function):
            return await function(arguments)
        self._in_threads.add(operation_id)
        try:
            # A limiter of its own: threads that were abandoned must not use up the places of others.
            (returned,) = await trio.to_thread.run_sync(
                _in_thread, function, arguments, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        finally:
            self._in_threads.discard(operation_id)
        return await returned if inspect.isawaitable(returned) else returned


def _in_thread(function: Callable[..., Any], arguments: dict[str, Any]) -> tuple[Any]:
    # In a tuple: trio takes a thread that returns a coroutine for a mistake.
    try:
        return (function(arguments),)
    except BaseException as error:
        if not is_interrupt(error):
            raise
        # Ctrl-C comes to the main thread and never to this one: the function raised it itself.
        return (Ended(Status.FAILED, {"error": error_text(error)}),)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
