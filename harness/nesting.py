"""How deeply JSON is nested.  Pure.

Belongs here: telling, without recursion, what a recursive reader might not get through.
Must not know: whose JSON it is.
"""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_A_BRACKET: Final = re.compile(rb"[^][{}]+")


def is_deeper(json: bytes, most: int) -> bool:
    """Whether valid JSON has more than `most` arrays and objects inside one another."""
    if json.count(b"[") + json.count(b"{") <= most:
        return False
    depth = 0
    for bracket in _NOT_A_BRACKET.sub(b"", _STRING.sub(b"", json)):
        depth += 1 if bracket in b"[{" else -1
        if depth > most:
            return True
    return False
