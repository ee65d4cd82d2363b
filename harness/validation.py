"""Numbers that come from callers: what may stand in a policy, in limits, in model settings.  Pure.

Belongs here: refusing what no rule could work with (NaN, infinities, zero where something is needed).
Must not know: where the numbers go.
"""

from __future__ import annotations

import math

from harness.errors import BadInput
from harness.events import Limits, Policy
from harness.llm.model import ModelSettings


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


def check_settings(settings: ModelSettings) -> None:
    """Raises BadInput that names the setting."""
    _above_zero("max_output_tokens", settings.max_output_tokens)
    if settings.temperature is not None and not math.isfinite(settings.temperature):
        raise BadInput(f"temperature has to be a number, not {settings.temperature!r}.")


def _above_zero(name: str, number: float | None) -> None:
    if number is not None and not (math.isfinite(number) and number > 0):
        raise BadInput(f"{name} has to be above zero, not {number!r}.")
