"""What all sessions of one trio run share: one store per file, one operations manager.

Belongs here: counting who uses a shared thing, and closing it with the last user.
Must not know: what a session does with them.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from harness.errors import BadInput
from harness.llm.providers import PROVIDERS
from operations import OperationManager, default_handlers
from store import SqliteStore, Store


class _Shared:
    """The things of one trio run. Stores are kept by real path, so that two names of a file are one store."""

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.stores: dict[Path, tuple[Any, SqliteStore, int]] = {}
        self.manager = OperationManager(default_handlers(hidden_env=hidden_variables(os.environ)))


_shared: trio.lowlevel.RunVar[_Shared] = trio.lowlevel.RunVar("turnlog_shared")


def _of_this_run() -> _Shared:
    try:
        return _shared.get()
    except LookupError:
        shared = _Shared()
        _shared.set(shared)
        return shared


def hidden_variables(environ: Mapping[str, str]) -> set[str]:
    """Names of the variables that hold models' keys, which commands do not get: their output goes into the log.

    TURNLOG_PASS_ENV names, with commas between them, those that commands need all the same.
    """
    passed = {name.strip() for name in environ.get("TURNLOG_PASS_ENV", "").split(",")}
    return {row.key_variable for row in PROVIDERS.values() if row.key_variable} - passed


def shared_manager() -> OperationManager:
    """The operations manager of this trio run: its limits hold over all sessions."""
    return _of_this_run().manager


@asynccontextmanager
async def open_store(store: str | Path | Store, *, create: bool = True) -> AsyncIterator[Store]:
    """The store itself, or the one at a path, shared by everyone in this trio run who names the same file.

    create: make the file when there is none (its folder has to be there); otherwise that is StoreUnavailable.
    """
    if not isinstance(store, (str, Path)):
        if not hasattr(store, "append"):
            raise BadInput(f"store has to be a path or a Store, not {type(store).__name__}.")
        yield store
        return
    path = await trio.to_thread.run_sync(_real, store)
    shared = _of_this_run()
    async with shared.lock:
        context, opened, users = shared.stores.get(path, (None, None, 0))
        if opened is None:
            context = SqliteStore.open(path, create=create)
            opened = await context.__aenter__()
        shared.stores[path] = (context, opened, users + 1)
    try:
        yield opened
    finally:
        with trio.CancelScope(shield=True):
            async with shared.lock:
                context, opened, users = shared.stores[path]
                if users == 1:
                    del shared.stores[path]
                    await context.__aexit__(None, None, None)
                else:
                    shared.stores[path] = (context, opened, users - 1)


def _real(path: str | Path) -> Path:
    try:
        return Path(path).expanduser().resolve()
    except (ValueError, RuntimeError) as error:  # a zero byte; a home folder that nobody has
        raise BadInput(f"the store's path {str(path)!r} cannot be used: {error}.") from error
