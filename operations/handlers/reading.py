"""Operations that only read.

Belongs here: doing it in a thread, and what follows from nothing being changed: it can be abandoned, and done again.
Must not know: what is read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import trio

from operations.operation import Context, Ended, Operation

A = TypeVar("A", bound=msgspec.Struct)


class ReadingHandler(ABC, Generic[A]):
    """arguments: the struct that an operation of the type carries. limit: operations of the type at once."""

    arguments: ClassVar[Any]
    type: str
    version = 1

    def __init__(self, *, limit: int = 8) -> None:
        self.limit = limit

    @abstractmethod
    def read(self, arguments: A) -> Ended:
        """Read, in a thread; failed, with one line, when that cannot be done."""

    async def start(self, operation: Operation, context: Context) -> Ended:
        """Read it."""
        arguments = msgspec.convert(operation.spec.args, self.arguments)
        await context.running()
        return await trio.to_thread.run_sync(self.read, arguments, abandon_on_cancel=True)

    async def cancel(self, operation: Operation) -> bool:
        """The manager can cancel the task: a read leaves nothing behind."""
        return False

    async def recover(self, operation: Operation, context: Context) -> Ended:
        """Read it again."""
        return await self.start(operation, context)
