"""Means over seeds with their confidence intervals.

Belongs here: the arithmetic of what is reported.
Must not know: what was measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Final

import msgspec

_T95: Final = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t at 95% for 1 to 15 degrees of freedom; from there on 2.1 is at most 2% too wide a guess."""


class Mean(msgspec.Struct, frozen=True):
    """A mean and the half width of its 95% confidence interval; 0 where one value has none."""

    mean: float
    within: float

    def __str__(self) -> str:
        digits = 0 if self.mean >= 1000 else 1 if self.mean >= 10 else 2
        return f"{self.mean:,.{digits}f}"


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of at least one value."""
    if len(values) == 1:
        return Mean(values[0], 0.0)
    t = _T95[len(values) - 2] if len(values) - 2 < len(_T95) else 2.1
    return Mean(statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values)))


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> Mean:
    """The mean of the ratios of each pair: both worked on the same task, and every task counts the same."""
    return mean_of([a / b for a, b in zip(ours, theirs, strict=True)])
