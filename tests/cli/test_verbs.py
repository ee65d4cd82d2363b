"""The verbs that read a store, branch it, move it, and reach into a session from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import trio

import harness
from tests.cli.cli import ROOT, Cli, block, eventually, finish


def test_a_finished_session_is_listed_and_shown(finished: tuple[Cli, str]) -> None:
    cli, session_id = finished
    listed = next(each for each in json.loads(cli.ok("sessions", "--json")) if each["id"] == session_id)
    assert (listed["state"], listed["title"], listed["turns"]) == ("idle", "First", listed["turns"])
    assert session_id in cli.ok("sessions")
    log = cli.ok("log", session_id[:5]).splitlines()
    assert "session_opened" in log[0] and "tool_call_pending   t0001c000 bash echo one" in "\n".join(log)
    table = cli.ok("turns", session_id).splitlines()
    assert table[1].split()[:6] == ["t1", "input", "finished", "2", "bash", "-"], "unknown is -, not 0"
    figures = json.loads(cli.ok("turns", session_id, "--json"))
    assert figures["turns"][0]["calls"] == ["bash", "bash"]
    assert (figures["totals"]["calls"], figures["totals"]["overhead_turns"]) == (3, 0)


def test_states_and_digests_come_from_the_log_alone(finished: tuple[Cli, str]) -> None:
    cli, session_id = finished
    assert "today's code would send exactly the same" in cli.ok("replay", session_id, "--check")
    assert cli.ok("replay", session_id, "--check", "--json") == "[]\n"
    shown = cli.ok("replay", session_id, "--to", "5")
    assert "t0001c000 bash" in shown and "event        5 of " in shown
    assert json.loads(cli.ok("replay", session_id, "--to", "1", "--json"))["seq"] == 1
    far = cli.here("replay", session_id, "--to", "9999")
    assert far.status == 2 and "has events 1 to" in far.err
    assert "every trace rule holds" in cli.ok("check", session_id)
    assert "every event is as it was written" in cli.ok("verify", session_id)
    assert "every event is as it was written" in cli.ok("verify")


def test_a_branch_runs_on_and_its_parent_stays(finished: tuple[Cli, str]) -> None:
    cli, session_id = finished
    before = cli.ok("log", session_id, "--json")
    branch = cli.ok("fork", session_id, "--at", "t1").strip()
    assert len(branch.split()) == 1
    early = cli.ok("fork", session_id, "--at", "2").strip()
    done = cli.here("run", "--session", branch)
    assert done.status in (0, 1) and "t2" in done.out, "the branch goes on where its parent was"
    assert "every trace rule holds" in cli.ok("check", branch)
    assert cli.ok("log", session_id, "--json") == before
    assert len(cli.events(early)) == 3
    unknown = cli.here("fork", session_id, "--at", "t99")
    assert unknown.status == 2 and "t99" in unknown.err


async def test_an_id_may_be_cut_short_while_it_is_clear(finished: tuple[Cli, str]) -> None:
    cli, session_id = finished
    # An alphabet of 32: of 34 ids, two begin alike.
    ids = [session_id, *[await harness.fork(cli.store, session_id) for _ in range(33)]]
    first, times = Counter(each[0] for each in ids).most_common(1)[0]
    assert times > 1
    done = await trio.to_thread.run_sync(cli.here, "log", first)
    assert done.status == 2 and f"sessions begin with '{first}'" in done.err and "Give more" in done.err


def test_a_session_moves_to_another_store(finished: tuple[Cli, str], cli: Cli) -> None:
    origin, session_id = finished
    exported = origin.ok("export", session_id)
    assert cli.ok("import", "-", stdin=exported.encode()) == f"{session_id}\n"
    assert cli.ok("log", session_id, "--json") == origin.ok("log", session_id, "--json")
    again = cli.here("import", "-", stdin=exported.encode())
    assert again.status == 2 and "exists already" in again.err
    copy = cli.workspace / "copy.db"
    cli.ok("backup", str(copy))
    assert session_id in cli.ok("sessions", "--store", str(copy))
    assert cli.here("backup", str(copy)).status == 2


def test_a_session_with_messages_that_nobody_has_taken_up_is_waiting(finished: tuple[Cli, str]) -> None:
    cli, session_id = finished
    branch = cli.ok("fork", session_id).strip()

    def state() -> str:
        return next(str(each["state"]) for each in json.loads(cli.ok("sessions", "--json")) if each["id"] == branch)

    assert state() == "idle"
    for text in ("Are you there?", "Answer me."):
        cli.ok("send", branch, text)
        assert state() == "waiting"
    assert cli.here("run", "--session", branch).status == 0
    assert state() == "idle"
    cli.ok("send", branch, "And now?")
    assert state() == "waiting"
    assert cli.here("run", "--session", branch).status == 0
    assert state() == "idle"


def test_an_empty_list_is_no_error(cli: Cli) -> None:
    assert "turnlog demo" in cli.ok("sessions")
    assert cli.ok("sessions", "--json") == "[]\n"


def test_other_processes_follow_steer_and_interrupt_a_run(cli: Cli) -> None:
    prompt = f"# One\n{block('echo x > started; sleep 60')}"
    process = cli.start("run", "--json", "-p", prompt)
    eventually((cli.workspace / "started").exists, "the command runs")
    (session_id,) = cli.session_ids()
    follower = cli.start("log", session_id, "--follow", "--json")

    sent = cli.ok("send", session_id, "Are you there?", "--id", "note-1").splitlines()
    assert sent[0] == "note-1" and "takes it up now" in sent[1]
    assert cli.ok("send", session_id, "Are you there?", "--id", "note-1") != "", "the same input again is no other one"
    other = cli.here("send", session_id, "Something else", "--id", "note-1")
    assert other.status == 2
    busy = cli("run", "--session", session_id, "-p", "me too")
    assert busy.status == 1 and "is open in" in busy.err
    cli.ok("interrupt", session_id)
    done = finish(process)
    assert (done.status, done.events[-1]["outcome"]) == (130, "interrupted")

    taken_up = cli.ok("cancel", session_id).splitlines()[1]
    assert "No process has session" in taken_up and "turnlog run --session" in taken_up
    assert cli("run", "--session", session_id).status == 0
    assert follower.stdout is not None
    followed: list[dict[str, object]] = []
    while not (followed and followed[-1]["kind"] == "tool_call_finished"):
        followed.append(json.loads(follower.stdout.readline()))
    follower.send_signal(2)
    assert finish(follower).status == 130
    assert followed == cli.events(session_id)
    assert [each["input_id"] for each in followed if each["kind"] == "input_accepted"].count("note-1") == 1
    assert followed[-1]["outcome"] == "cancelled"


def test_the_demo_runs_and_compares_itself_with_a_loop_that_blocks(cli: Cli) -> None:
    done = cli("demo", TURNLOG_MODEL="nonsense")
    assert (done.status, done.err) == (0, "")
    assert "9 commands, none failed." in done.out
    assert "4 used; 10 with one blocking call a turn (9 calls and the answer)" in done.out
    (session_id,) = cli.session_ids()
    finished = cli.events(session_id)[-1]
    calls = [each["seconds"] for each in cli.events(session_id) if each["kind"] == "tool_call_finished"]
    assert finished["seconds"] < sum(calls) * 0.8
    for verb in ("log", "turns", "fork", "check"):
        assert cli(verb, session_id).status == 0
    (files,) = cli.temporary.glob("turnlog-demo-*")
    assert f"files    {files}\nremove   rm -r {files}\n" in done.out


def test_a_demo_that_cannot_begin_leaves_nothing(cli: Cli) -> None:
    assert cli("demo", "--store", str(cli.workspace)).status == 1
    assert list(cli.temporary.iterdir()) == []


AS_INSTALLED = """
import os, sys
sys.path[:] = [path for path in sys.path if path and not os.path.exists(os.path.join(path, "bench", "turns.py"))]
from harness.cli.app import run
sys.exit(run(sys.argv[1:]))
"""


def test_the_benchmarks_run_in_a_checkout_and_say_so_elsewhere(cli: Cli) -> None:
    packages = cli.workspace / "site-packages"  # as a wheel has them: without what is beside them in a checkout
    packages.mkdir()
    for name in ("harness", "operations", "store"):
        (packages / name).symlink_to(ROOT / name)

    def bench() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", AS_INSTALLED, "bench", "turns", "--seeds", "1"]
        env = {**cli.env, "PYTHONPATH": str(packages)}
        return subprocess.run(command, cwd=cli.workspace, env=env, capture_output=True, text=True, check=False)

    elsewhere = bench()
    assert elsewhere.returncode == 2 and "Run this in the folder of a checkout" in elsewhere.stderr
    (cli.workspace / "bench").symlink_to(ROOT / "bench")
    here = bench()
    assert (here.returncode, here.stderr) == (0, "") and "polling" in here.stdout
