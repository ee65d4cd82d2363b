"""What an operation is, the states it goes through, and what a handler must offer.

Belongs here: serializable data, the table of legal transitions, the `Handler` contract.
Must not know: sessions, models, tools, or how any one type of operation is executed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec


class Status(enum.StrEnum):
    """Where an operation stands. The last four are terminal."""

    READY = "ready"
    RUNNING = "running"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


TERMINAL: Final = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.UNKNOWN})

TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = {
    # READY ends as UNKNOWN when a crash left it in doubt whether it had started.
    Status.READY: frozenset({Status.RUNNING, Status.CANCELLED, Status.UNKNOWN}),
    # RUNNING to RUNNING is a new checkpoint.
    Status.RUNNING: frozenset({Status.RUNNING, Status.CANCELLING}) | TERMINAL,
    # CANCELLING may still end as completed or failed: the work can win the race against its cancellation.
    Status.CANCELLING: TERMINAL,
    **{status: frozenset() for status in TERMINAL},
}


class OperationSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for work, as it stands in the log: the handler's type and version, and its arguments.

    timeout_s: seconds after which the operation is stopped: it ends as failed, as unknown where it cannot be stopped,
    or as what it became in the meantime; None for the handler's own default.
    idempotent: doing it twice is as good as once, so that recovery may start it again.
    """

    type: str
    version: int
    args: dict[str, Any]
    timeout_s: float | None = None
    idempotent: bool = False


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation: its globally unique id, what it does, how far it is.

    checkpoint: what the handler needs to find the work again after a crash (a process id, a folder).
    result, seconds: set with a terminal status, see `Update`; the result's shape belongs to the operation's type.
    """

    id: str
    spec: OperationSpec
    status: Status = Status.READY
    checkpoint: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    seconds: float | None = None


class Update(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of one operation, in the order in which it happened.

    seconds: how long the operation ran, on a monotonic clock, with a terminal status; None when that is not known.
    blobs: byte strings that `result` refers to by blake2b-128 hex digest; whoever records the update stores them first.
    """

    operation_id: str
    status: Status
    checkpoint: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    seconds: float | None = None
    blobs: tuple[bytes, ...] = ()


class Progress(msgspec.Struct, frozen=True):
    """A piece of live output, for people who watch. Never stored; may be dropped."""

    operation_id: str
    text: str


class IllegalTransition(Exception):
    """The table of transitions does not allow this step. The operation is unchanged."""

    def __init__(self, operation_id: str, before: Status, after: Status) -> None:
        self.operation_id, self.before, self.after = operation_id, before, after
        super().__init__(f"operation {operation_id!r} cannot go from {before.value} to {after.value}")


class UnknownOperationType(Exception):
    """No handler is registered for this type and version."""

    def __init__(self, type_: str, version: int) -> None:
        self.type, self.version = type_, version
        super().__init__(f"no handler for operations of type {type_!r} version {version}. Register one.")


def moved(operation: Operation, update: Update) -> Operation:
    """The operation after `update`. Raises IllegalTransition; an update without a checkpoint keeps the last one."""
    if update.status not in TRANSITIONS[operation.status]:
        raise IllegalTransition(operation.id, operation.status, update.status)
    return msgspec.structs.replace(
        operation,
        status=update.status,
        checkpoint=operation.checkpoint if update.checkpoint is None else update.checkpoint,
        result=update.result,
        seconds=update.seconds,
    )


class Ended(msgspec.Struct, frozen=True):
    """How an operation ended, as its handler says it. `status` is one of the terminal ones."""

    status: Status
    result: dict[str, Any]
    blobs: tuple[bytes, ...] = ()
    seconds: float | None = None


class Context(Protocol):
    """What the manager gives a handler for one operation."""

    @property
    def folder(self) -> Path:
        """A folder of this operation's own (not created yet), stable over restarts of the process."""
        ...

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The Python callables that the owner of the operation registered, by name."""
        ...

    @property
    def listening(self) -> bool:
        """Whether anyone gets what `progress` is given: without listeners it need not be gathered."""
        ...

    @property
    def same_boot(self) -> bool:
        """Whether the operation was recorded in this boot of this machine; always, for a new one.

        Otherwise a status of ready does not prove that nothing was begun: the traces of it may be lost, or elsewhere.
        """
        ...

    @property
    def cancelling(self) -> bool:
        """Whether the operation has been asked to stop: what has not begun need not begin."""
        ...

    async def running(self, checkpoint: dict[str, Any] | None = None) -> None:
        """Report that the work has begun (or has a new checkpoint)."""
        ...

    def progress(self, text: str) -> None:
        """Show a piece of live output. Bounded: pieces are dropped when nobody reads."""
        ...


class Handler(Protocol):
    """Executes operations of one type and version.

    `start` does the work to its end and says how it ended; an exception that it raises is recorded as failed, with
    the exception's type. The manager cancels `start` (trio cancellation) when the owner lets go of the operation: a
    handler whose work survives leaves it running then; `recover` finds it again.
    `cancel` is called while `start` or `recover` runs: it asks the work to stop and returns; `start` then returns how
    it ended. Where `cancel` returns False, the manager cancels the task itself and records cancelled.
    A handler with a true attribute `enforces_timeout` ends work that is over its time itself; for others the manager
    calls `cancel` in the same way and records failed where it would have recorded cancelled.
    Its limit counts over all owners; with a true attribute `per_group`, over each one's operations by themselves. Work
    that can wait for other work of its type needs that: it would hold the places that the other one waits for.
    One with a method `async end_strays(folders)` ends what operations that have ended left running; it is called with
    the folders of all ended operations of an owner, of whatever type, and finds its own by what lies there.
    `recover` is called instead of `start` for an operation that the log shows as not ended: re-attach, restart
    when idempotent, or end as unknown.
    """

    type: str
    version: int
    limit: int  # how many run at once in one manager; the rest wait as ready

    async def start(self, operation: Operation, context: Context) -> Ended: ...

    async def cancel(self, operation: Operation) -> bool: ...

    async def recover(self, operation: Operation, context: Context) -> Ended: ...
