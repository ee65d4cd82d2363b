"""The `bash` tool: a shell command in the workspace.  Pure.

Belongs here: its schema, its arguments, and how a finished command reads.
Must not know: how a command is run or supervised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.events import CallOutcome, ToolRecord
from harness.llm.model import Text, ToolSchema
from harness.tools.registry import Presented, Rejection, check_seconds, checked, error_text, worst
from operations import Operation, OperationSpec, Status

MAX_OUTPUT_CHARS: Final = 50_000
"""Characters of output that a call may ask for at most."""

NOTED_CHARS: Final = 2_000
"""Characters of output from which on the result names its file: shorter ones are hardly ever cut."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model may say."""

    command: str
    timeout_s: float | None = None
    max_output: int | None = None


class Bash:
    """The tool. timeout_s: seconds a command may take when the call does not say; None for the operation's default."""

    name = "bash"
    functions: Mapping[str, Callable[..., Any]] = {}

    def __init__(self, *, timeout_s: float | None = None) -> None:
        check_seconds(timeout_s)
        self._timeout_s = timeout_s

    def record(self) -> ToolRecord:
        """What the log keeps of it."""
        config = {} if self._timeout_s is None else {"timeout_s": self._timeout_s}
        return ToolRecord(SCHEMA, "bash", config)

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...] | Rejection:
        """One `shell` operation."""
        call = checked(arguments, Arguments)
        if isinstance(call, Rejection):
            return call
        if not call.command.strip():
            return Rejection("command is empty. Say what to run.")
        if "\0" in call.command:
            return Rejection("command contains a NUL character, which no shell takes. Leave it out.")
        if call.timeout_s is not None and not (math.isfinite(call.timeout_s) and call.timeout_s > 0):
            return Rejection(f"timeout_s has to be a positive number of seconds, not {call.timeout_s!r}.")
        if call.max_output is not None and call.max_output <= 0:
            return Rejection(f"max_output has to be a positive number of characters, not {call.max_output}.")
        work = {
            "command": call.command,
            "cwd": workspace,
            "max_output": min(call.max_output or MAX_OUTPUT_CHARS, MAX_OUTPUT_CHARS),
        }
        return (OperationSpec("shell", 1, work, timeout_s=call.timeout_s or self._timeout_s),)

    def present(self, operations: Sequence[Operation]) -> Presented:
        """First line: how it ended and after how long. Then, after a blank line, what it printed."""
        (operation,) = operations
        result = operation.result or {}
        status_line, outcome = _status(operation, result)
        output = str(result.get("output") or "").rstrip("\n")
        lines = [status_line, "", output if output.strip() else "(no output)"]
        lines.extend(_notes(result, output))
        return Presented(outcome, (Text("\n".join(lines)),))


def _status(operation: Operation, result: Mapping[str, Any]) -> tuple[str, CallOutcome]:
    took = "" if operation.seconds is None else f" ({operation.seconds:.2f} s)"
    if operation.status is Status.FAILED and result.get("timed_out"):
        return f"timed out after {operation.seconds or operation.spec.timeout_s or 0:.2f} s", CallOutcome.FAILED
    if operation.status is Status.CANCELLED:
        return f"cancelled{took}", CallOutcome.CANCELLED
    if operation.status is not Status.COMPLETED:
        return error_text([operation]) + took, worst([operation])
    if result.get("signal"):
        return f"killed by {result['signal']}{took}", CallOutcome.FAILED
    code = result.get("exit_status")
    return f"exit status {code}{took}", CallOutcome.OK if code == 0 else CallOutcome.FAILED


def _notes(result: Mapping[str, Any], output: str) -> list[str]:
    notes = []
    path = str(result.get("output_path") or "")
    # At the end as well: where many results share a request, the middle of this one may be cut out, path and all.
    if path and (len(output) > NOTED_CHARS or (result.get("truncated") and path not in output)):
        notes.append(f"[the full output is in {path}]")
    if result.get("lost_output"):
        notes.append("[some output was lost: it could not be written]")
    if strays := result.get("strays"):
        named, told = ", ".join(map(str, strays)), " ".join(map(str, strays))
        notes.append(f"[still running, left behind by the command: process {named}; to end it: kill {told}]")
    return notes


SCHEMA: Final = ToolSchema(
    name="bash",
    description=(
        "Run a shell command in the workspace. It runs in the background: you are called again when it ends, so never "
        "poll or sleep. Calls made in one response run at the same time. There is no terminal and no standard input. "
        "The result starts with the exit status; long output keeps its head and tail."
    ),
    parameters={
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The command line, as for bash -c."},
            "timeout_s": {"type": "number", "description": "Seconds after which the command is ended."},
            "max_output": {"type": "integer", "description": "Characters of output to return at most."},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)
