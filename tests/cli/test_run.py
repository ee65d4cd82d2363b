"""`turnlog run`: a prompt to its answer, and the exit status that follows."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.cli.cli import DEADLINE_S, Cli, block, eventually, finish


def script(path: Path, *replies: dict[str, object]) -> str:
    """A model that says these things."""
    path.write_text(json.dumps({"replies": replies}))
    return f"scripted:{path}"


def test_commands_under_one_heading_overlap(cli: Cli) -> None:
    (cli.workspace / "AGENTS.md").write_text("Always be brief.")
    (cli.workspace / "build.md").write_text(
        f"# Build it #\n{block('sleep 0.6; echo a', 'sleep 0.5; echo b', 'echo c')}"
    )
    done = cli("run", "-p", "build.md")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert {"▸ bash sleep 0.6; echo a", "· turn t2 (results)"} <= set(lines)
    assert "\x1b" not in done.out
    assert any(line.startswith("✓ bash sleep 0.5; echo b  exit status 0 (") and line.endswith(": b") for line in lines)
    assert "3 commands, none failed." in lines
    assert "turns    2 used; 4 with one blocking call a turn (3 calls and the answer)" in lines

    (session_id,) = cli.session_ids()
    assert f"turnlog turns {session_id}" in done.out
    events = cli.events(session_id)
    assert (events[0]["title"], events[0]["workspace"]) == ("Build it", str(cli.workspace))
    assert events[0]["instructions"].endswith("Always be brief.")
    work = [event for event in events if event["kind"] in ("operation_updated", "tool_call_finished")]
    assert [event.get("status") for event in work[:3]] == ["running"] * 3, "all of them start before any has ended"
    took = [event["seconds"] for event in events if event["kind"] == "tool_call_finished"]
    elapsed = events[-1]["seconds"]
    assert max(took) <= elapsed < sum(took) + max(took)


def test_json_is_every_event_and_then_the_result(cli: Cli) -> None:
    done = cli("run", "--json", "-p", "-", "--title", "Mine", stdin=f"# Go\n{block('echo héllo')}".encode())
    *events, result = done.events
    assert (done.status, done.err) == (0, "")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events == cli.events(result["session_id"])
    assert (events[0]["kind"], events[0]["title"], events[-1]["kind"]) == ("session_opened", "Mine", "run_finished")
    assert (result["kind"], result["outcome"], result["turns"]) == ("result", "completed", 2)
    assert "héllo" in result["text"] and [call["outcome"] for call in result["tool_calls"]] == ["ok"]


@pytest.mark.parametrize("heading", ["# Test", "# Test (continue)"])
def test_a_runbook_whose_command_failed_exits_with_1(cli: Cli, heading: str) -> None:
    done = cli("run", f"{heading}\n{block('echo fine', 'echo broken; exit 3')}")
    assert (done.status, done.err) == (1, "turnlog: 1 of 2 commands failed.\n")
    assert "exit status 3" in done.out and "| 3 |" in done.out and "2 commands, 1 failed." in done.out
    assert any(line.startswith("✗ bash echo broken; exit 3") for line in done.out.splitlines())


def test_a_failed_command_is_only_a_step_for_other_models(cli: Cli, tmp_path: Path) -> None:
    model = script(
        tmp_path / "s.json",
        {"text": "Let me look.", "calls": [{"name": "bash", "arguments": {"command": "exit 3"}}, {"name": "nothing"}]},
        {"text": "It failed, as it should.", "usage": {"input": 1200, "output": 7}},
    )
    done = cli.here("run", "go", "--model", model)
    assert (done.status, done.err) == (0, "")
    assert "Let me look." in done.out and "1,200 tokens in, 7 out" in done.out
    assert done.out.count("It failed, as it should.") == 1, "the answer is not shown twice"
    assert "✗ nothing was not run" in done.out


def test_a_run_that_ends_otherwise_exits_with_1_and_says_why(cli: Cli, tmp_path: Path) -> None:
    calls = [{"name": "bash", "arguments": {"command": "echo x"}}]
    model = script(tmp_path / "s.json", {"calls": calls}, {"text": "That is all I reached."})
    limited = cli.here("run", "go", "--model", model, "--limit", "turns=1", "--limit", "calls.bash=9")
    assert (limited.status, limited.err) == (
        1,
        "turnlog: the run ended as limit_reached: the limit of 1 turns is reached.\n",
    )
    assert "That is all I reached." in limited.out
    failed = cli.here("run", "go", "--model", script(tmp_path / "e.json", {"error": {"kind": "authentication"}}))
    assert (failed.status, failed.out.count("✗ turn t1 failed")) == (1, 1)
    assert failed.err == "turnlog: the run ended as failed: authentication: scripted error.\n"


def test_a_session_goes_on_with_another_prompt(cli: Cli) -> None:
    first = cli.here("run", "--json", f"# One\n{block('echo one')}").events[-1]
    second = cli.here("run", "--json", "--session", first["session_id"][:6], "-p", f"# Two\n{block('echo two')}")
    assert second.status == 0
    *events, result = second.events
    assert (result["session_id"], result["outcome"]) == (first["session_id"], "completed")
    assert events[0]["kind"] == "input_accepted", "only what is new is shown"
    nothing = cli.here("run", "--session", first["session_id"])
    assert nothing.status == 2 and "its last run completed. Say what to do" in nothing.err


def test_a_killed_run_goes_on_in_another_process_without_doing_anything_twice(cli: Cli) -> None:
    prompt = f"# One\n{block('echo x >> one; sleep 1.5; echo end')}\n# Two\n{block('echo x >> two')}"
    process = cli.start("run", "--json", "-p", prompt)
    assert process.stdout is not None
    eventually((cli.workspace / "one").exists, "the first command runs")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=DEADLINE_S)
    (session_id,) = cli.session_ids()
    assert json.loads(cli.ok("sessions", "--json"))[0]["state"] == "unfinished"
    done = cli("run", "--session", session_id)
    assert (done.status, done.err) == (0, "")
    assert "▸ bash echo x >> one; sleep 1.5; echo end  still running" in done.out
    assert [(cli.workspace / name).read_text() for name in ("one", "two")] == ["x\n", "x\n"]
    assert "every trace rule holds" in cli.ok("check", session_id)


def test_terminating_a_run_interrupts_it_and_leaves_it_resumable(cli: Cli) -> None:
    process = cli.start("run", "-p", f"# One\n{block('echo x > started; sleep 1; echo slept')}")
    eventually((cli.workspace / "started").exists, "the command runs")
    process.terminate()
    done = finish(process)
    assert done.status == 130
    assert "interrupting the run; commands go on" in done.err and "1 call still running" in done.out
    (session_id,) = cli.session_ids()
    again = cli("run", "--session", session_id, "-p", "go on")
    assert again.status == 0 and "slept" in again.out


def test_a_closed_pipe_is_no_reason_to_complain(finished: tuple[Cli, str]) -> None:
    cli, session_id = finished
    with cli.start("log", session_id, "--follow") as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().split()[0] == b"1"
        process.stdout.close()
        cli.ok("send", session_id, "hello")
        assert cli("run", "--session", session_id).status == 0
        assert (process.wait(DEADLINE_S), process.stderr.read()) == (141, b"")


def test_a_terminal_that_lacks_characters_gets_others(cli: Cli) -> None:
    done = cli("run", f"# Gö\n{block('echo grün')}", PYTHONIOENCODING="ascii")
    assert done.status == 0
    assert "\nok bash echo gr?n  exit status 0" in done.out


def test_the_environment_names_the_store_and_the_model(cli: Cli, tmp_path: Path) -> None:
    model = script(tmp_path / "s.json", {"text": "Hello."})
    done = cli("run", "hi", TURNLOG_MODEL=model, TURNLOG_STORE=str(tmp_path / "mine.db"))
    assert (done.status, "Hello." in done.out, cli.store.exists()) == (0, True, False)
    assert (tmp_path / "mine.db").exists()
    other = str(tmp_path / "my own.db")
    done = cli("run", "hi", "--model", model, "--store", other)
    assert f"--store '{other}'" in done.out, "the commands to try next find the store again"
    assert list(cli.workspace.iterdir()) == []
