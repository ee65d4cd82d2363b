"""The prompt and the project's instructions, as a person gives them.

Belongs here: text, file or stdin; the title made from it; AGENTS.md; limits as `name=value`.
Must not know: what is done with any of it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.cli.faults import Mistake, say
from harness.events import Limits

TITLE_CHARS: Final = 60
AGENTS_BYTES: Final = 100_000
INSTRUCTIONS: Final = (
    "You work in the folder {workspace} with the tools you are given. Tool calls run in the background: start all that "
    "can run at the same time in one response, and end your response when you can do nothing before their results; you "
    "are called again with them. Never poll. When everything is done, answer in Markdown: what was done, and what was "
    "found."
)


_PATH: Final = re.compile(r"(?!\S*://)(\S*/\S*|\S*[^\s.]\.[A-Za-z]\w{0,7})")
"""One word with a folder in it, or with a suffix, which is no address on the web."""


def prompt_of(given: str) -> str:
    """`-` is stdin; an argument that names an existing file is read; anything else is the prompt itself.

    Except for a slip of the pen: what looks like a path has to be there.
    """
    if given == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
        where = "stdin"
    elif _is_file(given):
        text, where = _read(Path(given)), f"the file {given!r}"
    elif _PATH.fullmatch(given):
        raise Mistake(f"there is no file {given!r}. Name one that exists; to say just this, pipe it in as `-`.")
    else:
        text, where = given, "the prompt"
    if not text.strip():
        raise Mistake(f"{where} is empty. Say what is to be done.")
    return text


def _is_file(given: str) -> bool:
    """Also a pipe, as a shell's <(...) makes it; not a folder, whose name may well be a word of a prompt."""
    try:
        path = Path(given)
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):  # too long or with a NUL: text
        return False


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise Mistake(f"the file {str(path)!r} cannot be read: {error.strerror}.") from None


def title_of(prompt: str) -> str:
    """The first line that says something, without Markdown's heading marks, cut to TITLE_CHARS."""
    first = next((line for line in prompt.splitlines() if line.strip(" #\t")), "")
    line = " ".join("".join(c if c.isprintable() else " " for c in first).split())
    line = re.sub(r"^#{1,6}\s+|\s+#+$", "", line)
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def workspace_of(given: str | None) -> str | None:
    """The folder, checked before anything is made."""
    if given is None:
        return None
    if not Path(given).expanduser().is_dir():
        raise Mistake(f"the workspace {given!r} is not a folder. Make it, or name another.")
    return str(Path(given).expanduser().absolute())


def instructions_for(workspace: str) -> str:
    """What a new session is told: how this harness works, then the project's own AGENTS.md when it has one."""
    text = INSTRUCTIONS.format(workspace=workspace)
    path = Path(workspace) / "AGENTS.md"
    if path.exists() and not path.is_file():  # a pipe would be waited for
        say(f"{path} was left out: it is not a file.")
        return text
    try:
        with path.open("rb") as file:
            data = file.read(AGENTS_BYTES + 1)
    except FileNotFoundError:
        return text
    except OSError as error:
        say(f"{path} was left out: {error.strerror}.")
        return text
    if len(data) > AGENTS_BYTES:
        say(f"{path} was cut: only its first {AGENTS_BYTES:,} bytes are used.")
    project = data[:AGENTS_BYTES].decode("utf-8-sig", "ignore").strip()
    return f"{text}\n\nThe project's AGENTS.md:\n\n{project}" if project else text


def limits_of(given: Sequence[str]) -> Limits:
    """`turns=50`, `tokens=100000`, `seconds=900`, `calls.bash=20`; the last of a name counts."""
    plain: dict[str, float] = {}
    calls: dict[str, int] = {}
    for each in given:
        name, equals, value = each.partition("=")
        tool = name.removeprefix("calls.")
        if not equals or not tool or (tool == name and name not in ("turns", "tokens", "seconds")):
            raise Mistake(f"--limit {each!r} is not a limit. Use turns=N, tokens=N, seconds=N or calls.TOOL=N.")
        number = _number(each, value, whole=name != "seconds")
        if tool == name:
            plain[name] = number
        else:
            calls[tool] = int(number)
    turns, tokens = plain.get("turns"), plain.get("tokens")
    return Limits(
        turns=None if turns is None else int(turns),
        tokens=None if tokens is None else int(tokens),
        seconds=plain.get("seconds"),
        calls=calls,
    )


def _number(each: str, value: str, *, whole: bool) -> float:
    try:
        number = int(value) if whole else float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        kind = "a whole number" if whole else "a number"
        raise Mistake(f"--limit {each!r}: {value!r} is not {kind} above zero.")
    return number
