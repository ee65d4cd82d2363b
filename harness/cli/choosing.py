"""Which view a command shows itself in.

Belongs here: looking at standard output and the environment.
Must not know: what any view draws.
"""

from __future__ import annotations

import os
import sys

from harness.cli.views import JsonView, PlainView, View


def fitting_view(*, as_json: bool) -> View:
    """JSON when asked for; a live picture on a terminal that can move its cursor; lines everywhere else."""
    if as_json:
        return JsonView()
    if sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown"):
        from harness.cli.live import LiveView  # rich is for terminals only

        return LiveView()
    return PlainView()
