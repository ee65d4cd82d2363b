"""`turnlog demo`: the main job on a runbook that comes along.

Belongs here: what makes it run anywhere: a workspace, a Python on the path, the model that needs no network.
Must not know: how a run is carried out or shown.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from harness.cli.places import place_of, store_option


@click.command(name="demo")
@click.option("--json", "as_json", is_flag=True, help="Each event as a line of JSON, then the result.")
@store_option
def command(as_json: bool, store: str | None) -> int:
    """Run a bundled runbook: the main job, with nothing to configure.

    Nine commands in three steps, of which those in one step overlap, in a temporary folder. The session stays in the
    store, for the commands that it shows at the end.
    """
    from harness.cli.choosing import fitting_view
    from harness.cli.driving import Errand, drive

    # The runbook calls python3, which need not be on the path of a machine that runs us from a virtual environment.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    prompt = Path(__file__).with_name("demo.md").read_text(encoding="utf-8")
    # Not deleted: the session stays, and going on with it needs its workspace. It is the system's to clean up.
    workspace = tempfile.mkdtemp(prefix="turnlog-demo-")
    errand = Errand(place_of(store), prompt=prompt, model="runbook", workspace=workspace, title="The bundled demo")
    return drive(errand, fitting_view(as_json=as_json))
