"""One owner's operations: start, recover, cancel, and the updates that come of it.

Belongs here: the life of each operation from ready to its end, in the order that the table of transitions allows.
Must not know: how any type of operation does its work, or what the owner does with the updates.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from operations.boot import BootMark
from operations.driving import Leash, driven
from operations.operation import (
    TERMINAL,
    Ended,
    Handler,
    Operation,
    Progress,
    Status,
    UnknownOperationType,
    Update,
    moved,
)
from operations.raised import own_error
from operations.recording import NotRecordable, recordable
from operations.slots import Slots, Ticket
from operations.updates import Updates
from operations.wording import encodable, error_text

log = logging.getLogger("turnlog.operations")

CANCEL_GRACE_S: Final = 5.0
"""How long work may take to stop before it is given up: more than a shell command's own two seconds and its drain."""

OnProgress = Callable[[Progress], None]
Admit = Callable[[], Awaitable[None]]
Sweeper = Callable[[Sequence[Path]], Awaitable[None]]
FindHandler = Callable[[str, int], tuple[Handler, Slots]]


class _Work:
    """One operation while it is not ended; also the Context that its handler gets."""

    def __init__(self, group: OperationGroup, operation: Operation, *, fresh: bool, same_boot: bool) -> None:
        self._group = group
        self.recorded = operation  # as its owner's log has it: what a handler may draw conclusions from
        self.operation = operation
        self.fresh, self.same_boot = fresh, same_boot
        self.folder = group.folder / folder_name(operation.id)
        self.functions = group.functions
        self.scope = trio.CancelScope()
        self.leash = Leash()
        self.begun, self.ended = trio.Event(), trio.Event()
        self.handler: Handler | None = None
        self.ticket: Ticket | None = None
        self.reason: str | None = None  # of the cancellation, once it is asked for
        self.stopping = False  # asked for, or its time is over
        self.timed_out: Ended | None = None  # how it ends if it obeys
        self.if_cancelled: Ended | None = None  # how it ends when its task obeys; None while the owner lets go
        self.began_s = trio.current_time()

    @property
    def listening(self) -> bool:
        return self._group.on_progress is not None

    @property
    def cancelling(self) -> bool:
        return self.reason is not None

    async def running(self, checkpoint: dict[str, Any] | None = None) -> None:
        # A handler cannot know that a cancellation came first: its news is late, not wrong.
        if self.operation.status in (Status.READY, Status.RUNNING):
            self.emit(Update(self.operation.id, Status.RUNNING, checkpoint))

    def progress(self, text: str) -> None:
        if self._group.on_progress is not None and not self.ended.is_set():
            self._group.on_progress(Progress(self.operation.id, encodable(text)))

    def emit(self, update: Update) -> None:
        """Every update passes here. Emits nothing and raises IllegalTransition when the table does not allow it, and
        NotRecordable when no log would take it.
        """
        if self._group.closing:
            return
        update = recordable(update)
        self.operation = moved(self.operation, update)
        self._group.updates.add(update)
        if update.status in TERMINAL:
            self._group.forget(self)

    def end(self, ended: Ended) -> None:
        """The first end counts; what comes after it was given up already."""
        if self.ended.is_set():
            return
        if ended.seconds is None:
            ended = msgspec.structs.replace(ended, seconds=trio.current_time() - self.began_s)
        try:
            self._emit_end(ended)
        except NotRecordable as error:
            # What is known of the end stays known; only a result that nobody can have is no success.
            status = Status.FAILED if ended.status is Status.COMPLETED else ended.status
            self._emit_end(Ended(status, {"error": f"the result cannot be recorded: {error}"}))

    def _emit_end(self, ended: Ended) -> None:
        if self.operation.status is Status.READY and ended.status in (Status.COMPLETED, Status.FAILED):
            self.emit(Update(self.operation.id, Status.RUNNING))
        self.emit(
            Update(self.operation.id, ended.status, result=ended.result, seconds=ended.seconds, blobs=ended.blobs)
        )


