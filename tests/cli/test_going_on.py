"""After a run has ended, however it did: what comes next works as it was printed."""

from __future__ import annotations

import re
import shlex
import signal

import pytest
import trio

import harness
from harness.events import Cancel, Interrupt
from tests.cli.cli import Cli, Done, block, eventually, finish
from tests.cli.test_run import script

HINTS = ("events", "cost", "branch", "go on", "cancel")
CALLS = [{"name": "bash", "arguments": {"command": "echo x"}}]


def hints(out: str) -> dict[str, str]:
    """The commands that an ending shows, by name."""
    found = re.findall(rf"^({'|'.join(HINTS)}) +(turnlog .*)$", out, re.M)
    assert {"events", "cost", "branch", "go on"} <= {name for name, _ in found}, out
    return dict(found)


def typed(cli: Cli, line: str) -> list[Done]:
    """What a user gets who types the line."""
    return [cli(*shlex.split(command)[1:]) for command in line.split(" && ")]


def interrupted(cli: Cli, prompt: str) -> Done:
    """A run that one Ctrl-C (here: SIGTERM) has ended while its first command goes on."""
    process = cli.start("run", "-p", prompt)
    eventually((cli.workspace / "started").exists, "the command runs")
    process.send_signal(signal.SIGTERM)
    return finish(process)


def an_ending(cli: Cli, kind: str) -> Done:
    path = cli.workspace / "script.json"
    match kind:
        case "completed":
            return cli("run", f"# One\n{block('echo one')}")
        case "a command failed":
            return cli("run", f"# One\n{block('exit 3')}")
        case "limit reached":
            model = script(path, {"calls": CALLS}, {"text": "So far."}, {"text": "More."}, {"text": "Still more."})
            return cli("run", "go", "--model", model, "--limit", "turns=1")
        case "limit of a runbook reached":
            return cli("run", f"# One\n{block('echo one')}\n# Two\n{block('echo two')}", "--limit", "turns=1")
        case "the model failed":
            return cli("run", "go", "--model", script(path, {"error": {"kind": "authentication"}}, {"text": "Now."}))
        case "cancelled from outside":
            process = cli.start("run", "-p", f"# One\n{block('echo x > started; sleep 60')}")
            eventually((cli.workspace / "started").exists, "the command runs")
            cli.ok("cancel", *cli.session_ids(), "--reason", "wrong branch")
            return finish(process)
        case _:
            command = "echo x > started; sleep 0.5; echo slept"
            return interrupted(cli, f"# One\n{block(command)}\n# Two\n{block('echo two')}")


@pytest.mark.parametrize(
    ("kind", "status", "goes_on"),
    [
        ("completed", 0, {0}),
        ("a command failed", 1, {0}),
        ("limit reached", 1, {0, 1}),
        ("limit of a runbook reached", 1, {0}),
        ("the model failed", 1, {0, 1}),
        ("cancelled from outside", 1, {0, 1}),
        ("interrupted", 130, {0}),
    ],
)
def test_every_command_that_an_ending_shows_works_as_printed(
    cli: Cli, kind: str, status: int, goes_on: set[int]
) -> None:
    done = an_ending(cli, kind)
    assert done.status == status, done
    shown = hints(done.out)
    for name in ("events", "cost", "branch"):
        assert [each.status for each in typed(cli, shown[name])] == [0], shown[name]
    (again,) = typed(cli, shown["go on"])
    assert again.status in goes_on, again
    assert [each.status for each in typed(cli, hints(again.out)["events"])] == [0]


def test_an_interrupted_run_goes_on_where_it_stopped_without_a_prompt(cli: Cli) -> None:
    command = "echo x >> started; sleep 0.5; echo slept"
    done = interrupted(cli, f"# One\n{block(command)}\n# Two\n{block('echo two')}")
    assert done.status == 130 and "outcome  interrupted: SIGTERM" in done.out
    (again,) = typed(cli, hints(done.out)["go on"])
    assert (again.status, again.err) == (0, "turnlog: the last run ended as interrupted: going on with a new one\n")
    assert "2 commands, none failed." in again.out and (cli.workspace / "started").read_text() == "x\n"
    assert "with one blocking call a turn" in again.out and "one after the other" not in again.out
    (session_id,) = cli.session_ids()
    over = cli.here("run", "--session", session_id)
    assert over.status == 2 and "its last run completed. Say what to do" in over.err
    assert "every trace rule holds" in cli.ok("check", session_id)


