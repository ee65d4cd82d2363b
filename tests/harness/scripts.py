"""What the models of processes under test say.

Belongs here: replies that two processes have to agree on.
Must not know: what is done to those processes.
"""

from __future__ import annotations

from typing import Any

FOR_EVER = 3600.0


def replies() -> list[dict[str, Any]]:
    """Two commands, a second apart when they run one at a time; then an answer to whatever is said."""
    commands = ["echo one >> lines.txt; sleep 1.5", "echo two >> lines.txt"]
    return [
        {
            "when": {"last_contains": "two commands"},
            "calls": [{"name": "bash", "arguments": {"command": command}} for command in commands],
        },
        {"when": {"last_contains": "think"}, "think_s": FOR_EVER, "text": "never said"},
        {"text": "done", "repeat": True},
    ]
