"""On a terminal: the timeline that moves, and Ctrl-C."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.cli import Cli, Terminal, block


@contextmanager
def terminal(cli: Cli, *arguments: str, columns: int = 100) -> Iterator[Terminal]:
    shown = cli.terminal(*arguments, columns=columns)
    try:
        yield shown
    finally:
        shown.kill()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_pending_calls_have_rows_with_clocks_and_results_land_above(cli: Cli) -> None:
    prompt = f"# One\n{block('echo working; sleep 0.7; echo slept', 'echo quick')}"
    with terminal(cli, "run", "-p", prompt, columns=80) as shown:
        shown.wait_for("0.3 s")
        assert shown.end() == 0
    text = plain(shown.shown)
    assert re.search(r"[⠀-⣿] +bash echo working; sleep 0\.7; echo s\S+ +0\.\d s +working", text), text
    assert re.search(r"1 turn · \d calls? pending · 0\.\d s", text), text
    assert re.search(r"✓ bash echo working; sleep 0\.7\S*.*  exit status 0 \(0\.[7-9]\d s\): slept", text), text
    assert "2 commands, none failed." in text and "─────" in text, "the answer's Markdown is rendered"
    assert shown.shown.count("\x1b[?25l") == shown.shown.count("\x1b[?25h") == 1, "the cursor is back"
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    assert max(map(len, lines)) <= 80


def test_ctrl_c_interrupts_and_a_second_one_cancels(cli: Cli) -> None:
    with terminal(cli, "run", "-p", f"# One\n{block('echo up; sleep 60')}") as shown:
        shown.wait_for("up")
        shown.wait_for("0.2 s")
        shown.press(b"\x03")
        shown.wait_for("interrupting the run; commands go on (Ctrl-C again cancels them)")
        shown.wait_for("1 call still running. Ctrl-C within")
        shown.press(b"\x03")
        shown.wait_for("cancelling 1 call")
        assert shown.end() == 130
    (session_id,) = cli.session_ids()
    assert f"turnlog run --session {session_id} -p TEXT" in plain(shown.shown), (
        "what was called off is not gone on with"
    )
    assert f"turnlog cancel {session_id}" not in plain(shown.shown)
    last = cli.events(session_id)[-1]
    assert (last["kind"], last["outcome"]) == ("tool_call_finished", "cancelled")
    assert "every trace rule holds" in cli.ok("check", session_id)


def test_a_third_ctrl_c_leaves_at_once_and_says_how_to_resume(cli: Cli) -> None:
    stubborn = "trap '' TERM INT; echo up; while :; do sleep 0.2; done"
    with terminal(cli, "run", "-p", f"# One\n{block(stubborn)}") as shown:
        shown.wait_for("0.2 s")
        shown.press(b"\x03")
        shown.wait_for("Ctrl-C within")
        shown.press(b"\x03")
        shown.wait_for("cancelling 1 call")
        shown.press(b"\x03")
        assert shown.end() == 130
    (session_id,) = cli.session_ids()
    assert f"left at once; commands may go on. To resume: turnlog run --session {session_id}" in plain(shown.shown)
    done = cli("run", "--session", session_id)
    assert (done.status, done.err) == (0, "turnlog: cancelling 1 call of a run that has ended\n")
    assert cli.events(session_id)[-1]["outcome"] == "cancelled"


def test_after_one_ctrl_c_commands_go_on_and_their_results_come_with_the_next_run(cli: Cli) -> None:
    with terminal(
        cli, "run", "-p", f"# One\n{block('echo up; sleep 2; echo slept')}\n# Two\n{block('echo two')}"
    ) as shown:
        shown.wait_for("0.2 s")
        shown.press(b"\x03")
        assert shown.end() == 130
    (session_id,) = cli.session_ids()
    done = cli("run", "--session", session_id, "-p", "go on")
    assert done.status == 0, done
    assert "slept" in done.out and "2 commands, none failed." in done.out


def test_no_command_reads_from_the_terminal_that_the_harness_was_started_in(cli: Cli) -> None:
    asking = ("read -p 'Ok? ' x < /dev/tty; echo got:$x", "read line; echo status $?", "echo written > /dev/tty")
    with terminal(cli, "run", "-p", f"# Ask (continue)\n{block(*asking)}", columns=120) as shown:
        assert shown.end() == 1, "and none of them waited for a key"
    texts = [event["parts"][0]["text"] for event in cli.events(cli.session_ids()[0]) if "parts" in event]
    assert sum("No such device or address" in text for text in texts) == 2
    assert any(text.endswith("got:") for text in texts) and any(text.endswith("status 1") for text in texts)
    assert "\nwritten" not in plain(shown.shown)


def test_on_a_narrow_terminal_commands_to_copy_stay_in_one_piece(cli: Cli) -> None:
    with terminal(cli, "run", "-p", f"# One\n{block('echo one')}", columns=40) as shown:
        assert shown.end() == 0
    (session_id,) = cli.session_ids()
    assert f"\ngo on    turnlog run --session {session_id} -p TEXT\n" in plain(shown.shown).replace("\r", "")


def test_a_dumb_terminal_gets_plain_lines(cli: Cli) -> None:
    shown = cli.terminal("run", "-p", f"# One\n{block('echo one')}", TERM="dumb")
    assert shown.end() == 0
    assert "\x1b" not in shown.shown and "▸ bash echo one" in shown.shown
