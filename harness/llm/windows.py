"""How many tokens a model's context holds, as far as it is known.

Belongs here: the data file that ships, and the one a user may put in front of it.
Must not know: what is done about a context that is full.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

VARIABLE: Final = "TURNLOG_WINDOWS"
"""Names a JSON file of the same shape whose entries come before the shipped ones."""


class Windows(msgspec.Struct, frozen=True):
    """The shape of the file: tokens by the beginning of `provider:model`."""

    windows: dict[str, int]
    about: str = ""


class BadWindows(ValueError):
    """The user's file cannot be used."""


def window_of(model: str, environ: Mapping[str, str] = os.environ) -> int | None:
    """Tokens of a model's context; None when nobody said. Blocks on the disk.

    The user's entries count before the shipped ones, and of either the longest beginning that fits.
    Raises BadWindows when the user's file cannot be read.
    """
    own = environ.get(VARIABLE, "").strip()
    tables = [_user_file(own)] if own else []
    tables.append(_shipped())
    for table in tables:
        fitting = [name for name in table if model.startswith(name)]
        if fitting:
            return table[max(fitting, key=len)]
    return None


def _shipped() -> dict[str, int]:
    data = resources.files("harness.llm").joinpath("windows.json").read_bytes()
    return msgspec.json.decode(data, type=Windows).windows


def _user_file(name: str) -> dict[str, int]:
    try:
        table = msgspec.json.decode(Path(name).read_bytes(), type=Windows).windows
    except OSError as error:
        raise BadWindows(f"{VARIABLE} names {name!r}, which cannot be read ({error.strerror}).") from error
    except msgspec.DecodeError as error:
        raise BadWindows(f"{VARIABLE} names {name!r}, which is not as it has to be ({error}).") from error
    bad = [name for name, tokens in table.items() if tokens <= 0]
    if bad:
        raise BadWindows(f"{VARIABLE}: the window of {bad[0]!r} has to be above zero.")
    return table