class OperationGroup:
    """The operations of one owner. Made by `OperationManager.open_group`.

    updates: see `Updates`. Nothing here waits for the work; whatever happens to it is told there.
    """

    def __init__(
        self,
        *,
        folder: Path,
        mark: BootMark,
        updates: Updates,
        functions: Mapping[str, Callable[..., Any]],
        on_progress: OnProgress | None,
        admit: Admit | None,
        find: FindHandler,
        sweepers: Sequence[Sweeper],
        nursery: trio.Nursery,
        cancel_grace_s: float,
    ) -> None:
        self.folder, self.functions, self.on_progress = folder, functions, on_progress
        self.updates = updates
        self._admit = admit
        self._sweepers = sweepers
        self._find, self._nursery, self._cancel_grace_s = find, nursery, cancel_grace_s
        self._works: dict[str, _Work] = {}
        self.closing = False
        self._mark = mark
        self._doubtful: set[str] = set()

    def start(self, operations: Sequence[Operation]) -> None:
        """Run these in the background, those over their type's limit in the order given as slots come free.

        They have to be ready, and recorded: a crash from here on may leave them running. Raises ValueError for an id
        that this group runs already, or a status other than ready; then none of them is started.
        """
        self._check_new(operations, {Status.READY})
        self._renew_mark()
        for operation in operations:
            self._begin(_Work(self, operation, fresh=True, same_boot=True))

    def recover(self, operations: Sequence[Operation]) -> None:
        """Take up operations that the log shows as not ended. Call it once, before `start`, also with none.

        Raises ValueError as `start` does; ended operations are refused too.
        """
        self._check_new(operations, set(Status) - TERMINAL)
        same_boot = self._mark.is_current
        if not same_boot:
            self._doubtful.update(operation.id for operation in operations if operation.status is Status.READY)
        for operation in operations:
            self._begin(_Work(self, operation, fresh=False, same_boot=same_boot))
        self._renew_mark()

    def cancel(self, operation_ids: Iterable[str], reason: str) -> None:
        """Ask these to stop; returns at once. What has ended, is being cancelled or is not here is left alone.

        Each ends within the grace given to `open_group`: as cancelled, as what it became first, or as unknown when it
        could not be stopped. reason: stands in the result.
        """
        for operation_id in operation_ids:
            work = self._works.get(operation_id)
            if work is None or work.reason is not None:
                continue
            work.reason = reason
            if work.fresh and not work.begun.is_set():
                work.end(Ended(Status.CANCELLED, {"reason": reason}, seconds=0.0))
                continue
            if work.ticket is not None and not work.ticket.granted:
                # Only its handler can tell whether a predecessor had begun it.
                work.ticket.insist()
            if work.operation.status is Status.READY:
                work.emit(Update(operation_id, Status.RUNNING))
            if work.operation.status is Status.RUNNING:
                work.emit(Update(operation_id, Status.CANCELLING))
            self._cancel(work)

    def end_strays(self) -> None:
        """End what operations that have ended left running, those of predecessors too; returns at once.

        Leaving the group does not cut it short but waits for it, within the grace.
        """
        if self._sweepers:
            self._nursery.start_soon(self._sweep)

    async def _sweep(self) -> None:
        with trio.move_on_after(self._cancel_grace_s, shield=True):
            try:
                # Listed first, and only then compared: what begins meanwhile is not in the list.
                folders = await trio.to_thread.run_sync(_folders_in, self.folder)
                here = {work.folder for work in self._works.values()}
                for end_strays in self._sweepers:
                    await end_strays([folder for folder in folders if folder not in here])
            except Exception as error:  # noqa: BLE001  (nothing of what goes on depends on it)
                log.warning("not all that operations left running was ended: %s", error_text(error))

    # --- one operation

    def _check_new(self, operations: Sequence[Operation], allowed: set[Status]) -> None:
        seen = set(self._works)
        for operation in operations:
            if operation.status not in allowed:
                raise ValueError(f"operation {operation.id!r} is {operation.status.value} and cannot be begun here.")
            if operation.id in seen:
                raise ValueError(f"operation {operation.id!r} is here already. Use each id once.")
            seen.add(operation.id)

    def _begin(self, work: _Work) -> None:
        operation = work.operation
        self._works[operation.id] = work
        try:
            work.handler, slots = self._find(operation.spec.type, operation.spec.version)
        except UnknownOperationType as error:
            # Whether a handler of a predecessor finished the work cannot be known without that handler.
            status = Status.FAILED if work.fresh else Status.UNKNOWN
            work.end(Ended(status, {"error": str(error)}, seconds=0.0))
            return
        timeout_s = operation.spec.timeout_s
        if work.fresh and timeout_s is not None and not (math.isfinite(timeout_s) and timeout_s > 0):
            text = f"timeout_s has to be a positive number of seconds, not {timeout_s!r}."
            work.end(Ended(Status.FAILED, {"error": text}, seconds=0.0))
            return
        # What runs already counts against the limit, but cannot be made to wait for it.
        work.ticket = slots.reserve(at_once=operation.status is not Status.READY)
        self._nursery.start_soon(self._run, work)
        if operation.status is Status.CANCELLING:
            work.reason = "cancelled before the restart"
            self._cancel(work)

    async def _run(self, work: _Work) -> None:
        assert work.ticket is not None
        try:
            with work.scope:
                await work.ticket.wait()
                if self._admit is not None:
                    await self._admit()
                work.began_s = trio.current_time()
                await self._handle(work)
            if work.scope.cancel_called and work.if_cancelled is not None:
                work.end(work.if_cancelled)
        finally:
            work.ticket.give_back()

    async def _handle(self, work: _Work) -> None:
        handler, spec = work.handler, work.operation.spec
        assert handler is not None
        if spec.timeout_s is not None and not getattr(handler, "enforces_timeout", False):
            self._nursery.start_soon(self._time_out, work, spec.timeout_s)
        work.begun.set()
        verb = handler.start if work.fresh else handler.recover
        try:
            ended = await driven(verb(work.recorded, work), work.leash)
        except BaseException as error:  # noqa: BLE001  (what is not the handler's own is raised again there)
            own = own_error(error)
            if own is not None:
                self._failed(work, error_text(own))
            return
        if not isinstance(ended, Ended) or not isinstance(ended.status, Status) or ended.status not in TERMINAL:
            text = f"the handler for {spec.type!r} did not say how the operation ended."
            ended = Ended(Status.FAILED, {"error": text})
        if work.timed_out is not None and ended.status is Status.CANCELLED:
            result = {**ended.result, **work.timed_out.result}
            ended = msgspec.structs.replace(ended, status=Status.FAILED, result=result)
        work.end(ended)

    def _failed(self, work: _Work, text: str) -> None:
        """Whatever a handler raises is its operation's failure, also on the way out of a cancellation, and no more."""
        if self.closing or work.ended.is_set():
            log.warning("operation %s had been let go when it raised %s", work.operation.id, text)
            return
        before = {} if work.if_cancelled is None else work.if_cancelled.result
        if "error" in before:
            text = f"{before['error']}, and then {text}"
        work.end(Ended(Status.FAILED, {**before, "error": text}))

    def _cancel(self, work: _Work) -> None:
        if not work.stopping:  # what is over its time is being stopped already
            work.stopping = True
            self._nursery.start_soon(self._stop, work, Ended(Status.CANCELLED, {"reason": work.reason or ""}), "")

    async def _time_out(self, work: _Work, timeout_s: float) -> None:
        with trio.move_on_after(timeout_s):
            await work.ended.wait()
            return
        if not work.stopping:
            work.stopping = True
            text = f"timed out after {timeout_s:g} s"
            work.timed_out = Ended(Status.FAILED, {"error": text, "timed_out": True})
            await self._stop(work, work.timed_out, f"{text}; it ")

    async def _stop(self, work: _Work, obeyed: Ended, subject: str) -> None:
        """Ask the handler; where it leaves that to us cancel the task, for `obeyed`; where neither helps give up."""
        assert work.handler is not None
        with trio.move_on_after(self._cancel_grace_s):
            await work.begun.wait()
            try:
                stops = await work.handler.cancel(work.operation)
            except BaseException as error:
                if own_error(error) is None:
                    raise
                stops = False  # a handler that cannot cancel leaves it to us
            if not stops:
                work.if_cancelled = obeyed
                work.scope.cancel()
            await work.ended.wait()
        if not work.ended.is_set():
            text = f"{subject}could not be stopped within {self._cancel_grace_s:g} s and may still be running"
            work.end(Ended(Status.UNKNOWN, {**obeyed.result, "error": text}))
            self._abandon(work)

    def _abandon(self, work: _Work) -> None:
        work.leash.abandoned = True
        work.if_cancelled = None
        work.scope.cancel()
        if work.ticket is not None:
            work.ticket.give_back()

    # --- for the manager and the works

    def forget(self, work: _Work) -> None:
        """The work has ended: nobody finds it here any more."""
        self._works.pop(work.operation.id, None)
        work.ended.set()
        if work.ticket is not None and not work.begun.is_set():
            work.ticket.give_back()
            work.scope.cancel()
        self._settled(work)

    def give_up_all(self) -> None:
        """The group is closing and these did not obey."""
        for work in list(self._works.values()):
            self._abandon(work)

    def _settled(self, work: _Work) -> None:
        if work.operation.id in self._doubtful:
            self._doubtful.discard(work.operation.id)
            self._renew_mark()

    def _renew_mark(self) -> None:
        if not self._doubtful:
            self._mark.renew()


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir()]
    except OSError:  # it is made by the first operation that needs one
        return []


def folder_name(of: str) -> str:
    """The name of the folder for an id, which is its owner's choice: the id where that is safe, else a digest of it."""
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", of):
        return of
    return "x." + hashlib.blake2b(of.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
