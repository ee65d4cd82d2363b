"""The docs are complete, and what they show runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import trio

import harness
from harness import events as ev
from harness.errors import HarnessError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=fence)$", re.M | re.S)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    code: str

    @property
    def id(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for match in FENCE.finditer(text):
            if match["language"] in languages:
                line = text[: match.start()].count("\n") + 1
                yield Block(page, line, match["language"], match["code"])


def named(found: list[Block]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("block", found, ids=[block.id for block in found])


def environment(home: Path) -> dict[str, str]:
    """A new user's: no store, no key, the command on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNLOG_", "XDG_"))}
    kept.pop("OPENAI_API_KEY", None)
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "PATH": path}


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def events_of(path: Path) -> list[ev.Event]:
    """Every event of every session of a store."""

    async def read() -> list[ev.Event]:
        logs = [await harness.read_events(path, line.id) for line in await harness.sessions(path)]
        return [logged.event for log in logs for logged in log]

    return trio.run(read)


@named(list(blocks("python")))
def test_python_blocks_run(block: Block, tmp_path: Path) -> None:
    script = tmp_path / "block.py"
    script.write_text(block.code)
    run([sys.executable, "-W", "error", str(script)], tmp_path)


def test_what_the_readme_does_from_python_is_done_once_however_often_it_is_started(tmp_path: Path) -> None:
    (block,) = (block for block in blocks("python") if block.page.name == "README.md")
    (tmp_path / "block.py").write_text(block.code)
    for _ in range(2):
        run([sys.executable, "block.py"], tmp_path)
    runs = [event for event in events_of(tmp_path / "sessions.db") if isinstance(event, ev.RunFinished)]
    assert len(runs) == 1


@named(list(blocks("sh")))
def test_shell_blocks_run(block: Block, tmp_path: Path) -> None:
    run(["bash", "-euo", "pipefail", "-c", block.code], tmp_path)


def test_every_event_kind_has_an_example_that_reads() -> None:
    shown: set[str] = set()
    for block in blocks("json"):
        if block.page.name == "log-format.md":
            kind = msgspec.json.decode(block.code)["kind"]
            event = msgspec.json.decode(block.code, type=ev.BY_KIND[kind])
            assert msgspec.json.decode(msgspec.json.encode(event)) == msgspec.json.decode(block.code)
            shown.add(kind)
    assert shown == set(ev.BY_KIND)


def test_every_error_that_a_program_may_catch_is_in_the_docs() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    errors = {
        name
        for name in harness.__all__
        if isinstance(value := getattr(harness, name), type) and issubclass(value, Exception)
    }
    bases = {"HarnessError", "StoreError", "CallerError"}
    assert {name for name in errors - bases if f"`{name}`" not in text and f".{name}" not in text} == set()
    assert issubclass(harness.BadInput, HarnessError)


def test_every_policy_value_and_limit_is_in_the_docs() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    for name in (*ev.Policy.__struct_fields__, *ev.Limits.__struct_fields__):
        assert re.search(rf"\b{name}\b", text), name


def test_every_module_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    for name in re.findall(r"`((?:harness|operations|store)/[\w/]*\.?\w*)`", text):
        assert (ROOT / name).exists(), name
    core = {f"harness/{path.name}" for path in (ROOT / "harness").glob("*.py")}
    assert {"harness/decide.py", "harness/state.py"} <= core


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, section in re.findall(r"\]\(([^)#]+\.md)(#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"
            titles = re.findall(r"^#+ (.*)$", (page.parent / target).read_text(), re.M)
            anchors = {"#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert not section or section in anchors, f"{page.name} -> {target}{section}"


def rows_of_figures(page: Path) -> list[list[str]]:
    """The figures of each line of each table, as they are written, for the lines that have any."""
    found = []
    for line in FENCE.sub("", page.read_text()).splitlines():
        if line.startswith("| "):
            cells = [cell.strip().strip("*").replace(",", "") for cell in line.strip("|").split("|")]
            figures = [cell for cell in cells if re.fullmatch(r"\d+(\.\d+)?", cell)]
            found += [figures] if figures else []
    return found


def test_every_figure_of_the_readme_is_measured_in_the_benchmarks() -> None:
    measured = rows_of_figures(ROOT / "docs" / "benchmarks.md")

    def is_in(row: list[str], figure: str) -> bool:
        places = len(figure.partition(".")[2])
        return any(f"{float(cell) + 1e-9:.{places}f}" == figure for cell in row)

    shown = rows_of_figures(ROOT / "README.md")
    assert len(shown) > 10
    for figures in shown:
        assert any(all(is_in(row, figure) for figure in figures) for row in measured), figures


def test_every_page_can_be_reached_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert {page.name for page in PAGES[1:] if f"{page.name})" not in text} == set()
