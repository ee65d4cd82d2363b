"""What an owner can write into a log and read again.

Belongs here: bringing what handlers and Python functions give into JSON's types, or saying why that cannot be done.
Must not know: logs, or what an update leads to.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from operations.operation import Update
from operations.wording import encodable

MOST_DEPTH: Final = 100
"""Levels of a result. Readers of JSON are recursive, and those of a log have levels of their own around this."""


class NotRecordable(Exception):
    """The text says what of an update no log would take."""


def recordable(update: Update) -> Update:
    """The update as whoever reads it from a log will find it. Raises NotRecordable."""
    try:
        checkpoint, result = _as_read(update.checkpoint), _as_read(update.result)
        fields = {**msgspec.structs.asdict(update), "checkpoint": checkpoint, "result": result}
        if update.seconds is not None:
            fields["seconds"] = max(0.0, update.seconds) if math.isfinite(update.seconds) else None
        return msgspec.convert(fields, Update, builtin_types=(bytes,))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotRecordable(str(error)) from error


def _as_read(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = msgspec.json.encode(_encodable(msgspec.to_builtins(value, str_keys=True)))
    read = msgspec.json.decode(data, type=dict[str, Any])
    if data.count(b"{") + data.count(b"[") > MOST_DEPTH and _is_deeper(read, MOST_DEPTH):
        raise NotRecordable(f"it is nested more than {MOST_DEPTH} levels deep")
    return read


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [inner for outer in level for inner in _inside(outer)]
    return any(isinstance(value, dict | list) for value in level)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
