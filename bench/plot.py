"""A scatter plot as SVG, without a library.

Belongs here: axes, points, labels.
Must not know: what the points mean.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final, NamedTuple

WIDTH: Final = 720
HEIGHT: Final = 440
LEFT: Final = 70
RIGHT: Final = 150
TOP: Final = 40
BOTTOM: Final = 60


class Point(NamedTuple):
    """A labelled point, with the half widths of its intervals."""

    label: str
    x: float
    y: float
    x_within: float = 0.0
    y_within: float = 0.0
    ours: bool = False


def scatter(points: Sequence[Point], *, title: str, x_label: str, y_label: str) -> str:
    """The plot, both axes from zero."""
    x_most = _nice(max(point.x + point.x_within for point in points))
    y_most = _nice(max(point.y + point.y_within for point in points))

    def across(x: float) -> float:
        return LEFT + x / x_most * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - y / y_most * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{html.escape(title)}</text>',
    ]
    for tick in range(6):
        x, y = x_most * tick / 5, y_most * tick / 5
        parts += [
            f'<path d="M{across(x):.1f} {TOP}V{HEIGHT - BOTTOM}M{LEFT} {up(y):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
            f'<text x="{across(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>',
            f'<text x="{LEFT - 8}" y="{up(y) + 4:.1f}" text-anchor="end">{y:g}</text>',
        ]
    parts += [_drawn(point, across(point.x), up(point.y), across, up) for point in points]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts += [
        f'<text x="{middle:.0f}" y="{HEIGHT - 16}" text-anchor="middle">{html.escape(x_label)}</text>',
        f'<text transform="translate(18 {HEIGHT // 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _drawn(point: Point, x: float, y: float, across: object, up: object) -> str:
    assert callable(across) and callable(up)
    colour = "#c2410c" if point.ours else "#334155"
    left, right = across(point.x - point.x_within), across(point.x + point.x_within)
    low, high = up(point.y - point.y_within), up(point.y + point.y_within)
    return (
        f'<path d="M{left:.1f} {y:.1f}H{right:.1f}M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        f'<text x="{x + 8:.1f}" y="{y - 6:.1f}" fill="{colour}">{html.escape(point.label)}</text>'
    )


def _nice(most: float) -> float:
    """The end of an axis: a round number that is not below `most`."""
    size: float = 1.0
    while size * 10 <= most:
        size *= 10
    return next(size * step for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if size * step >= most)
