"""The session API for asyncio programs: the names of `harness`, awaited in an asyncio loop.

Belongs here: the public names. What needs no loop (Limits, Message, bash, errors) is used from `harness` itself.
Must not know: anything else. `import harness` does not import this package.
"""

from __future__ import annotations

from harness.aio.calling import AsyncioModel, AsyncioTool, model, tool
from harness.aio.places import LoopInUse
from harness.aio.reading import Replay, fork, read_events, replay, rerun, sessions, submit
from harness.aio.session import Deltas, Events, Run, Session, open_session

__all__ = [
    "AsyncioModel",
    "AsyncioTool",
    "Deltas",
    "Events",
    "LoopInUse",
    "Replay",
    "Run",
    "Session",
    "fork",
    "model",
    "open_session",
    "read_events",
    "replay",
    "rerun",
    "sessions",
    "submit",
    "tool",
]
