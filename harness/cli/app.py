"""The verbs by name, and what happens to whatever a verb returns or raises.

Belongs here: the table of verbs, loading one when it is used, and the way from an exception to an exit status.
Must not know: what any verb does.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import click

from harness import __version__
from harness.cli.faults import INTERRUPTED, PIPE_CLOSED, report, root_of


class Verb(NamedTuple):
    """Where a verb is, and its line in the help, which is shown without loading it."""

    module: str
    says: str


VERBS: Final = {
    "demo": Verb("demo", "Run a bundled runbook: the main job, with nothing to configure."),
    "run": Verb("run", "Run a prompt, or go on with a session."),
    "sessions": Verb("sessions", "List the sessions of a store."),
    "log": Verb("log", "Show a session's events."),
    "turns": Verb("turns", "Show what each turn was for and what it cost."),
    "fork": Verb("fork", "Make a branch of a session and print its id."),
    "replay": Verb("replay", "Show a past state, or check that today's code would send the same."),
    "check": Verb("check", "Check a session's log against the trace rules."),
    "verify": Verb("verify", "Check the hash chain of one session, or of a whole store."),
    "export": Verb("export", "Write a session as JSON lines."),
    "import": Verb("importing", "Add an exported session to a store."),
    "backup": Verb("backup", "Copy the store's file while it is in use."),
    "send": Verb("send", "Send a message to a session, running or not."),
    "interrupt": Verb("interrupt", "Interrupt a session's run; its commands go on."),
    "cancel": Verb("cancel", "Cancel a session's run and its commands."),
    "bench": Verb("bench", "Measure what the turn rules save, with a scripted model."),
}


class _PipeClosed(Exception):
    """Whoever read our output is gone. By this name click leaves it to us, and its own status for it is not used."""


class _Turnlog(click.Group):
    """Loads a verb's module when that verb is asked for, so that `turnlog --version` stays as fast as it looks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        module = importlib.import_module(f"harness.cli.{verb.module}")
        return cast("click.Command", module.command)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeClosed from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.says) for name, verb in VERBS.items()])


@click.group(
    cls=_Turnlog,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 completed, 1 ended otherwise, 2 bad usage, 130 interrupted. "
    "`turnlog VERB --help` tells more.",
)
@click.version_option(__version__, prog_name="turnlog", message="%(prog)s %(version)s")
def turnlog() -> None:
    """An agent harness whose session is an append-only log and whose tools never block the model."""


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line and return its exit status. Nothing is raised, whatever happens."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="replace")  # a terminal that lacks a character is no reason to lose an answer
    try:
        status = _status_of(turnlog.main(list(arguments), prog_name="turnlog", standalone_mode=False))
        sys.stdout.flush()
    except BaseException as error:  # noqa: BLE001  (the boundary: a user sees one line, never a traceback)
        return _failed(error)
    return status


def _open_missing_streams() -> None:
    """A stream that our caller has closed (`>&-`) is an empty one: reading finds the end, and what is said is lost.

    In the order of their numbers, so that each gets its own back, and no file of ours is taken for one of them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  (open to the end of the process)


def _status_of(returned: Any) -> int:
    return returned if isinstance(returned, int) else 0


def _failed(error: BaseException) -> int:
    root = root_of(error)
    if isinstance(root, (BrokenPipeError, _PipeClosed)):
        _forget_stdout()
        return PIPE_CLOSED
    if isinstance(root, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    if isinstance(root, SystemExit):
        return root.code if isinstance(root.code, int) else 1
    with suppress(OSError, ValueError):
        sys.stdout.flush()  # what was said before the error comes before it
    return report(root)


def _forget_stdout() -> None:
    """Whoever read our output is gone: keep the interpreter from complaining when it flushes at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
