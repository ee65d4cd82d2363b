"""What the session API raises beside the store's and the models' own errors.

Belongs here: mistakes of a caller, each with what to do about it.
Must not know: how sessions work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.session import Run


class HarnessError(Exception):
    """Base of the errors that the session API raises on purpose."""


class BadInput(HarnessError, ValueError):
    """An argument cannot be used as it is. Nothing was changed."""


class Unrecordable(HarnessError, ValueError):
    """A value cannot be written to the log so that it is read again as it was. Nothing was written."""


class RunInProgress(HarnessError):
    """A run is going on already. `run` is it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        super().__init__(f"run {run.id!r} is still going. Await its result, steer it, or interrupt it.")


class RunEnded(HarnessError):
    """The run is over and takes no more messages."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id!r} has ended. Start a new one with session.run or session.send.")


class ToolUnavailable(HarnessError):
    """A pending call of the log needs a tool that only the caller can give. Nothing was run."""

    def __init__(self, tool: str, call_id: str) -> None:
        self.tool, self.call_id = tool, call_id
        super().__init__(f"call {call_id} needs the tool {tool!r}. Pass it in tools= when you open the session.")


class SessionClosed(HarnessError):
    """The session was closed while somebody waited for it. Its log is whole; open it again to go on."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r} is closed. Open it again to go on.")
