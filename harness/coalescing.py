"""How long a result waits for others before the model is called (rule 4).  Pure.

Belongs here: the ways to wait, and the pace they go by: how long the model thinks, how long each tool has taken.
Must not know: clocks; which results are a reason to call (that is `decide`); where durations were measured.

Why wait at all: a turn that starts with one result keeps the next one out until it has ended, and sends the whole
history for each. Waiting for a part of a thinking time therefore costs little time and saves turns;
`bench/turns.py` shows how much of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from harness.events import Coalesce, Policy

KEPT: Final = 32
"""Durations remembered for a tool: enough to tell quick from slow, few enough to copy with every result."""

WEIGHT: Final = 0.3
"""Of the newest thinking time in the mean: a model's turns differ, and its speed changes over a day."""

MOST_S: Final = 30.0
"""The longest adaptive wait. Above it a person who watches would think that nothing happens."""

LIKELY: Final = 0.4
"""Waiting is worth the delay when another result has this chance to land in time: less costs time, more costs turns."""


class Pace(msgspec.Struct, frozen=True, gc=False):
    """What a log says about time. thinking_s: mean of recent turns, 0 while unknown. took_s: by tool, newest last."""

    thinking_s: float = 0.0
    took_s: dict[str, tuple[float, ...]] = {}

    def thought(self, seconds: float, attempts: int) -> Pace:
        """After one more turn. One that had to be tried again says more about the provider than about the model."""
        if seconds <= 0 or attempts > 1:
            return self
        mean = seconds if not self.thinking_s else self.thinking_s + WEIGHT * (seconds - self.thinking_s)
        return Pace(mean, self.took_s)

    def took(self, tool: str, seconds: float | None) -> Pace:
        """After one more call of `tool`."""
        if seconds is None:
            return self
        kept = (*self.took_s.get(tool, ()), seconds)[-KEPT:]
        return Pace(self.thinking_s, {**self.took_s, tool: kept})


class Running(msgspec.Struct, frozen=True, gc=False):
    """A call that could still join. for_s: how long it has been running."""

    tool: str
    for_s: float


def wait_s(policy: Policy, pace: Pace, waited_s: float, joining: Iterable[Sequence[Running]]) -> float:
    """How much longer a result that has waited `waited_s` seconds waits for those that run; 0 or less is not at all.

    joining: what could still join. Calls of a group count only together: the model asked for all or none.
    """
    if policy.coalesce_s is not None:
        return policy.coalesce_s - waited_s
    left_s = min(MOST_S, policy.coalesce_share * pace.thinking_s) - waited_s
    if left_s <= 0 or policy.coalesce == Coalesce.THINKING:
        return left_s
    return left_s if chance(pace, joining, left_s) >= LIKELY else 0.0


def chance(pace: Pace, joining: Iterable[Sequence[Running]], within_s: float) -> float:
    """The chance that all of one of these groups end within so many seconds, by what their tools have taken before."""
    none = 1.0
    for group in joining:
        whole = 1.0
        for call in group:
            whole *= _chance_of(pace.took_s.get(call.tool, ()), call.for_s, within_s)
        none *= 1.0 - whole
    return 1.0 - none


def _chance_of(took_s: tuple[float, ...], for_s: float, within_s: float) -> float:
    """Of the calls that took longer than this one has: the share that ended in the next seconds.

    Counted with them is one more, which stands for what is not remembered: what has run for long goes on for as long
    again. So a call that has just begun may well end soon, and one that has outlived all others will not.
    """
    longer = [seconds for seconds in took_s if seconds > for_s]
    soon = sum(1 for seconds in longer if seconds <= for_s + within_s)
    return (soon + within_s / (for_s + within_s)) / (len(longer) + 1)
