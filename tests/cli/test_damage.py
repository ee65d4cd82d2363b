"""Damaged and unwritable stores through the command line: one line, the right status, and nothing made worse."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from store import SqliteStore
from store.testing import events
from tests.cli.cli import Cli, Done, block, eventually, finish

FileDamage = Callable[[Path], object]
SessionDamage = Callable[[Path, str], object]

READS = ("log", "turns", "check", "replay", "export")
"""Verbs that read one session."""


class Stored(NamedTuple):
    """A store to be damaged, closed, with a session that will be damaged and one that stays healthy."""

    cli: Cli
    path: Path
    damaged: str
    healthy: str


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    cli = Cli(tmp_path_factory.mktemp("original"))
    for title in ("First", "Second"):
        done = cli.here("run", "-p", f"# {title}\n{block('echo one', 'echo two')}\n# Then\n{block('echo three')}")
        assert done.status == 0, done
    damaged, healthy = cli.session_ids()
    trio.run(more, cli.store)
    yield Stored(cli, cli.store, damaged, healthy)
    cli.close()


async def more(path: Path) -> None:
    """Sessions that come after the two in the file, by their ids too, so that a cut loses them first."""
    async with SqliteStore.open(path) as store:
        for number in range(3):
            await store.create(f"zzzz-later{number}", events(1500), created_at="", title="")


@pytest.fixture
def stored(original: Stored, tmp_path: Path) -> Stored:
    shutil.copy(original.path, tmp_path / "s.db")
    return original._replace(path=tmp_path / "s.db")


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder, byte for byte. The index of a log is left out: it says nothing that the log does not."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def one_line(done: Done, status: int, *parts: str) -> None:
    """One line of ours on stderr that says all of `parts`."""
    assert done.status == status, done
    assert done.err.startswith("turnlog: ") and done.err.count("\n") == 1, done
    for part in parts:
        assert part in done.err, (part, done)


def vandalise(*statements: str) -> SessionDamage:
    """Change rows without the triggers that refuse it. `:id` is the session."""

    def change(path: Path, session_id: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
            for statement in statements:
                connection.execute(statement, {"id": session_id} if ":id" in statement else {})

    return change


def flip(path: Path, session_id: str) -> None:
    """Flip one bit of an event's text, in the file itself."""
    with closing(sqlite3.connect(path)) as connection:
        (data,) = connection.execute(
            "SELECT CAST(data AS BLOB) FROM events WHERE session_id = ? AND seq = 5", (session_id,)
        ).fetchone()
    raw = bytearray(path.read_bytes())
    raw[raw.index(data) + len(data) // 2] ^= 1
    path.write_bytes(raw)


def other_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")


def into_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(size: int) -> FileDamage:
    return lambda path: os.truncate(path, size)


UNUSABLE: dict[str, tuple[FileDamage, str]] = {
    "empty": (cut(0), "the file is empty, its contents are lost"),
    "cut to its first page": (cut(4096), "the database file is damaged"),
    "cut to its header": (cut(100), "the database file is damaged"),
    "a text": (lambda path: path.write_text("dear diary\n" * 500), "it is not a turnlog store"),
    "another program's database": (other_program, "it is another program's database"),
    "overwritten": (lambda path: path.write_bytes(path.read_bytes()[:512] + b"\xa5" * 60_000), "damaged"),
    "a folder": (into_a_folder, "this is not a file"),
    "missing": (Path.unlink, "there is no store here"),
}


@pytest.mark.parametrize(("damage", "says"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_is_no_store_is_named_by_every_verb_and_left_alone(
    stored: Stored, damage: FileDamage, says: str
) -> None:
    damage(stored.path)
    before = files(stored.path.parent)
    for verb in (["sessions"], ["verify"], ["backup", str(stored.path.with_name("copy.db"))], *of(stored.damaged)):
        one_line(stored.cli.here(*verb, "--store", str(stored.path)), 1, str(stored.path), says)
        assert files(stored.path.parent) == before, verb


def of(session_id: str) -> list[list[str]]:
    """Every verb on one session."""
    reads = [[verb, session_id] for verb in (*READS, "verify", "fork", "interrupt", "cancel")]
    return [*reads, ["send", session_id, "hello"], ["run", "--session", session_id, "-p", block("true")]]


DELETED = "DELETE FROM events WHERE session_id = :id AND seq"
MOVED = "UPDATE events SET seq = {} WHERE session_id = :id AND seq = {}"
ONE_SESSION = {
    "a flipped bit": (flip, 5, "it was altered or moved"),
    "a deleted event": (vandalise(f"{DELETED} = 5"), 5, "it is missing"),
    "a lost end": (vandalise(f"{DELETED} > 20"), 21, "it is missing"),
    "zeros": (
        vandalise("UPDATE events SET data = zeroblob(300) WHERE session_id = :id AND seq = 5"),
        5,
        "it was altered",
    ),
    "swapped events": (vandalise(*(MOVED.format(*move) for move in ((-4, 4), (4, 5), (5, -4)))), 4, "altered or moved"),
    "a damaged row": (vandalise("UPDATE sessions SET length = 'x' WHERE id = :id"), None, "its row in sessions"),
}


@pytest.mark.parametrize(("damage", "seq", "says"), ONE_SESSION.values(), ids=ONE_SESSION)
def test_damage_to_one_session_is_named_with_the_event_and_concerns_no_other(
    stored: Stored, damage: SessionDamage, seq: int | None, says: str
) -> None:
    damage(stored.path, stored.damaged)
    where = ("--store", str(stored.path))
    before = files(stored.path.parent)
    at = [f"session {stored.damaged!r} is damaged", says, *([] if seq is None else [f"at event {seq}"])]
    for verb in READS:
        one_line(stored.cli.here(verb, stored.damaged, *where), 1, *at)
        assert stored.cli.ok(verb, stored.healthy, *where)
    listed = {line.split()[0]: line.split()[1] for line in stored.cli.ok("sessions", *where).splitlines()[1:]}
    assert (listed[stored.damaged], listed[stored.healthy]) == ("unreadable", "idle")
    whole = stored.cli.here("verify", *where)
    assert (whole.status, whole.err) == (1, "")
    assert whole.out.startswith(f"{stored.damaged}{'' if seq is None else f' at event {seq}'}: ") and says in whole.out
    assert stored.cli.ok("verify", stored.healthy, *where)
    assert files(stored.path.parent) == before, "reading changes nothing and makes no file"

    for verb in (["run", "--session"], ["run", "-p", block("true"), "--session"], ["fork"]):
        one_line(stored.cli.here(*verb, stored.damaged, *where), 1, *at)
    again = stored.cli.here("verify", *where)
    assert again == whole, "the damage has not grown"
    assert stored.cli.here("run", "--session", stored.healthy, "-p", block("true"), *where).status == 0


@pytest.mark.parametrize("damage", [flip, vandalise(f"{DELETED} = 5")], ids=["altered", "deleted"])
def test_what_is_before_the_damage_is_exported_imported_and_goes_on(stored: Stored, damage: SessionDamage) -> None:
    damage(stored.path, stored.damaged)
    exported = stored.cli.here("export", stored.damaged, "--store", str(stored.path))
    one_line(exported, 1, "at event 5")
    shown = stored.cli.here("log", stored.damaged, "--store", str(stored.path))
    one_line(shown, 1, "at event 5")
    assert len(shown.out.splitlines()) == 4
    elsewhere = ("--store", str(stored.path.with_name("other.db")))
    one_line(stored.cli.here("import", "-", *elsewhere, stdin=exported.out.encode()), 1, "holds only what is before it")
    salvaged = stored.cli.ok("import", "-", "--salvaged", *elsewhere, stdin=exported.out.encode()).strip()
    assert len(stored.cli.ok("log", salvaged, *elsewhere).splitlines()) == 4
    one_line(stored.cli.here("fork", stored.damaged, "--at", "5", "--store", str(stored.path)), 1, "at event 5")
    branch = stored.cli.ok("fork", stored.damaged, "--at", "4", "--store", str(stored.path)).strip()
    assert stored.cli.here("run", "--session", branch, "--store", str(stored.path)).status == 0


def test_of_a_file_that_was_cut_short_the_rest_can_be_read_and_nothing_written(stored: Stored) -> None:
    os.truncate(stored.path, stored.path.stat().st_size // 2)
    where, before = ("--store", str(stored.path)), files(stored.path.parent)
    for verb in READS:
        assert stored.cli.ok(verb, stored.healthy, *where)
    listed = stored.cli.ok("sessions", *where)
    assert stored.healthy in listed and "zzzz-later2" in listed
    one_line(stored.cli.here("export", "zzzz-later2", *where), 1, "session 'zzzz-later2' is damaged at event")
    done = stored.cli.here("verify", *where)
    assert (done.status, done.err) == (1, "")
    assert "zzzz-later2 at event" in done.out and "the store: the database file" in done.out
    copy, run = str(stored.path.with_name("copy.db")), ["run", "-p", block("true")]
    writes = (["fork", stored.healthy], ["send", stored.healthy, "hello"], run, [*run, "--session", stored.healthy])
    for write in (*writes, ["backup", copy]):
        one_line(stored.cli.here(*write, *where), 1, f"{stored.path}: the database file is damaged")
    assert files(stored.path.parent) == before


CRASH = """
import os, sys, trio
from store import SqliteStore

async def main():
    async with SqliteStore.open(sys.argv[1]) as store:
        await store.submit(sys.argv[2], "late", b'{"source":"user"}', received_at="")
        os.kill(os.getpid(), 9)

trio.run(main)
"""


@pytest.mark.parametrize("verb", ["sessions", "verify", "export", "backup"])
def test_a_log_that_a_killed_process_left_is_part_of_the_store(stored: Stored, verb: str) -> None:
    path, copy = stored.path, stored.path.with_name("copy.db")
    subprocess.run([sys.executable, "-c", CRASH, path, stored.healthy], env=stored.cli.env, check=False)
    assert path.with_name("s.db-wal").stat().st_size > 0
    argument = {"export": [stored.healthy], "backup": [str(copy)]}.get(verb, [])
    assert stored.cli.ok(verb, *argument, "--store", str(path))
    kept = copy if verb == "backup" else path
    assert '"input_id":"late"' in stored.cli.ok("export", stored.healthy, "--store", str(kept))
    assert {found.name for found in path.parent.iterdir()} == {path.name, kept.name}


def test_a_log_of_another_database_is_named_and_nothing_is_copied_from_it(stored: Stored) -> None:
    program = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('PRAGMA journal_mode = WAL'); c.execute('CREATE TABLE t (a)'); os.kill(os.getpid(), 9)"
    )
    other = stored.path.with_name("other.db")
    subprocess.run([sys.executable, "-c", program, other], check=False)
    other.with_name("other.db-wal").replace(stored.path.with_name("s.db-wal"))
    before = files(stored.path.parent)
    for verb in (["sessions"], ["verify"], *of(stored.healthy)):
        one_line(stored.cli.here(*verb, "--store", str(stored.path)), 1, "s.db-wal beside it is another database's log")
    assert files(stored.path.parent) == before
    stored.path.with_name("s.db-wal").unlink()
    assert stored.cli.ok("verify", "--store", str(stored.path))


def started(cli: Cli, *command: str | Path, largest_file: int = resource.RLIM_INFINITY) -> Done:
    """Run a command to its end. largest_file: bytes beyond which no file can be written, as on a disk that is full."""
    process = subprocess.Popen(
        command,
        cwd=cli.workspace,
        env=cli.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file)),
    )
    return finish(process)


def unprivileged(cli: Cli, *arguments: str) -> Done:
    """Run as somebody whom permissions stop: root passes them by, unless it gives that right up."""
    without: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("permissions do not stop root, and there is no setpriv")
        without = [setpriv, "--bounding-set=-dac_override,-dac_read_search"]
    return started(cli, *without, sys.executable, "-m", "harness", *arguments)


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_a_store_that_cannot_be_written_can_be_read(stored: Stored, tmp_path: Path, folder: bool) -> None:
    where, before = ("--store", str(stored.path)), files(tmp_path)
    copy = stored.cli.workspace / f"copy-{folder}.db"
    stored.path.chmod(0o444)
    tmp_path.chmod(0o555 if folder else 0o755)
    try:
        for verb in (["sessions"], ["verify"], ["backup", str(copy)], ["export", stored.healthy]):
            done = unprivileged(stored.cli, *verb, *where)
            assert (done.status, done.err) == (0, ""), done
        for verb in (["send", stored.healthy, "hello"], ["run", "--session", stored.healthy, "-p", block("true")]):
            one_line(unprivileged(stored.cli, *verb, *where), 1, f"{stored.path}: it cannot be written")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["s.db"]
        assert files(tmp_path) == before
    finally:
        tmp_path.chmod(0o755)


def test_a_disk_that_fills_up_in_a_run_is_one_line_and_the_run_goes_on_when_there_is_room(cli: Cli) -> None:
    print_much = block("head -c 40000 /dev/zero | tr '\\0' x")
    steps = "\n".join(f"# Step {number}\n{print_much}" for number in range(4))
    command = (sys.executable, "-m", "harness", "run", "--store", "s.db", "-p", steps)
    one_line(started(cli, *command, largest_file=200_000), 1, "s.db: the disk")
    assert cli.ok("verify", "--store", "s.db")
    (session_id,) = [line.split()[0] for line in cli.ok("sessions", "--store", "s.db").splitlines()[1:]]
    assert cli.here("run", "--session", session_id, "--store", "s.db").status == 0
    assert cli.ok("check", session_id, "--store", "s.db")


def test_a_run_whose_store_is_removed_ends_with_one_line(cli: Cli) -> None:
    prompt = f"# One\n{block('touch begun; sleep 1')}\n# Two\n{block('touch two')}"
    process = cli.start("run", "--store", "s.db", "-p", prompt)
    eventually((cli.workspace / "begun").exists, "the first command has begun")
    (cli.workspace / "s.db").unlink()
    one_line(finish(process), 1, "s.db: the store file was removed or replaced while it was open")
    assert not (cli.workspace / "two").exists(), "nothing follows from what is not in the log"


def test_before_the_first_session_there_is_no_damage_and_nothing_to_copy(cli: Cli) -> None:
    assert cli.ok("verify") == cli.ok("sessions") == f"No sessions in {cli.store} yet. Try `turnlog demo`.\n"
    one_line(cli.here("backup", "copy.db"), 1, f"no sessions in {cli.store} yet, so there is nothing to copy")
    one_line(cli.here("verify", "--store", "named.db"), 1, "there is no store here")
    assert not cli.state.exists() and not any(cli.workspace.iterdir())
