"""`turnlog interrupt`: a control request to a session, whoever has it open.

Belongs here: its options.
Must not know: what becomes of a request.
"""

from __future__ import annotations

import click
import trio

from harness.cli.inputs import put
from harness.cli.options import session_argument
from harness.cli.places import place_of, store_option
from harness.events import Interrupt


@click.command(name="interrupt")
@session_argument
@click.option("--reason", metavar="TEXT", default="", help="Stands in the log.")
@store_option
def command(session: str, reason: str, store: str | None) -> None:
    """Interrupt a session's run: the turn in flight is cut off and the run ends; its commands go on.

    The request is durable when this returns. A process that has the session open takes it up at once; otherwise the
    next one does that opens it.
    """
    trio.run(put, place_of(store), session, Interrupt(reason))
