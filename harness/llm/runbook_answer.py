"""How a runbook's commands ended, and the table that says so.  Pure.

Belongs here: reading the first line of a bash result, and every sentence of the runbook model's answers.
Must not know: Markdown input, requests, or which command comes next.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

CELL_CHARS: Final = 72
"""Characters of a command or an output line that a table cell shows at most."""

USAGE: Final = """\
There is nothing to run in this prompt. The model `runbook` runs the shell blocks of a Markdown text:

    # Check
    ```sh
    python3 --version
    ```
    ```sh
    df -h .
    ```

    # Build (continue)
    ```sh
    make
    ```

Blocks under one heading run at the same time; the next heading starts when all of them have ended. A command that
fails ends the runbook, unless its heading ends in "(continue)"."""


class Outcome(msgspec.Struct, frozen=True):
    """How one command stands. exit: for the table. seconds: None when unknown. output: what it printed."""

    exit: str
    seconds: float | None = None
    output: str = ""
    ok: bool = False
    running: bool = False


_SECONDS: Final = r"(?: \((?P<seconds>\d+(?:\.\d+)?) s\))?"
_SHAPES: Final = (
    (re.compile(rf"exit status (?P<exit>-?\d+){_SECONDS}"), ""),
    (re.compile(r"timed out after (?P<seconds>\d+(?:\.\d+)?) s"), "timed out"),
    (re.compile(rf"killed by (?P<exit>\S+){_SECONDS}"), ""),
    (re.compile(rf"cancelled.*?{_SECONDS}$"), "cancelled"),
    (re.compile("outcome unknown"), "unknown"),
    (re.compile("not run"), "not run"),
)

_NOTE: Final = re.compile(r"\[(?:the full output is in|some output was lost|still running, left behind).*\]")


def read_result(text: str) -> Outcome:
    """The outcome that a bash result tells: a first line with the status, a blank line, then the output."""
    head, _, rest = text.partition("\n")
    if head.startswith("still running"):
        return Outcome("still running", running=True)
    for shape, label in _SHAPES:
        if match := shape.match(head):
            facts = match.groupdict()
            seconds = float(facts["seconds"]) if facts.get("seconds") else None
            status = label or facts["exit"]
            return Outcome(status, seconds, rest.removeprefix("\n"), ok=status == "0")
    # A refusal of the call, or the text of some other tool called bash: whatever it is, it is not a success.
    return Outcome("error", output=text)


def table(rows: Sequence[tuple[str, Outcome]]) -> str:
    """A Markdown table of commands and how they ended."""
    lines = ["| command | exit | seconds | last output line |", "| --- | --- | --- | --- |"]
    for command, outcome in rows:
        seconds = "" if outcome.seconds is None else f"{outcome.seconds:.2f}"
        lines.append(f"| {_cell(command)} | {outcome.exit} | {seconds} | {_cell(_last_line(outcome.output))} |")
    return "\n".join(lines)


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip() and not _NOTE.fullmatch(line.strip())]
    return lines[-1].strip() if lines else ""


def _cell(text: str) -> str:
    """One line that fits a cell: further lines and what is too long are cut and marked, pipes escaped."""
    first, *more = text.strip().splitlines() or [""]
    first = "".join(character if character.isprintable() else " " for character in first)
    if len(first) > CELL_CHARS:
        first, more = first[: CELL_CHARS - 1].rstrip(), ["cut"]
    return first.replace("\\", "\\\\").replace("|", "\\|") + (" …" if more else "")


def tally(outcomes: Sequence[Outcome]) -> str:
    """How many commands there were and how many failed, as a sentence."""
    running = sum(outcome.running for outcome in outcomes)
    failed = sum(not outcome.ok and not outcome.running for outcome in outcomes)
    said = f"{counted(len(outcomes), 'command')}, "
    said += f"{failed} failed" if failed else "none failed"
    return said + (f", {running} still running." if running else ".")


def counted(number: int, noun: str) -> str:
    """`1 command`, `2 commands`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def noted(messages: Sequence[str]) -> str:
    """The acknowledgement of messages that came in while a runbook ran; empty when there were none."""
    if not messages:
        return ""
    quoted = "; ".join(f'"{_cell(message)}"' for message in messages)
    return f"Read while it ran, but not acted on, since only shell blocks are: {quoted}."
