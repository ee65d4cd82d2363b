"""`turnlog log`: a session's events, those to come included.

Belongs here: a line for each event.
Must not know: where the events come from.
"""

from __future__ import annotations

import click
import trio

from harness import events as ev
from harness.cli import words
from harness.cli.options import example, json_option, out, session_argument
from harness.cli.places import Place, open_at, place_of, store_option
from harness.cli.views import event_json, print_json_line
from harness.history import Events


@example("turnlog log 9m38 --follow")
@click.command(name="log")
@session_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for more events, from any process, until Ctrl-C.")
@click.option("--after", metavar="SEQ", type=click.IntRange(min=0), default=0, help="Only events after this one.")
@json_option
@store_option
def command(session: str, follow: bool, after: int, as_json: bool, store: str | None) -> None:
    """Show a session's events: sequence number, time, kind, and what it says in short. --json has all of it."""
    trio.run(_show, place_of(store), session, follow, after, as_json)


async def _show(place: Place, given: str, follow: bool, after: int, as_json: bool) -> None:
    async with open_at(place, given) as (store, session_id):
        async for logged in Events(store, session_id, after, follow):
            if as_json:
                print_json_line(event_json(logged))
            else:
                out(_line(logged))


def _line(logged: ev.Logged) -> str:
    time = logged.recorded_at[11:23]
    return f"{logged.seq:>5}  {time}  {logged.kind:<18}  {words.summary(logged.event)}".rstrip()
