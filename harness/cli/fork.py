"""`turnlog fork`: a branch of a session.

Belongs here: reading where to fork.
Must not know: how a branch is made.
"""

from __future__ import annotations

import click
import trio

import harness
from harness.cli.options import example, out, session_argument
from harness.cli.places import Place, open_at, place_of, store_option


@example("turnlog fork 9m38 --at t2")
@click.command(name="fork")
@session_argument
@click.option("--at", metavar="SEQ | TURN", help="The last event to keep, or a turn's id (t3): kept to its end.")
@store_option
def command(session: str, at: str | None, store: str | None) -> None:
    """Make a branch of a session, running or not, and print its id, alone.

    Calls that are pending there belong to the parent: the branch sees them end as unknown and can run at once.
    """
    place = int(at) if at is not None and at.isdecimal() else at
    out(trio.run(_fork, place_of(store), session, place))


async def _fork(place: Place, given: str, at: int | str | None) -> str:
    async with open_at(place, given) as (store, session_id):
        return await harness.fork(store, session_id, at=at)
