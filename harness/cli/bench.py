"""`turnlog bench`: benchmarks that need no key, no network and no waiting.

Belongs here: the options, and finding the benchmarks, which are beside the packages and not installed with them.
Must not know: what is measured.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from harness.cli.faults import Mistake
from harness.cli.options import example, out


@example("turnlog bench turns --seeds 1")
@click.group(name="bench")
def command() -> None:
    """Benchmarks of the turn rules. They need a checkout of the source, or an unpacked source distribution."""


@example("turnlog bench turns --seeds 1 --plot turns.svg")
@command.command()
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Tasks of each shape.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Also write the figures here."
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write turns against wall-clock as SVG.")
def turns(seeds: int, first: int, json_file: Path | None, plot: Path | None) -> None:
    """Turns, characters, cost and time of the same tasks under different loops, in virtual time."""
    bench = _benchmarks("bench.turns")
    bench.run(bench.Options(seeds, first, json_file, plot), out)


def _benchmarks(name: str) -> Any:
    """The module, also from the checkout that is the current folder. Raises Mistake where there is none."""
    if Path(*name.split(".")).with_suffix(".py").is_file():
        sys.path.append(str(Path.cwd()))  # behind everything installed, which it must not replace
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise
        raise Mistake(
            "the benchmarks are not installed with the package. Run this in the folder of a checkout of the source."
        ) from error