def test_the_cancel_that_an_interrupted_run_offers_ends_its_commands(cli: Cli) -> None:
    done = interrupted(cli, f"# One\n{block('echo x > started; sleep 60')}")
    sent, carried_out = typed(cli, hints(done.out)["cancel"])
    assert (sent.status, carried_out.status) == (0, 0)
    assert carried_out.err == "turnlog: cancelling 1 call of a run that has ended\n"
    assert cli.events(cli.session_ids()[0])[-1]["outcome"] == "cancelled"


@pytest.mark.parametrize("verb", ["interrupt", "cancel"])
def test_a_session_with_nothing_to_stop_is_told_nothing(finished: tuple[Cli, str], verb: str) -> None:
    cli, session_id = finished
    branch = cli.ok("fork", session_id).strip()
    before = cli.ok("log", branch, "--json")
    assert cli.ok(verb, branch) == f"Session {branch} has no run to {verb}; nothing was sent.\n"
    done = cli.here("run", "--session", branch, f"# More\n{block('echo more')}")
    assert (done.status, done.err, f"· {verb}" in done.out) == (0, "", False)
    assert cli.ok("log", branch, "--json").startswith(before)


@pytest.mark.parametrize("content", [Interrupt("late"), Cancel("late")], ids=["interrupt", "cancel"])
def test_a_control_request_that_came_too_late_concerns_nothing_after_it(
    finished: tuple[Cli, str], content: Interrupt | Cancel
) -> None:
    cli, session_id = finished
    branch = cli.ok("fork", session_id).strip()

    async def put() -> None:
        async with harness.SqliteStore.open(cli.store) as store:
            await harness.submit(store, branch, content)

    trio.run(put)
    done = cli.here("run", "--session", branch, f"# More\n{block('echo more')}")
    assert (done.status, done.err) == (0, ""), done
    trio.run(put)
    alone = cli.here("run", "--session", branch)
    assert alone.status == 0 and "there was no run for it" in alone.err


def test_a_cancel_is_carried_out_before_the_prompt_that_comes_after_it(cli: Cli) -> None:
    done = interrupted(cli, f"# One\n{block('echo x > started; sleep 60')}")
    assert done.status == 130
    (session_id,) = cli.session_ids()
    told = cli.ok("interrupt", session_id)
    assert "nothing was sent" in told and f"`turnlog cancel {session_id}`" in told
    assert "takes it up" in cli.ok("cancel", session_id, "--reason", "wrong branch")
    second = cli("run", "--json", "--session", session_id, f"# Two\n{block('echo two')}", "--limit", "turns=5")
    assert (second.status, second.err) == (0, ""), second
    kinds = [(each["kind"], each.get("outcome")) for each in second.events]
    ended = kinds.index(("tool_call_finished", "cancelled"))
    assert ended < [kind for kind, _ in kinds].index("turn_started")
    message = next(each for each in second.events if each["kind"] == "input_accepted" and "text" in each["content"])
    assert message["content"]["limits"]["turns"] == 5


def test_the_reason_of_a_cancel_is_shown_at_the_end_and_in_the_log(cli: Cli) -> None:
    done = an_ending(cli, "cancelled from outside")
    assert (done.status, done.err) == (1, "turnlog: the run ended as cancelled: wrong branch.\n")
    assert "outcome  cancelled: wrong branch" in done.out
    assert "cancel (wrong branch)" in cli.ok("log", *cli.session_ids())


def test_a_limit_may_be_given_for_going_on(cli: Cli) -> None:
    command = "echo x > started; sleep 0.3"
    interrupted(cli, f"# One\n{block(command)}\n# Two\n{block('echo two')}")
    again = cli("run", "--json", "--session", *cli.session_ids(), "--limit", "turns=1")
    assert again.events[-1]["outcome"] == "limit_reached", again
