"""Which store and which session a command is about.

Belongs here: the order in which options, variables and defaults count, and ids given by their beginning.
Must not know: what is done with a store or a session.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from harness.cli.faults import Mistake

if TYPE_CHECKING:
    from store import Store

F = TypeVar("F", bound=Callable[..., Any])


class Place(NamedTuple):
    """A store's file. option: whether `--store` named it, so that a command to try next has to name it too.

    chosen: whether anybody named it, or it is merely the default.
    """

    path: Path
    option: bool
    chosen: bool

    @property
    def hint(self) -> str:
        """What a command to try next needs behind its id to find this store again."""
        return f" --store {quoted(str(self.path))}" if self.option else ""


def store_option(function: F) -> F:
    """Adds `--store`."""
    return click.option(
        "--store",
        metavar="PATH",
        help="The store's file. Default: TURNLOG_STORE, else turnlog/sessions.db in XDG_STATE_HOME.",
    )(function)


def place_of(option: str | None) -> Place:
    """The store to use: the option, else TURNLOG_STORE, else the default below the user's state folder."""
    if option is not None:
        if not option:
            raise Mistake("--store is empty. Name the store's file.")
        return Place(at_home(option), option=True, chosen=True)
    if named := os.environ.get("TURNLOG_STORE"):
        return Place(at_home(named), option=False, chosen=True)
    state = os.environ.get("XDG_STATE_HOME") or ""
    # The XDG rule: a relative path in the variable is to be ignored.
    base = Path(state) if Path(state).is_absolute() else at_home("~/.local/state")
    return Place(base / "turnlog" / "sessions.db", option=False, chosen=False)


def at_home(path: str) -> Path:
    """The path, with a leading `~` as the user's home folder. Raises Mistake when there is none."""
    if not os.environ.get("HOME", "/"):  # an empty one would make it the root folder
        del os.environ["HOME"]
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise Mistake(f"{path}: there is no such home folder. Set HOME, or name the store with --store.") from None


def make_folder(place: Place, model: str | None) -> None:
    """Make the default store's folder. One that somebody named is theirs to make: it may be a slip of the pen.

    model: is made sure of first, since a command that cannot run leaves nothing behind.
    """
    from harness.llm import make_model
    from store import StoreUnavailable

    folder = place.path.parent
    if place.chosen or folder.is_dir():
        return
    if model is not None:
        make_model(model)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreUnavailable(
            f"{folder}: cannot be made ({error.strerror}). Name a store elsewhere with --store."
        ) from None


@asynccontextmanager
async def open_place(place: Place, *, create: bool = False) -> AsyncIterator[Store]:
    """The store itself."""
    from harness.runtime import open_store

    async with open_store(place.path, create=create) as store:
        yield store


@asynccontextmanager
async def open_at(place: Place, given: str) -> AsyncIterator[tuple[Store, str]]:
    """(the store, the whole id of the session that `given` means). Raises UnknownSession, Mistake."""
    from store import UnknownSession

    if not place.chosen and not place.path.exists():  # nobody has made a session yet
        raise UnknownSession(given)
    async with open_place(place) as store:
        yield store, await session_id_of(store, given)


async def session_id_of(store: Store, given: str) -> str:
    """The id that `given` is, or is the beginning of. Raises UnknownSession, or Mistake when it begins several."""
    from store import UnknownSession

    try:
        await store.session(given)
    except UnknownSession:
        ids = [info.id for info in await store.sessions() if given and info.id.startswith(given)]
        if not ids:
            raise
        if len(ids) > 1:
            some = ", ".join(ids[:3]) + (", ..." if len(ids) > 3 else "")
            raise Mistake(f"{len(ids)} sessions begin with {given!r}: {some}. Give more of the id.") from None
        return ids[0]
    return given


def quoted(text: str) -> str:
    """As a shell takes it for one word."""
    import shlex

    return shlex.quote(text)
