"""The arguments that many verbs share.

Belongs here: how a session, JSON output and a message are asked for, once for all verbs.
Must not know: what a verb does with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=click.Command)


def session_argument(function: F) -> F:
    """The session's id, or the beginning of it."""
    return click.argument("session", metavar="ID")(function)


def json_option(function: F) -> F:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="JSON instead of text for people.")(function)


def example(*lines: str) -> Callable[[C], C]:
    """Adds command lines to copy at the end of a command's help; each stays one line, however narrow the terminal."""

    def add(command: C) -> C:
        shown = "\n".join(f"  {line}" for line in lines)
        command.help = f"{cleandoc(command.help or '')}\n\n\b\nExample:\n{shown}"  # \b: click is not to wrap it
        return command

    return add


def out(line: str) -> None:
    """One line on stdout, out at once: whoever follows along sees it now."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
