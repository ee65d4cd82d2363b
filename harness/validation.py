"""Values that come from callers: texts, numbers, policies, limits, settings.  Pure.

Belongs here: refusing what no log could hold (a wrong type, half a character) and no rule could work with (NaN, zero).
Must not know: where the values go.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

import msgspec

from harness.errors import BadInput
from harness.events import Limits, Policy
from harness.llm.model import ModelSettings

T = TypeVar("T")

MOST_ID_CHARS: Final = 200


def as_logged(name: str, value: T, shape: Any = None) -> T:
    """The value as a log gives it back. shape: its type where that is a union. Raises BadInput that names it."""
    try:
        # Not by way of JSON, which would make null of NaN before a check could see it.
        found: T = msgspec.convert(msgspec.to_builtins(value), shape or type(value))
        msgspec.json.encode(found)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadInput(f"{name} cannot be recorded: {error}.") from error
    return found


def checked(name: str, value: object, shape: type[T], check: Callable[[T], None]) -> T:
    """The value, which has to be of that type, hold what a log can hold, and pass the check. Raises BadInput."""
    if not isinstance(value, shape):
        raise BadInput(f"{name} has to be a harness.{shape.__name__}, not {type(value).__name__}.")
    found = as_logged(name, value, shape)
    check(value)
    return found


def text_of(name: str, value: object) -> str:
    """The value, which has to be text that a log can hold. Raises BadInput."""
    if not isinstance(value, str):
        raise BadInput(f"{name} has to be text, not {type(value).__name__}.")
    return as_logged(name, value, str)


def id_of(name: str, value: object) -> str:
    """The value, which has to be usable as an id: on one line, neither empty nor very long. Raises BadInput."""
    text = text_of(name, value)
    if not text.strip() or not text.isprintable() or len(text) > MOST_ID_CHARS:
        raise BadInput(f"{name} {text[:40]!r} is not usable: it needs 1 to {MOST_ID_CHARS} printable characters.")
    return text


def check_policy(policy: Policy) -> None:
    """Raises BadInput that names the value."""
    for name in ("coalesce_s", "heartbeat_s"):
        seconds = getattr(policy, name)
        if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
            raise BadInput(f"{name} has to be a number of seconds, zero or more, not {seconds!r}.")
    if not (math.isfinite(policy.coalesce_share) and policy.coalesce_share >= 0):
        raise BadInput(f"coalesce_share has to be a number, zero or more, not {policy.coalesce_share!r}.")
    if not 0 < policy.compact_at <= 1:
        raise BadInput(f"compact_at has to be a share above 0 and up to 1, not {policy.compact_at!r}.")
    for name in ("result_max_chars", "step_max_chars", "window_tokens"):
        _above_zero(name, getattr(policy, name))
    check_limits(policy.limits)


def check_limits(limits: Limits) -> None:
    """Raises BadInput that names the limit."""
    for name in ("turns", "tokens", "seconds"):
        _above_zero(f"the limit {name}", getattr(limits, name))
    for tool, most in limits.calls.items():
        _above_zero(f"the limit of calls of {tool!r}", most)


def check_limited_tools(limits: Limits, tools: Collection[str]) -> None:
    """Raises BadInput for a limit on calls of a tool that the session has not: it would hold nothing back."""
    for tool in limits.calls:
        if tool not in tools:
            known = ", ".join(tools) or "(none)"
            raise BadInput(f"there is a limit on calls of {tool!r}, and no such tool. The tools are: {known}.")


def check_settings(settings: ModelSettings) -> None:
    """Raises BadInput that names the setting."""
    _above_zero("max_output_tokens", settings.max_output_tokens)
    if settings.temperature is not None and not math.isfinite(settings.temperature):
        raise BadInput(f"temperature has to be a number, not {settings.temperature!r}.")


def _above_zero(name: str, number: float | None) -> None:
    if number is not None and not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} has to be above zero, not {number!r}.")
