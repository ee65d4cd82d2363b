"""`turnlog import`: an exported session into a store.

Belongs here: reading the file.
Must not know: its format.
"""

from __future__ import annotations

from collections.abc import Iterable

import click
import trio

from harness.cli.options import example, out
from harness.cli.places import Place, make_folder, open_place, place_of, store_option
from store import SessionInfo
from store.maintenance import import_session


@example("turnlog import session.jsonl --store other.db")
@click.command(name="import")
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.option("--salvaged", is_flag=True, help="Take an export that ends before damage; the session then ends there.")
@store_option
def command(file: Iterable[bytes], salvaged: bool, store: str | None) -> None:
    """Add an exported session (a file, or - for stdin) to a store, all of it or nothing, and print its id."""
    out(trio.run(_import, place_of(store), file, salvaged).id)


async def _import(place: Place, lines: Iterable[bytes], salvaged: bool) -> SessionInfo:
    make_folder(place, None)
    async with open_place(place, create=True) as store:
        return await import_session(store, lines, salvaged=salvaged)
