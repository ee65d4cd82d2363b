"""`turnlog export`: a session as lines of JSON on stdout.

Belongs here: writing them out.
Must not know: their format.
"""

from __future__ import annotations

import sys

import click
import trio

from harness.cli.options import example, session_argument
from harness.cli.places import Place, open_at, place_of, store_option
from store.maintenance import export_session


@example("turnlog export 9m38 > session.jsonl")
@click.command(name="export")
@session_argument
@store_option
def command(session: str, store: str | None) -> None:
    """Write a session as JSON lines to stdout, running or not: `turnlog export ID > session.jsonl`.

    Of a damaged session, what comes before the damage is written; then the damage is named, with exit status 1.
    """
    trio.run(_export, place_of(store), session)


async def _export(place: Place, given: str) -> None:
    async with open_at(place, given) as (store, session_id):
        try:
            async for line in export_session(store, session_id):
                sys.stdout.buffer.write(line)
        finally:
            sys.stdout.buffer.flush()
