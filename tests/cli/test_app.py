"""The frame: help, version, what is loaded when, and that the documents know every verb and option."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from harness.cli.app import VERBS, run
from harness.cli.prompting import instructions_for, limits_of, prompt_of, title_of
from harness.cli.tables import aligned
from harness.cli.words import label_of, one_line, tame
from harness.events import Limits
from harness.history import SessionSummary
from harness.llm.model import Usage
from harness.metrics import Metrics, TurnRow
from harness.result import RunResult, ToolCallResult
from tests.cli.cli import ROOT


def test_version_and_help_load_nothing_that_a_run_needs() -> None:
    code = (
        "import sys\nfrom harness.cli.app import run\n"
        "assert run(['--version']) == 0 and run(['--help']) == 0\n"
        "print([m for m in ('trio', 'rich', 'httpx', 'msgspec', 'sqlite3', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    first, *_, last = done.stdout.splitlines()
    assert (first, last) == ("turnlog 0.1.0", "[]")
    words = " ".join(done.stdout.split())  # as wide as whatever terminal this is
    for name, verb in VERBS.items():
        assert f"{name} {verb.says}" in words


@pytest.mark.parametrize("name", list(VERBS))
def test_every_verb_and_option_is_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "command-line.md").read_text()
    assert f"## turnlog {name}\n" in text
    section = text.partition(f"## turnlog {name}\n")[2].partition("\n## ")[0]
    command = importlib.import_module(f"harness.cli.{VERBS[name].module}").command
    assert command.name == name
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name != "store":
            assert parameter.opts[-1] in section, parameter.opts
    assert run([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: turnlog {name}")
    assert re.search(rf"^  Example:\n    turnlog {name}\b", shown, re.M), "an example to copy, in one line"


@pytest.mark.parametrize(
    "shape", [RunResult, SessionSummary, TurnRow, Metrics, Usage, ToolCallResult], ids=lambda shape: shape.__name__
)
def test_every_field_of_the_json_is_documented(shape: type[msgspec.Struct]) -> None:
    section = (ROOT / "docs" / "command-line.md").read_text().partition("\n## JSON\n")[2].partition("\n## ")[0]
    assert [name for name in shape.__struct_fields__ if not re.search(rf"[\"`]{name}[\"`]", section)] == []


def test_no_arguments_show_the_help_and_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: turnlog" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("\n## Build it ##\nmore", "Build it"),
        ("#hashtag stays", "#hashtag stays"),
        ("###\n\nafter an empty heading", "after an empty heading"),
        ("x" * 80, "x" * 59 + "…"),
        ("esc \x1b[31mred", "esc [31mred"),
    ],
)
def test_a_title_is_the_first_line_that_says_something(prompt: str, title: str) -> None:
    assert title_of(prompt) == title


@pytest.mark.parametrize(
    "text",
    ["hi", "Fix src/app.py", "Read README.md", "https://example.org/a.html", "wait...", "etc.", "3.11", "no/yes, why?"],
)
def test_a_prompt_that_only_speaks_of_files_is_a_prompt(text: str) -> None:
    assert prompt_of(text) == text


def test_project_instructions_that_are_a_pipe_are_left_out_and_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = instructions_for(str(tmp_path))
    os.mkfifo(tmp_path / "AGENTS.md")
    assert instructions_for(str(tmp_path)) == without
    assert capsys.readouterr().err == f"turnlog: {tmp_path}/AGENTS.md was left out: it is not a file.\n"


def test_limits_are_read_by_name() -> None:
    given = ["turns=5", "tokens=100", "seconds=1.5", "calls.bash=2", "turns=6"]
    assert limits_of(given) == Limits(turns=6, tokens=100, seconds=1.5, calls={"bash": 2})
    for bad in ("turns", "turns=", "turns=1.5", "seconds=nan", "seconds=inf", "calls.=1", "calls.x=-1", "=3"):
        with pytest.raises(click.ClickException):
            limits_of([bad])


def test_what_commands_print_cannot_move_the_cursor() -> None:
    assert one_line("a\x1b[2Jb\r\nc\x9b31m") == "a [2Jb c 31m"
    assert tame("a\x1b[2J\tb\nc\x9b31m\x07") == "a[2J\tb\nc31m"
    assert label_of({"command": "cat <<E\nx\nE"}) == "cat <<E…"
    assert label_of({"b": 1, "wake": "each"}) == '{"b":1}'


def test_columns_are_aligned() -> None:
    assert list(aligned([("a", "1", ""), ("bbb", "22", "x")], right=(1,))) == ["a     1", "bbb  22  x"]
