"""JSON from servers, read with patience, and written so that everyone can read it again.  Pure.

Belongs here: half characters, numbers that are none, depth; whatever else separates real JSON from the standard.
Must not know: what any of it means.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import msgspec

from harness.nesting import is_deeper

MAX_DEPTH: Final = 200
"""Levels of brackets that are read. No provider nests deeper, and every encoder that follows recurses."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Text that every encoder takes: two halves of a character (surrogates) become one, a lone half U+FFFD."""
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def decoded(body: bytes, *, halves: bool = False) -> Any:
    """JSON as plain data, or None when it is not JSON or nested too deeply.

    halves: keep half characters in strings, since a stream may bring the other half in its next event.
    """
    strict = True
    try:
        value = msgspec.json.decode(body)
    except RecursionError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        strict, value = False, _patiently(body)
    if value is None or is_deeper(body, MAX_DEPTH):
        return None
    return value if strict or halves else msgspec.json.decode(encoded(value))


def encoded(value: Any) -> bytes:
    """Plain data as compact JSON in UTF-8, whatever its strings hold."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def dumped(value: Any) -> str:
    """Plain data as compact JSON text."""
    return encoded(value).decode()


def _patiently(body: bytes) -> Any:
    """What the strict reader refuses: half characters, bytes that are no UTF-8, NaN and numbers beyond all bounds."""
    try:
        return json.loads(body.decode("utf-8", "replace"), parse_constant=lambda _name: None, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None
