"""What a user reads when something is wrong: one line, the right exit status, nothing changed on disk."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.cli import Cli, Done


def one_line(done: Done, status: int, *words: str) -> None:
    assert done.status == status, done
    assert done.err.startswith("turnlog: ") and done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err, done.err


BAD_USAGE = [
    (["run"], "nothing to run"),
    (["run", "-p", "  \n"], "the prompt is empty"),
    (["run", "-p", "-"], "stdin is empty"),
    (["run", "-p", "missing.md"], "no file 'missing.md'"),
    (["run", "-p", "notes/todo"], "no file 'notes/todo'"),
    (["run", "notes.rst"], "no file 'notes.rst'"),
    (["run", "-p", "../"], "no file '../'"),
    (["run", "a", "-p", "b"], "two prompts"),
    (["run", "hi", "--workspace", "nowhere"], "'nowhere' is not a folder"),
    (["run", "hi", "--model", "nonsense"], "no model 'nonsense'"),
    (["run", "hi", "--model", "scripted:none.json"], "none.json"),
    (["run", "hi", "--model", "openai-chat:gpt"], "OPENAI_API_KEY"),
    (["run", "hi", "--limit", "turns=0"], "above zero"),
    (["run", "hi", "--limit", "lines=3"], "is not a limit"),
    (["run", "hi", "--limit", "calls.bsh=3"], "a limit on calls of 'bsh', and no such tool"),
    (["run", "hi", "--session", "nope"], "no session 'nope'"),
    (["run", "hi", "--session", "nope", "--title", "x"], "--title is for a new session"),
    (["log", "nope"], "no session 'nope'"),
    (["log"], "See `turnlog log --help`"),
    (["frobnicate"], "frobnicate"),
    (["--store", "s.db", "sessions"], "turnlog VERB --store"),
    (["log", "x", "--colour"], "--colour"),
    (["import", "missing.jsonl"], "missing.jsonl"),
]


def test_mistakes_of_the_caller_are_one_line_and_2(cli: Cli) -> None:
    for arguments, word in BAD_USAGE:
        one_line(cli.here(*arguments), 2, word)
    one_line(cli("run", "hi", "--session", "nope"), 2, "no session 'nope'")
    assert not cli.state.exists(), "nothing was made"


def test_stores_that_cannot_be_used_are_one_line_and_1(cli: Cli, tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("This is not a database, however long one looks at it. " * 40)
    before = plain.read_bytes()
    one_line(cli.here("run", "hi", "--store", str(plain)), 1, str(plain))
    one_line(cli.here("sessions", "--store", str(plain)), 1, str(plain))
    one_line(cli.here("run", "hi", "--store", str(tmp_path / "no folder" / "s.db")), 1, "no folder")
    one_line(cli.here("run", "hi", "--store", str(plain / "s.db")), 1, "s.db")
    one_line(cli.here("sessions", "--store", str(tmp_path / "none.db")), 1, "none.db")
    one_line(cli.here("run", "hi", "--store", "/proc/x.db"), 1, "/proc/x.db", "Check the path, its permissions")
    one_line(cli.here("sessions", "--store", str(tmp_path)), 1, "this is not a file. Name the store's file")
    assert plain.read_bytes() == before and not (tmp_path / "none.db").exists()


def test_what_is_newer_or_damaged_is_refused_whole(finished: tuple[Cli, str], tmp_path: Path) -> None:
    cli, session_id = finished
    copy = tmp_path / "copy.db"
    cli.ok("backup", str(copy))
    with sqlite3.connect(copy) as database:
        database.executescript("DROP TRIGGER IF EXISTS events_no_update;")
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE events SET data = replace(data, 'one', 'two') WHERE seq = 5")
    database.close()
    damaged = cli.here("log", session_id, "--store", str(copy))
    one_line(damaged, 1, "damaged at event 5")
    verified = cli.here("verify", session_id, "--store", str(copy))
    assert (verified.status, "event 5" in verified.out, verified.err) == (1, True, "")
    exported = cli.here("export", session_id, "--store", str(copy))
    one_line(exported, 1, "damaged at event 5")
    assert exported.out.count("\n") >= 5, "what comes before the damage was saved"
    with sqlite3.connect(copy) as database:
        database.execute("UPDATE sessions SET format_version = 99")
    database.close()
    one_line(cli.here("run", "hi", "--session", session_id, "--store", str(copy)), 1, "version 99")


def test_an_empty_home_is_none_and_one_that_is_not_there_is_named(cli: Cli) -> None:
    before = Path("/.local").exists()
    assert cli("sessions", XDG_STATE_HOME="", HOME="").status == 0
    assert Path("/.local").exists() == before, "the root folder is nobody's home"
    one_line(cli("sessions", "--store", "~nobody-of-this-name/s.db"), 2, "no such home folder", "--store")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_an_empty_one(finished: tuple[Cli, str], closed: str) -> None:
    cli, session_id = finished
    for verb, status in (
        (f"log {session_id}", 0),
        ("sessions --json", 0),
        ("--help", 0),
        ("run --store run.db hi", 0),
        ("log nope", 2),
    ):
        command = f"{sys.executable} -m harness {verb} {closed}"
        done = subprocess.run(
            ["sh", "-c", command], cwd=cli.workspace, env=cli.env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "Traceback" in done.stderr) == (status, False), done
    asked = f"echo 'not read' | {sys.executable} -m harness run -p - <&-"
    nothing = subprocess.run(["sh", "-c", asked], cwd=cli.workspace, env=cli.env, capture_output=True, check=False)
    assert (nothing.returncode, nothing.stderr) == (2, b"turnlog: stdin is empty. Say what is to be done.\n")


def test_an_unexpected_error_is_one_line_with_a_hint(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import harness.cli.sessions as verb
    from harness.cli.app import run

    def broken(*_: object) -> None:
        raise ZeroDivisionError("what now")

    monkeypatch.setattr(verb, "place_of", broken)
    assert run(["sessions"]) == 1


def test_an_unexpected_error_reads_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    from harness.cli.faults import report

    assert report(ZeroDivisionError("what now")) == 1
    line = capsys.readouterr().err
    assert line == "turnlog: unexpected ZeroDivisionError: what now. Set TURNLOG_DEBUG=1 to see where, and report it.\n"


@pytest.mark.parametrize("name", ["\x1b[2Jred\x07.md", "\x9b31m/x", "a\u202eb.md"])
def test_what_a_terminal_would_obey_is_spelled_out(cli: Cli, name: str) -> None:
    done = cli.here("run", "-p", name)
    one_line(done, 2, "no file")
    assert done.err.rstrip("\n").isprintable(), repr(done.err)
    (cli.workspace / "sub\x1b[2J").write_text("no folder")
    one_line(cli.here("sessions", "--store", str(cli.workspace / "sub\x1b[2J" / "x.db")), 1, "\\x1b[2J")
