"""What one loop needed for one task, and what that costs at a stated price.

Belongs here: the figures of a run, the price list, tokens and money from characters.
Must not know: how any loop works.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

PRICES_FILE: Final = Path(__file__).parent / "prices.json"


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars for a million tokens. cache_s: a prefix that was not sent for so long is no longer cached."""

    input: float
    cached_input: float
    output: float
    characters_per_token: float
    cache_s: float


def prices(path: Path = PRICES_FILE) -> Prices:
    """The price list."""
    return msgspec.json.decode(path.read_bytes(), type=Prices)


class Turn(msgspec.Struct, frozen=True):
    """One model request. at_s, ended_s: when it was sent and answered. chars: its size. said_chars: the answer's.

    calls: calls of the task that it made; a look at something that runs is none.
    """

    at_s: float
    ended_s: float
    chars: int
    said_chars: int
    calls: int


class Outcome(msgspec.Struct, frozen=True):
    """A task done in a loop. delays_s: for each result, from landing to being in a request."""

    turns: tuple[Turn, ...]
    delays_s: tuple[float, ...]
    wall_s: float


class Figures(msgspec.Struct, frozen=True):
    """What is reported of an outcome. sent: characters of all requests. new: those that no cache can have."""

    turns: float
    overhead: float
    sent: float
    new: float
    cost: float
    cost_uncached: float
    wall_s: float
    delay_s: float


def figures(outcome: Outcome, price: Prices) -> Figures:
    """Overhead is a turn that made no call of the task and was not the last."""
    cached = _cached(outcome.turns, price.cache_s)
    sent = sum(turn.chars for turn in outcome.turns)
    said = sum(turn.said_chars for turn in outcome.turns)

    def money(uncached: float, from_cache: float) -> float:
        dollars = uncached * price.input + from_cache * price.cached_input + said * price.output
        return dollars / price.characters_per_token / 1e6

    return Figures(
        turns=len(outcome.turns),
        overhead=sum(turn.calls == 0 for turn in outcome.turns[:-1]),
        sent=sent,
        new=sent - cached,
        cost=money(sent - cached, cached),
        cost_uncached=money(sent, 0),
        wall_s=outcome.wall_s,
        delay_s=statistics.fmean(outcome.delays_s) if outcome.delays_s else 0.0,
    )


def _cached(turns: Sequence[Turn], cache_s: float) -> int:
    """Characters that a provider's prefix cache had: the request before, unless that was too long ago."""
    return sum(before.chars for before, turn in pairwise(turns) if turn.at_s - before.at_s <= cache_s)
