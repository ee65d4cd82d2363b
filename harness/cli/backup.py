"""`turnlog backup`: a copy of the store's file.

Belongs here: saying where it went.
Must not know: how a database in use is copied.
"""

from __future__ import annotations

from pathlib import Path

import click
import trio

from harness.cli.faults import Failure
from harness.cli.options import example, out
from harness.cli.places import place_of, store_option
from store.maintenance import backup


@example("turnlog backup ~/sessions-copy.db")
@click.command(name="backup")
@click.argument("path", metavar="PATH")
@store_option
def command(path: str, store: str | None) -> None:
    """Copy the store's file to the new file PATH, consistent, while any process goes on writing."""
    place = place_of(store)
    if not place.chosen and not place.path.exists():  # nobody has made a session yet
        raise Failure(f"no sessions in {place.path} yet, so there is nothing to copy. Try `turnlog demo`.")
    trio.run(backup, place.path, Path(path).expanduser())
    out(f"{place.path} was copied to {path}.")
