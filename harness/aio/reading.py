"""Logs without their sessions, for asyncio programs: the functions of `harness` that take a store and an id.

Belongs here: one crossing for each.
Must not know: what they do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import harness.history as native_history
import harness.inbox as native_inbox
import harness.replaying as native_replaying
import harness.rerunning as native_rerunning
from harness import events as ev
from harness.aio.guest import cross
from harness.llm.model import Model
from harness.rerunning import Rerun
from harness.runtime import open_store
from harness.skill_files import SkillsRequest
from harness.tools.registry import Tool
from store import Store


async def fork(
    store: str | Path | Store, session_id: str, *, at: int | str | None = None, title: str | None = None
) -> str:
    """Make a branch of a session and return its id; see `harness.fork`."""
    return await cross(lambda: native_history.fork(store, session_id, at=at, title=title))


async def sessions(store: str | Path | Store) -> list[native_history.SessionSummary]:
    """Every session of a store, last active first."""
    return await cross(lambda: native_history.sessions(store))


async def read_events(store: str | Path | Store, session_id: str, *, upto: int | None = None) -> list[ev.Logged]:
    """Every event of a session up to and including `upto`; see `harness.read_events`."""
    return await cross(lambda: native_history.read_events(store, session_id, upto=upto))


async def submit(
    store: str | Path | Store,
    session_id: str,
    content: str | ev.Input,
    input_id: str | None = None,
    *,
    source: str = "user",
) -> str:
    """Put an input into a session's durable inbox, whoever has it open, and return its id; see `harness.submit`.

    store: here also a path, which has to be that of a store.
    """

    async def submitted() -> str:
        async with open_store(store, create=False) as opened:
            return await native_inbox.submit(opened, session_id, content, input_id, source=source)

    return await cross(submitted)


class Replay(native_replaying.Replay):
    """A log in memory, to be folded as often as wanted. All but `rerun` is plain computing, in the caller's loop."""

    async def rerun(self, **options: Any) -> Rerun:
        """Run the session's inputs again as a new session, on recorded results; see `harness.rerun`."""
        return await cross(lambda: super(Replay, self).rerun(**options))


async def replay(store: str | Path | Store, session_id: str) -> Replay:
    """Read a session's log for replay. Raises UnknownSession, CorruptLog, UnsupportedVersion."""
    return Replay(session_id, await read_events(store, session_id), store)


async def rerun(
    store: str | Path | Store,
    session_id: str,
    *,
    model: str | Model | None = None,
    tools: Sequence[Tool | SkillsRequest] | None = None,
    policy: ev.Policy | None = None,
    execute: Collection[str] = (),
    into: str | Path | Store | None = None,
) -> Rerun:
    """Give a new session the inputs of an old one, on recorded results; see `harness.rerun`."""
    return await cross(
        lambda: native_rerunning.rerun(
            store, session_id, model=model, tools=tools, policy=policy, execute=execute, into=into
        )
    )
