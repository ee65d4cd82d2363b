"""Short ways to run operations and to wait for what becomes of them."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from operations import (
    TERMINAL,
    Context,
    Ended,
    Handler,
    Operation,
    OperationGroup,
    OperationManager,
    OperationSpec,
    Status,
    Update,
)
from operations.process_table import look_up

DEADLINE_S = 30.0


def shell(id_: str, command: str, cwd: Path | str = "/", **more: Any) -> Operation:
    """An operation that runs `command`; timeout_s and status go where they belong, the rest is arguments."""
    timeout_s, status = more.pop("timeout_s", None), more.pop("status", Status.READY)
    args = {"command": command, "cwd": str(cwd), **more}
    return Operation(id_, OperationSpec("shell", 1, args, timeout_s=timeout_s), status)


def function(id_: str, name: str, *, timeout_s: float | None = None, idempotent: bool = False) -> Operation:
    """An operation that calls a registered function without arguments."""
    return Operation(id_, OperationSpec("function", 1, {"name": name}, timeout_s, idempotent))


@asynccontextmanager
async def group_of(
    folder: Path, functions: Mapping[str, Callable[..., Any]] | None = None, handlers: Any = None, **options: Any
) -> AsyncIterator[OperationGroup]:
    """A group of a manager of its own, with nothing to recover."""
    limits = options.pop("limits", None)
    async with OperationManager(handlers, limits).open_group(folder, functions or {}, **options) as group:
        yield group


async def ends(group: OperationGroup, *ids: str, within_s: float = DEADLINE_S) -> dict[str, Update]:
    """Wait until these have ended; the terminal update of each."""
    found: dict[str, Update] = {}
    missing = set(ids)
    with trio.fail_after(within_s):
        while missing:
            update = await group.updates.receive()
            if update.status in TERMINAL:
                assert update.operation_id not in found, "ended twice"
                found[update.operation_id] = update
                missing.discard(update.operation_id)
    return found


async def run(group: OperationGroup, operation: Operation, within_s: float = DEADLINE_S) -> Update:
    """Start one and wait for its end."""
    group.start([operation])
    return (await ends(group, operation.id, within_s=within_s))[operation.id]


async def statuses(group: OperationGroup, id_: str, within_s: float = DEADLINE_S) -> list[Status]:
    """Every status of one operation up to its end."""
    found: list[Status] = []
    with trio.fail_after(within_s):
        while not found or found[-1] not in TERMINAL:
            update = await group.updates.receive()
            if update.operation_id == id_:
                found.append(update.status)
    return found


async def until(condition: Callable[[], Any], within_s: float = DEADLINE_S) -> Any:
    """Poll something outside this process; its first true value. Elapsed time is the machine's, never trio's."""
    deadline = time.monotonic() + within_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited too long"
        await trio.sleep(0.01)
    return value


def read(path: Path) -> str:
    """The text of a file, empty as long as there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def gone(pid: int) -> bool:
    """Whether no live process has this id."""
    row = look_up(pid)
    return row is None or row.state in "ZX"


def memory_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Held:
    """A handler whose operations begin when started and end when the test says so."""

    type, version, limit = "held", 1, 2

    def __init__(self, *, obeys: bool | None = False) -> None:
        self.begun: list[str] = []
        self.recovered: list[str] = []
        self.asked: list[str] = []
        self.release: dict[str, trio.Event] = {}
        self.obeys = obeys

    async def start(self, operation: Operation, context: Context) -> Ended:
        self.begun.append(operation.id)
        await context.running({"place": operation.id})
        return await self._hold(operation)

    async def recover(self, operation: Operation, context: Context) -> Ended:
        self.recovered.append(operation.id)
        return await self._hold(operation)

    async def cancel(self, operation: Operation) -> bool:
        self.asked.append(operation.id)
        if self.obeys is None:
            raise RuntimeError("cannot")
        return self.obeys

    async def _hold(self, operation: Operation) -> Ended:
        event = self.release.setdefault(operation.id, trio.Event())
        await event.wait()
        return Ended(Status.COMPLETED, {"done": operation.id})

    def finish(self, id_: str) -> None:
        self.release.setdefault(id_, trio.Event()).set()


def held(*ids: str, status: Status = Status.READY, timeout_s: float | None = None) -> list[Operation]:
    """Operations for `Held`."""
    return [Operation(id_, OperationSpec("held", 1, {}, timeout_s), status) for id_ in ids]


def drain(group: OperationGroup) -> list[tuple[str, Status]]:
    """What happened since the last look, as (id, status)."""
    return [(update.operation_id, update.status) for update in group.updates.take_nowait()]


HANDLERS: Sequence[type[Handler]] = (Held,)
"""Checked by mypy where tests are: what stands in for a handler is one."""
