"""Run a coroutine that can be taken away from code that refuses to be cancelled.

Belongs here: the one place that drives a foreign coroutine by hand.
Must not know: operations, or why the coroutine is given up.
"""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar, cast

import outcome

T = TypeVar("T")


class Abandoned(BaseException):
    """Thrown in place of a cancellation that is swallowed again and again. Not an Exception, for that reason."""


class Leash:
    """Whether the coroutine has been given up."""

    abandoned = False


@types.coroutine
def driven(coroutine: Coroutine[Any, Any, T], leash: Leash) -> Generator[Any, Any, T]:
    """Await `coroutine`; once `leash.abandoned` is set, what would wake it with an error raises Abandoned inside it.

    Code that catches trio.Cancelled and goes on would keep its task, and so its nursery, alive for ever: every await of
    it fails at once and the loop spins. Another exception gets past `except trio.Cancelled`, and unlike closing the
    coroutine it lets nurseries inside of it end in order. What catches BaseException in a loop cannot be stopped.
    """
    value: Any = None
    error: BaseException | None = None
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
        if leash.abandoned and (error is not None or isinstance(value, outcome.Error)):
            error = Abandoned()
