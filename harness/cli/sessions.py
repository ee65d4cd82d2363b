"""`turnlog sessions`: what there is.

Belongs here: the listing, as a table and as JSON.
Must not know: how sessions are stored.
"""

from __future__ import annotations

import click
import msgspec
import trio

from harness.cli import words
from harness.cli.options import example, json_option, out
from harness.cli.places import Place, place_of, store_option
from harness.cli.tables import aligned
from harness.cli.views import print_json_line
from harness.history import SessionSummary, sessions

HEAD = ("id", "state", "turns", "events", "last activity", "parent", "title")


@example("turnlog sessions --json")
@click.command(name="sessions")
@json_option
@store_option
def command(as_json: bool, store: str | None) -> None:
    """List the sessions of a store, last active first.

    State: running (a process works on it), unfinished (its run waits for `turnlog run --session ID`), waiting (so do
    messages or requests that nobody has taken up), idle, or unreadable (`turnlog verify ID` tells more).
    """
    place = place_of(store)
    found = trio.run(_found, place)
    if as_json:
        print_json_line(msgspec.to_builtins(found))
    elif not found:
        out(f"No sessions in {place.path} yet. Try `turnlog demo`.")
    else:
        for line in aligned([HEAD, *map(_row, found)], right=(2, 3)):
            out(line)


async def _found(place: Place) -> list[SessionSummary]:
    if not place.chosen and not place.path.exists():  # nobody has made a session yet, which is no error
        return []
    return await sessions(place.path)


def _row(summary: SessionSummary) -> tuple[str, ...]:
    parent = f"{summary.parent_id}@{summary.parent_seq}" if summary.parent_id else "-"
    last = summary.last_activity.replace("T", " ")[:19]
    counts = (f"{summary.turns:,}", f"{summary.events:,}")
    return (summary.id, summary.state, *counts, last, parent, words.one_line(summary.title, 60))
