"""`turnlog bench`: benchmarks that need no key, no network and no waiting.

Belongs here: the options, and finding the benchmarks, which are beside the packages and not installed with them.
Must not know: what is measured.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from harness.cli.options import out


@click.group(name="bench")
def command() -> None:
    """Benchmarks of the turn rules. They run from a checkout or an unpacked source distribution."""


@command.command()
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Tasks of each shape.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Also write the figures here."
)
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write turns against wall-clock as SVG.")
def turns(seeds: int, first: int, json_file: Path | None, plot: Path | None) -> None:
    """Turns, characters, cost and time of the same tasks under different loops, in virtual time."""
    try:
        bench = importlib.import_module("bench.turns")
    except ModuleNotFoundError as error:
        if error.name not in ("bench", "bench.turns"):
            raise
        raise click.ClickException(
            "the benchmarks are not installed with the package. Run this in a checkout of the source."
        ) from error
    bench.run(bench.Options(seeds, first, json_file, plot), out)
