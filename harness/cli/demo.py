"""`turnlog demo`: the main job on a runbook that comes along.

Belongs here: what makes it run anywhere: a workspace, a Python on the path, the model that needs no network.
Must not know: how a run is carried out or shown.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from harness.cli.options import example
from harness.cli.places import place_of, quoted, store_option


@example("turnlog demo")
@click.command(name="demo")
@click.option("--json", "as_json", is_flag=True, help="Each event as a line of JSON, then the result.")
@store_option
def command(as_json: bool, store: str | None) -> int:
    """Run a bundled runbook: the main job, with nothing to configure.

    Nine commands in three steps, of which those in one step overlap, in a temporary folder. The folder and the session
    stay, for the commands that are shown at the end; so is the one that removes the folder.
    """
    from harness.cli.choosing import fitting_view
    from harness.cli.driving import Errand, drive
    from harness.cli.views import FooterLine

    # The runbook calls python3, which need not be on the path of a machine that runs us from a virtual environment.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    prompt = Path(__file__).with_name("demo.md").read_text(encoding="utf-8")
    workspace = tempfile.mkdtemp(prefix="turnlog-demo-")
    # Not removed: the session stays, and going on with it needs its workspace.
    files = (FooterLine("files", workspace), FooterLine("remove", f"rm -r {quoted(workspace)}"))
    place = place_of(store)
    errand = Errand(place, prompt=prompt, model="runbook", workspace=workspace, title="The bundled demo", more=files)
    try:
        return drive(errand, fitting_view(as_json=as_json))
    finally:
        with suppress(OSError):  # only an empty one goes: nothing has run in it
            Path(workspace).rmdir()
