"""Names for sessions, runs, turns, calls and operations.

Belongs here: how each is made. Uniqueness never depends on a clock; order never depends on an id.
Must not know: what they name.
"""

from __future__ import annotations

from random import Random
from secrets import SystemRandom
from typing import Final

source: Random = SystemRandom()
"""Where ids take their chance from: the system's. A simulation puts a seeded one in its place."""

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_session_id() -> str:
    """12 letters and digits, 60 bits of chance."""
    return _chance(12)


def new_input_id() -> str:
    """An id for an input whose sender gave none."""
    return "in-" + _chance(16)


def new_operation_id() -> str:
    """Unique over all sessions and stores, since it names a folder on disk."""
    return "op-" + _chance(20)


def turn_id(number: int) -> str:
    """The name of a session's nth turn: t1, t2, ..."""
    return f"t{number}"


def call_id(turn: int, index: int) -> str:
    """The name of a turn's call: 9 letters and digits, unique in the session, which every provider takes."""
    return f"t{_base36(turn, 4)}c{_base36(index, 3)}"


def _chance(length: int) -> str:
    # 32 of the 36: no i, l, o, u, so that an id can be read aloud.
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    return "".join(source.choice(alphabet) for _ in range(length))


def _base36(number: int, width: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits.rjust(width, "0")
