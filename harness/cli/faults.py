"""From an exception to one line on stderr and an exit status.

Belongs here: whose fault an error is, and how it reads.
Must not know: which verb was running.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

import click

OK: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141
"""As a shell reports a program that a closed pipe ended."""


class Mistake(click.ClickException):
    """Something the caller of a verb has to change."""

    exit_code = BAD_USAGE


class Failure(click.ClickException):
    """The command was right, but it did not come to a good end."""

    exit_code = FAILED


def root_of(error: BaseException) -> BaseException:
    """The exception that matters: the first one inside groups, with Ctrl-C before all others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    interrupts = error.subgroup(KeyboardInterrupt)
    return root_of((interrupts or error).exceptions[0])


def report(error: BaseException) -> int:
    """Say on stderr what went wrong, and return the exit status."""
    if os.environ.get("TURNLOG_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return BAD_USAGE
    say(_line_of(error))
    return status_of(error)


def say(line: str) -> None:
    """One line of ours on stderr, where it mixes with nothing that a program reads.

    What stands in it may come from a file's name, a log or a server: what a terminal would obey is spelled out.
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(line.split()))
    print(f"turnlog: {shown}", file=sys.stderr, flush=True)


def _line_of(error: BaseException) -> str:
    if isinstance(error, click.UsageError):
        verb = error.ctx.command_path if error.ctx is not None else "turnlog"
        if isinstance(error, click.NoSuchOption) and verb == "turnlog":
            return f"{error.option_name} comes before a verb. Put options behind it: turnlog VERB {error.option_name}."
        return f"{error.format_message().rstrip('.')}. See `{verb} --help`."
    if isinstance(error, click.ClickException):
        return error.format_message()
    if _is_ours(error):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the system'}: {error.strerror}. Set TURNLOG_DEBUG=1 to see where."
    return f"unexpected {type(error).__name__}: {error}. Set TURNLOG_DEBUG=1 to see where, and report it."


def status_of(error: BaseException) -> int:
    """2 for what the caller has to change; 1 for what stands in the way of a command that is right as it is."""
    # Imported here: an error of these kinds has loaded its module, and `turnlog --help` needs none of them.
    from harness.errors import BadInput, ToolUnavailable
    from harness.llm.providers import BadModel
    from store import CallerError, SessionBusy

    if isinstance(error, click.ClickException):
        return error.exit_code
    if isinstance(error, SessionBusy):  # the same command is right a moment later
        return FAILED
    if isinstance(error, (CallerError, BadInput, BadModel, ToolUnavailable)):
        return BAD_USAGE
    return FAILED


def _is_ours(error: BaseException) -> bool:
    from harness.errors import HarnessError
    from harness.llm.providers import BadModel
    from store import StoreError

    return isinstance(error, (HarnessError, StoreError, BadModel))
