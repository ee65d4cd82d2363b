from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.cli import Cli, block


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    made = Cli(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, str]]:
    """A store with one finished session, for tests that only read it or branch off it."""
    cli = Cli(tmp_path_factory.mktemp("finished"))
    done = cli.here("run", "--json", "-p", f"# First\n{block('echo one', 'echo two')}\n# Second\n{block('echo three')}")
    assert done.status == 0, done
    yield cli, json.loads(done.out.splitlines()[-1])["session_id"]
    cli.close()
