"""Putting an input into a session from outside, and saying what becomes of it.

Belongs here: what `send`, `interrupt` and `cancel` share, and what of it nobody has taken up yet.
Must not know: what an input does to a run.
"""

from __future__ import annotations

from collections.abc import Container

import harness
from harness import events as ev
from harness.cli.options import out
from harness.cli.places import Place, open_at
from harness.inbox import read_entry
from store import Store


async def put(place: Place, given: str, content: ev.Input, input_id: str | None = None) -> None:
    """Add to the durable inbox of the session that `given` means, see `put_into`."""
    async with open_at(place, given) as (store, session_id):
        await put_into(store, session_id, place, content, input_id)


async def put_into(store: Store, session_id: str, place: Place, content: ev.Input, input_id: str | None = None) -> None:
    """Add to the durable inbox; then two lines: the input's id, and who takes it up when."""
    chosen = await harness.submit(store, session_id, content, input_id)
    holder = (await store.session(session_id)).holder
    out(chosen)
    if holder:
        out(f"{holder} has session {session_id} open and takes it up now.")
    else:
        out(f"No process has session {session_id} open. `turnlog run --session {session_id}{place.hint}` takes it up.")


async def waiting_inputs(store: Store, session_id: str, accepted: Container[str]) -> list[str]:
    """Ids of what was sent to a session and is not accepted. What cannot be read never will be, and is left out."""
    sent = [stored for stored in await store.inputs(session_id) if stored.input_id not in accepted]
    return [stored.input_id for stored in sent if read_entry(stored) is not None]
