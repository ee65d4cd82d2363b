"""What several files of store tests need: damage on a copy, and real child processes."""

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import trio

ROOT = Path(__file__).parents[2]


def damaged_copy(path, target, *statements):
    """Copy a closed store and change it as a vandal would: without the triggers that refuse it."""
    shutil.copy(path, target)
    with closing(sqlite3.connect(target)) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(*([statement] if isinstance(statement, str) else statement))
        connection.commit()
    return target


@contextmanager
def child(*arguments):
    """A real process of `tests/store/child.py` whose lines can be read; killed on leaving."""
    command = [sys.executable, "-u", "-m", "tests.store.child", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


async def line(process):
    """The next line of a child, without blocking trio."""
    with trio.fail_after(20):
        return (await trio.to_thread.run_sync(process.stdout.readline)).strip()


def tell(process, text):
    """Send a line to a child."""
    process.stdin.write(text + "\n")
    process.stdin.flush()


async def eventually(condition, timeout_s=10):
    """Return once `condition()`, asked again and again, is true."""
    with trio.fail_after(timeout_s):
        while not await condition():  # noqa: ASYNC110  # another process cannot set an event
            await trio.sleep(0.002)
