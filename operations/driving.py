"""Run a coroutine that can be taken away from code that refuses to be cancelled.

Belongs here: the one place that drives a foreign coroutine by hand.
Must not know: operations, or why the coroutine is given up.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar, cast

import outcome
import trio

T = TypeVar("T")


class Abandoned(BaseException):
    """Thrown in place of a cancellation that is swallowed again and again. Not an Exception, for that reason."""


MOST_SWALLOWED: Final = 1000
"""Cancellations that code which is being stopped may survive, one an await. Its cleanup needs a few; a loop that
catches them never waits for anything again, and would keep the processor busy until its time is up."""


class Leash:
    """stopping: the coroutine was cancelled by whoever drives it. abandoned: it has been given up."""

    stopping = False
    abandoned = False


@types.coroutine
def driven(coroutine: Coroutine[Any, Any, T], leash: Leash) -> Generator[Any, Any, T]:
    """Await `coroutine`; once it is abandoned, what would wake it with an error raises Abandoned inside it.

    It is abandoned when `leash` says so, or when it was told to stop and has swallowed MOST_SWALLOWED cancellations.

    Code that catches trio.Cancelled and goes on would keep its task, and so its nursery, alive for ever: every await of
    it fails at once and the loop spins. Another exception gets past `except trio.Cancelled`, and unlike closing the
    coroutine it lets nurseries inside of it end in order. What catches BaseException in a loop cannot be stopped.
    """
    value: Any = None
    error: BaseException | None = None
    swallowed = 0
    while True:
        try:
            trap = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration as stop:
            return cast("T", stop.value)
        value, error = None, None
        try:
            value = yield trap
        except BaseException as raised:  # noqa: BLE001  (handed on, whatever it is)
            error = raised
        # trio sends errors as values, which its own code unwraps inside the coroutine.
        woken_by = value.error if isinstance(value, outcome.Error) else error
        if leash.stopping and isinstance(woken_by, trio.Cancelled):
            swallowed += 1
            leash.abandoned = leash.abandoned or swallowed > MOST_SWALLOWED
        if leash.abandoned and woken_by is not None:
            error = Abandoned()
