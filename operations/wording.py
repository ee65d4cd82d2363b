"""Errors of foreign code in words that every log can hold.  Pure.

Belongs here: one line of bounded, encodable text from whatever was raised.
Must not know: who raised it, or where the words go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MOST_CHARS: Final = 10_000
"""Characters of an error's text that are kept."""

_SURROGATES: Final = re.compile(r"[\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with half characters (lone surrogates), which no encoder takes, as U+FFFD."""
    return _SURROGATES.sub("\ufffd", text) if _SURROGATES.search(text) else text


def error_text(error: BaseException) -> str:
    """The exception as one never empty text, without a traceback: its type, and what it says if it says anything.

    Of a group, those that it is made of.
    """
    return _bounded("; ".join(_one(leaf) for leaf in leaves(error)))


def _one(error: BaseException) -> str:
    try:
        said = str(error).strip()
    except BaseException:  # noqa: BLE001  (an exception whose text cannot be made still has a type)
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group and of the groups in it, in order; of any other exception, itself."""
    waiting = [error]
    while waiting:  # not recursive: foreign code may nest as deeply as it likes
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(reversed(error.exceptions))
        else:
            yield error


def _bounded(text: str) -> str:
    return encodable(text if len(text) <= MOST_CHARS else text[:MOST_CHARS] + "...")
