"""`turnlog send`: a message to a session, whoever has it open.

Belongs here: its options.
Must not know: what becomes of a message.
"""

from __future__ import annotations

import click
import trio

from harness.cli.inputs import put
from harness.cli.options import example, session_argument
from harness.cli.places import place_of, store_option
from harness.cli.prompting import prompt_of
from harness.events import Message


@example('turnlog send 9m38 "Leave the database alone."')
@click.command(name="send")
@session_argument
@click.argument("text", metavar="TEXT | FILE | -")
@click.option("--id", "input_id", metavar="INPUT_ID", help="The input's id: the same one again is the same input.")
@store_option
def command(session: str, text: str, input_id: str | None, store: str | None) -> None:
    """Send a message to a session: it steers the run that is going on, or starts one.

    The message is durable when this returns. A process that has the session open takes it up at once; otherwise the
    next one does that opens it.
    """
    trio.run(put, place_of(store), session, Message(prompt_of(text)), input_id)
