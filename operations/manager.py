"""The operations manager: which handlers there are, and how much of each type runs at once.

Belongs here: what all owners in a process share.
Must not know: a single operation's life (`operations.group` does), or what owners are.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from operations.boot import BootMark
from operations.group import CANCEL_GRACE_S, Admit, OnProgress, OperationGroup
from operations.handlers import default_handlers
from operations.operation import Handler, UnknownOperationType
from operations.slots import Slots
from operations.updates import Updates


class OperationManager:
    """Handlers by type and version, and a limit for each type: over all groups, or in each, as the handler declares.

    handlers: None for `default_handlers()`. limits: operations of a type that run at once, where it should not be the
    largest that a handler of the type declares. Raises ValueError for two handlers of one type and version, for a limit
    below 1, and for a limit of a type that has no handler.
    """

    def __init__(self, handlers: Iterable[Handler] | None = None, limits: Mapping[str, int] | None = None) -> None:
        self._handlers: dict[tuple[str, int], Handler] = {}
        most: dict[str, int] = {}
        for handler in default_handlers() if handlers is None else handlers:
            key = (handler.type, handler.version)
            if key in self._handlers:
                raise ValueError(f"two handlers for operations of type {key[0]!r} version {key[1]}. Keep one.")
            self._handlers[key] = handler
            most[handler.type] = max(handler.limit, most.get(handler.type, 0))
        for type_, limit in (limits or {}).items():
            if type_ not in most:
                raise ValueError(f"a limit for operations of type {type_!r}, but no handler. Register one.")
            most[type_] = limit
        methods = [getattr(handler, "end_strays", None) for handler in self._handlers.values()]
        self._sweepers = [method for method in methods if method is not None]
        self._limits = most
        self._per_group = {handler.type for handler in self._handlers.values() if getattr(handler, "per_group", False)}
        self._shared = {type_: Slots(limit) for type_, limit in most.items() if type_ not in self._per_group}

    @asynccontextmanager
    async def open_group(
        self,
        folder: Path,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        on_progress: OnProgress | None = None,
        admit: Admit | None = None,
        cancel_grace_s: float = CANCEL_GRACE_S,
    ) -> AsyncIterator[OperationGroup]:
        """The operations of one owner.

        folder: for what operations leave on disk; it has to be the same one when the owner comes back after a crash.
        functions: Python callables by name, for operations of type `function`. on_progress: is called with live output,
        in the owner's trio loop; it must not block. admit: is awaited just before each operation is begun or taken up,
        also one that had to wait for its slot: an owner that is not sure to be the owner still can hold it back.
        cancel_grace_s: seconds in which cancelled work has to stop.

        Leaving the block lets go of what is not ended: detached commands go on and can be recovered, everything else is
        cancelled, and nothing of that is an update. It takes no longer than the grace, whatever the work does.
        """
        if not (math.isfinite(cancel_grace_s) and cancel_grace_s > 0):
            raise ValueError(f"cancel_grace_s has to be a positive number of seconds, not {cancel_grace_s!r}.")
        mark, updates = BootMark(folder), Updates()  # out here, where what they may raise is raised as it is
        closing = trio.Event()
        watching = trio.CancelScope(shield=True)
        async with trio.open_nursery() as outer:
            try:
                async with trio.open_nursery() as nursery:
                    group = OperationGroup(
                        folder=folder,
                        mark=mark,
                        updates=updates,
                        functions={} if functions is None else functions,
                        on_progress=on_progress,
                        admit=admit,
                        find=partial(self._find, {type_: Slots(self._limits[type_]) for type_ in self._per_group}),
                        sweepers=self._sweepers,
                        nursery=nursery,
                        cancel_grace_s=cancel_grace_s,
                    )
                    outer.start_soon(_give_up_late, group, closing, watching, cancel_grace_s)
                    try:
                        yield group
                    finally:
                        group.closing = True
                        closing.set()
                        nursery.cancel_scope.cancel()
            finally:
                watching.cancel()
                updates.close()

    def _find(self, own: Mapping[str, Slots], type_: str, version: int) -> tuple[Handler, Slots]:
        handler = self._handlers.get((type_, version))
        if handler is None:
            raise UnknownOperationType(type_, version)
        return handler, own.get(type_) or self._shared[type_]


async def _give_up_late(group: OperationGroup, closing: trio.Event, watching: trio.CancelScope, grace_s: float) -> None:
    # Shielded: the owner's own cancellation is one of the ways in which a group closes.
    with watching:
        await closing.wait()
        await trio.sleep(grace_s)
        group.give_up_all()
