"""The command line: `turnlog`.

Belongs here: the entry point. Each verb has a file of its own, which is loaded when the verb is used.
Must not know: anything about sessions. The command line is a program on top of the public API like any other.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that `sys.argv` asks for, and exit with its status."""
    from harness.cli.app import run  # importing the package must not load click

    sys.exit(run(sys.argv[1:]))
