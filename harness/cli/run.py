"""`turnlog run`: a prompt to its answer.

Belongs here: its options, and what they mean together.
Must not know: how a run is carried out or shown.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from harness.cli.faults import Mistake
from harness.cli.options import example
from harness.cli.places import place_of, store_option


@example(
    'turnlog run -p "Make the test suite pass." --model openai:MODEL --limit turns=50', "turnlog run --session 9m38"
)
@click.command(name="run")
@click.argument("prompt", required=False)
@click.option(
    "-p", "--prompt", "text", metavar="TEXT | FILE | -", help="The prompt: text, a file's name, or - for stdin."
)
@click.option("--session", metavar="ID", help="The session to go on with (the beginning of an id will do).")
@click.option(
    "--model", metavar="MODEL", help="runbook, scripted:FILE or provider:model. Default: TURNLOG_MODEL, else runbook."
)
@click.option("--workspace", metavar="DIR", help="Where commands run. Default: the current folder.")
@click.option(
    "--limit", "limits", metavar="NAME=N", multiple=True, help="turns=, tokens=, seconds= or calls.TOOL=. Repeatable."
)
@click.option("--title", metavar="TEXT", help="The new session's title. Default: the prompt's first line.")
@click.option("--json", "as_json", is_flag=True, help="Each event as a line of JSON, then the result.")
@store_option
def command(
    prompt: str | None,
    text: str | None,
    session: str | None,
    model: str | None,
    workspace: str | None,
    limits: tuple[str, ...],
    title: str | None,
    as_json: bool,
    store: str | None,
) -> int:
    """Run a prompt, or go on with a session.

    An argument that names an existing file is read; otherwise it is the prompt itself. With --session and no prompt: go
    on where the last run stopped. With a prompt: steer the run that is unfinished, or start a new one.

    Ctrl-C interrupts the run and leaves the session resumable; a second one cancels its commands; a third leaves at
    once.
    """
    from harness.cli.choosing import fitting_view
    from harness.cli.driving import Errand, drive
    from harness.cli.prompting import instructions_for, limits_of, prompt_of, title_of, workspace_of

    given = _one_of(prompt, text)
    if given is None and session is None:
        raise click.UsageError("there is nothing to run: give a prompt with -p, or a --session to go on with")
    if session is not None and title is not None:
        raise click.UsageError("--title is for a new session; leave --session or --title out")
    place = place_of(store)
    limit = limits_of(limits)
    folder = workspace_of(workspace)
    said = None if given is None else prompt_of(given)
    if session is not None:
        # The model and the workspace come from the log, unless this very command says otherwise.
        errand = Errand(place, session=session, prompt=said, model=model, workspace=folder, limits=limit)
        return drive(errand, fitting_view(as_json=as_json))
    folder = folder or str(Path.cwd())
    errand = Errand(
        place,
        prompt=said,
        model=model or os.environ.get("TURNLOG_MODEL") or "runbook",
        workspace=folder,
        instructions=instructions_for(folder),
        limits=limit,
        title=title if title is not None else title_of(said or ""),
    )
    return drive(errand, fitting_view(as_json=as_json))


def _one_of(argument: str | None, option: str | None) -> str | None:
    if argument is not None and option is not None:
        raise Mistake("two prompts were given. Give one, with -p or without.")
    return option if argument is None else argument
