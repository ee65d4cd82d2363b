"""`turnlog interrupt`: its help. What it shares with `turnlog cancel` is in controls.py."""

from __future__ import annotations

from typing import Final

from harness.cli.controls import control_verb
from harness.events import Interrupt

command: Final = control_verb(
    "interrupt",
    Interrupt,
    """Interrupt a session's run: the turn in flight is cut off and the run ends; its commands go on.

    The request is durable when this returns. A process that has the session open takes it up at once; otherwise the
    next one does that opens it. A session that has no run is told nothing.
    """,
    "turnlog interrupt 9m38",
)
