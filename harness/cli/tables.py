"""Columns of text that look right on a terminal and in a pipe.  Pure.

Belongs here: aligning cells.
Must not know: what is in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def aligned(rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Iterator[str]:
    """Each row as a line, its cells as wide as their column; `right` columns are aligned to the right.

    The last column is not padded, so that a line ends where its text ends.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
