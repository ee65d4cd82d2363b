"""`turnlog verify`: has anything in the store been altered, lost or reordered?

Belongs here: showing the damage.
Must not know: hashes.
"""

from __future__ import annotations

import click
import trio

from harness.cli import words
from harness.cli.faults import FAILED, OK
from harness.cli.options import example, out
from harness.cli.places import Place, open_at, open_place, place_of, store_option
from store import Damage


@example("turnlog verify")
@click.command(name="verify")
@click.argument("session", metavar="[ID]", required=False)
@store_option
def command(session: str | None, store: str | None) -> int:
    """Check the hash chain of one session, or the whole store. Exit status 1 when anything is damaged."""
    place = place_of(store)
    if session is None and not place.chosen and not place.path.exists():  # nobody has made a session yet
        out(f"No sessions in {place.path} yet. Try `turnlog demo`.")
        return OK
    damages, what = trio.run(_verify, place, session)
    for damage in damages:
        where = damage.session_id or "the store"
        at = "" if damage.seq is None else f" at event {damage.seq}"
        out(f"{where}{at}: {damage.problem}")
    if not damages:
        out(f"{what}: every event is as it was written.")
    return FAILED if damages else OK


async def _verify(place: Place, given: str | None) -> tuple[list[Damage], str]:
    if given is None:
        async with open_place(place) as store:
            damages = await store.verify()
            return damages, "" if damages else words.counted(len(await store.sessions()), "session")
    async with open_at(place, given) as (store, session_id):
        return await store.verify(session_id), f"session {session_id}"
