"""`turnlog check`: the trace rules on a log.

Belongs here: showing what is broken.
Must not know: the rules.
"""

from __future__ import annotations

import click
import trio

import harness
from harness import events as ev
from harness.cli import words
from harness.cli.faults import FAILED, OK
from harness.cli.options import example, out, session_argument
from harness.cli.places import Place, open_at, place_of, store_option


@example("turnlog check 9m38")
@click.command(name="check")
@session_argument
@store_option
def command(session: str, store: str | None) -> int:
    """Check a session's log against the trace rules (docs/trace-rules.md). Exit status 1 when one is broken."""
    log = trio.run(_read, place_of(store), session)
    broken = harness.check(log)
    for violation in broken:
        out(str(violation))
    if not broken:
        out(f"{words.counted(len(log), 'event')}: every trace rule holds.")
    return FAILED if broken else OK


async def _read(place: Place, given: str) -> list[ev.Logged]:
    async with open_at(place, given) as (store, session_id):
        return await harness.read_events(store, session_id)
