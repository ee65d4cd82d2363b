"""Putting an input into a session from outside, and saying what becomes of it.

Belongs here: what `send`, `interrupt` and `cancel` share.
Must not know: what an input does to a run.
"""

from __future__ import annotations

import harness
from harness import events as ev
from harness.cli.options import out
from harness.cli.places import Place, open_at


async def put(place: Place, given: str, content: ev.Content, input_id: str | None = None) -> None:
    """Add to the durable inbox; then two lines: the input's id, and who takes it up when."""
    async with open_at(place, given) as (store, session_id):
        chosen = await harness.submit(store, session_id, content, input_id)
        holder = (await store.session(session_id)).holder
    out(chosen)
    if holder:
        out(f"{holder} has session {session_id} open and takes it up now.")
    else:
        out(f"No process has session {session_id} open. `turnlog run --session {session_id}{place.hint}` takes it up.")
