"""Where a call comes from: an asyncio loop that may have sessions, or some place that may not.

Belongs here: telling asyncio code, trio code and neither apart, and the error that says so.
Must not know: how the guest run works.
"""

from __future__ import annotations

import asyncio
import sys

import trio

from harness.errors import HarnessError


class LoopInUse(HarnessError):
    """This asyncio loop, or its thread, cannot run a session."""


def running_loop() -> asyncio.AbstractEventLoop:
    """The asyncio loop whose code is running. Raises LoopInUse when there is none, or when this is trio code."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise LoopInUse("no asyncio loop runs here. Use asyncio.run, or in a trio program harness itself.") from None
    if in_trio_task():  # trio_asyncio makes every asyncio program of the process one
        what = "runs inside trio (trio_asyncio)" if "trio_asyncio" in sys.modules else "is not the one that runs here"
        raise LoopInUse(f"the asyncio loop {what}. Use harness itself from trio code, not harness.aio.")
    return loop


def in_trio_run() -> bool:
    """Whether a trio run goes on in this thread, be it as a guest between two of its steps."""
    try:
        trio.current_time()
    except RuntimeError:
        return False
    return True


def in_trio_task() -> bool:
    """Whether the running code is a trio task's."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True
