"""`interrupt` and `cancel`: control requests to a session, whoever has it open.

Belongs here: their options, and that a session with nothing to stop is told nothing.
Must not know: what becomes of a request.
"""

from __future__ import annotations

import click
import trio

from harness import events as ev
from harness.cli import words
from harness.cli.inputs import put_into, waiting_inputs
from harness.cli.options import example, out, session_argument
from harness.cli.places import Place, open_at, place_of, store_option
from harness.history import fold
from store import Store


def control_verb(name: str, control: type[ev.Interrupt | ev.Cancel], says: str, line: str) -> click.Command:
    """The verb that sends this control request. says: its help; line: the example in it."""

    @example(line)
    @click.command(name=name, help=says)
    @session_argument
    @click.option("--reason", metavar="TEXT", default="", help="Shown at the end of the run, and in the log.")
    @store_option
    def command(session: str, reason: str, store: str | None) -> None:
        trio.run(_send, place_of(store), session, name, control(reason))

    return command


async def _send(place: Place, given: str, verb: str, content: ev.Interrupt | ev.Cancel) -> None:
    async with open_at(place, given) as (store, session_id):
        pending = await _nothing_to_stop(store, session_id, content)
        if pending is None:
            await put_into(store, session_id, place, content)
            return
    out(f"Session {session_id} has no run to {verb}; nothing was sent.")
    if pending:
        out(f"What it has left running ({words.counted(pending, 'call')}): `turnlog cancel {session_id}{place.hint}`.")


async def _nothing_to_stop(store: Store, session_id: str, content: ev.Interrupt | ev.Cancel) -> int | None:
    """The number of pending calls of a session that the request could only reach when it is too late; else None.

    Sent all the same, it would lie in the inbox and say nothing about the run that comes next.
    """
    if (await store.session(session_id)).holder:
        return None
    state = await fold(store, session_id)
    if state.run is not None or await waiting_inputs(store, session_id, state.accepted):
        return None
    pending = len(state.pending)
    return None if pending and isinstance(content, ev.Cancel) else pending
