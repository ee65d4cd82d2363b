"""Letting the errors of an `async with` block pass through the nurseries that serve it.

Belongs here: undoing the wrapping in exception groups that is no business of the block's author.
Must not know: what the block or the nurseries are for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio


class Body:
    """Remembers what the block raised, so that it can be raised again as it was."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Goes right around the block."""
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    @asynccontextmanager
    async def plain_errors(self) -> AsyncIterator[None]:
        """Goes around the nurseries. A group of nothing but the block's own error becomes that error.

        Cancellations beside it are of tasks that served the block: they say nothing that the error does not.
        """
        try:
            yield
        except BaseExceptionGroup as group:
            # By what it is made of: a group that passes through a nursery is taken apart and put together anew.
            own = set() if self._error is None else {id(leaf) for leaf in _leaves(self._error)}
            rest = [leaf for leaf in _leaves(group) if id(leaf) not in own]
            if self._error is not None and all(isinstance(leaf, trio.Cancelled) for leaf in rest):
                raise self._error from self._error.__cause__
            raise


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
