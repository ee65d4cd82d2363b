"""`turnlog cancel`: its help. What it shares with `turnlog interrupt` is in controls.py."""

from __future__ import annotations

from typing import Final

from harness.cli.controls import control_verb
from harness.events import Cancel

command: Final = control_verb(
    "cancel",
    Cancel,
    """Cancel a session's run: the turn in flight is cut off, every command is ended, and the run ends.

    The request is durable when this returns. A process that has the session open takes it up at once; otherwise the
    next one does that opens it. A session with nothing to cancel is told nothing.
    """,
    'turnlog cancel 9m38 --reason "wrong branch"',
)
