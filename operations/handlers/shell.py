"""Operations of type `shell`: a command in a detached process, which survives us.

Belongs here: arguments and result of a command, its time limit, cancelling, taking it up again.
Must not know: how processes are supervised (`operations.process`), or how output becomes text (`operations.output`).

args: command, cwd, env (added to ours, optional), max_output (characters, optional).
result: exit_status (int or null), signal (its name, where the status is that of a shell telling of one), output,
    truncated, omitted_bytes, output_path, timed_out, strays (ids of processes that it left running), lost_output,
    error (only where it could not run, or nobody knows how it ended).
completed means that the exit status is known, whatever it is; a command that timed out or could not start has failed.

The environment is ours, with what keeps programs from waiting for a keyboard: pagers that print, editors that fail
(one that does nothing would let `git rebase -i` rewrite history), no prompts of git and ssh, no terminal features.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

from operations import process
from operations.handlers.watching import show_output
from operations.operation import Context, Ended, Operation, Status
from operations.output import DEFAULT_MAX_CHARS, RAW_PER_CHAR, bounded
from operations.process_table import Process, Scanner, is_alive
from operations.segments import Segments

DEFAULT_TIMEOUT_S: Final = 3600.0

NO_TRACES: Final = (
    "its traces are not beside the store: they were removed, the store was moved without them, or the machine was "
    "restarted"
)
PERHAPS_BEGUN: Final = (
    "it may have begun before the machine was restarted, or before the store was moved without its traces"
)

QUIET: Final[Mapping[str, str]] = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "TERM": "dumb",
}


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operation of this type carries."""

    command: str
    cwd: str
    env: dict[str, str] = {}
    max_output: int = DEFAULT_MAX_CHARS


class _Run:
    """A command that we are attached to. waiting: the wait for its end. wanted: a cancel has been asked for."""

    def __init__(self) -> None:
        self.waiting = trio.CancelScope()
        self.wanted = False

    def wait_anew(self) -> trio.CancelScope:
        """A scope for a wait, cancelled already if it should not begin. Losing a claim leads to a second wait."""
        self.waiting = trio.CancelScope()
        if self.wanted:
            self.waiting.cancel()
        return self.waiting


class ShellHandler:
    """limit: commands at once. segment_bytes: size of an output file, eight of which are kept.

    hidden_env: variables of ours that commands do not get, since what a command prints is recorded.
    """

    type = "shell"
    version = 1
    enforces_timeout = True

    def __init__(
        self,
        *,
        limit: int = 64,
        segment_bytes: int = process.SEGMENT_BYTES,
        hidden_env: Collection[str] = (),
    ) -> None:
        self.limit = limit
        self._hidden_env = frozenset(hidden_env)
        self._segment_bytes = segment_bytes
        self._runs: dict[str, _Run] = {}
        self._scanner = Scanner()

    async def start(self, operation: Operation, context: Context) -> Ended:
        """Run the command, unless a predecessor did: then attach to it."""
        return await self._registered(operation, context, self._start)

    async def recover(self, operation: Operation, context: Context) -> Ended:
        """Attach to the command, collect what it left, or start it where it provably never began."""
        return await self._registered(operation, context, self._recover)

    async def cancel(self, operation: Operation) -> bool:
        """End the command and everything it started."""
        run = self._runs.get(operation.id)
        if run is not None:
            run.wanted = True
            run.waiting.cancel()
        return True

    async def end_strays(self, folders: Sequence[Path]) -> None:
        """End what the commands of these folders left running when they ended."""
        await process.end_strays(folders, self._scanner)

    async def _registered(
        self,
        operation: Operation,
        context: Context,
        verb: Callable[[Operation, Arguments, Context, _Run], Awaitable[Ended]],
    ) -> Ended:
        run = self._runs[operation.id] = _Run()
        try:
            arguments = _arguments(operation)
            return await verb(operation, arguments, context, run)
        except process.CannotStart as error:
            return Ended(Status.FAILED, {"error": str(error)})
        finally:
            del self._runs[operation.id]

    async def _start(self, operation: Operation, arguments: Arguments, context: Context, run: _Run) -> Ended:
        if not os.path.isdir(arguments.cwd):  # noqa: PTH112, ASYNC240  (one look, cheaper than a thread)
            raise process.CannotStart(f"there is no folder {arguments.cwd!r} to run it in")
        supervisor = process.start(
            context.folder,
            arguments.command,
            cwd=arguments.cwd,
            env={**self._visible_env(), **QUIET, **arguments.env},
            segment_bytes=self._segment_bytes,
        )
        return await self._attached(operation, arguments, context, run, supervisor)

    def _visible_env(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name not in self._hidden_env}

    async def _recover(self, operation: Operation, arguments: Arguments, context: Context, run: _Run) -> Ended:
        if not process.Traces(context.folder).is_claimed:
            if operation.status is not Status.READY:
                return _unknown(NO_TRACES)
            if not context.same_boot and process.burn(context.folder):
                return _unknown(PERHAPS_BEGUN)
            if not context.cancelling:
                return await self._start(operation, arguments, context, run)
            if process.burn(context.folder):
                return Ended(Status.CANCELLED, {"output": ""})
        return await self._taken_up(operation, arguments, context, run)

    async def _taken_up(self, operation: Operation, arguments: Arguments, context: Context, run: _Run) -> Ended:
        """What somebody else has the claim of: watch it, or collect what it left."""
        traces = process.Traces(context.folder)
        await _settled_claim(traces)
        supervisor = process.attach(traces)
        if supervisor is not None:
            return await self._attached(operation, arguments, context, run, supervisor)
        if traces.claim() is None:
            return _unknown("its supervisor was stopped as it began")
        if traces.exit() is None and context.cancelling:
            await process.end(traces, self._scanner, None)
        return await self._collected(operation, arguments, context, Status.COMPLETED)

    async def _attached(
        self, operation: Operation, arguments: Arguments, context: Context, run: _Run, supervisor: process.Watched
    ) -> Ended:
        survivors: list[Process] = []
        try:
            await context.running({"pid": supervisor.process.pid, "began": supervisor.process.began})
            status = await self._waited(operation, context, run, supervisor)
            if status is not Status.COMPLETED:
                traces = process.Traces(context.folder)
                survivors = await process.end(traces, self._scanner, supervisor)
        finally:
            supervisor.let_go()
        if supervisor.code == process.CLAIMED:
            return await self._taken_up(operation, arguments, context, run)
        if supervisor.code == process.NOT_BEGUN:
            raise process.CannotStart(_why_not_begun(process.Traces(context.folder), arguments))
        return await self._collected(operation, arguments, context, status, survivors)

    async def _waited(self, operation: Operation, context: Context, run: _Run, supervisor: process.Watched) -> Status:
        """Wait for the end, the time limit or a cancel: completed, failed or cancelled."""
        limit_s = operation.spec.timeout_s or DEFAULT_TIMEOUT_S
        if not (math.isfinite(limit_s) and limit_s > 0):
            limit_s = DEFAULT_TIMEOUT_S
        spent_s = process.ran_for_s(process.Traces(context.folder)) or 0.0
        ended = False
        with trio.move_on_after(max(0.0, limit_s - spent_s)), run.wait_anew():
            async with contextlib.AsyncExitStack() as stack:
                if context.listening:
                    await stack.enter_async_context(
                        show_output(Segments(context.folder, self._segment_bytes), context.progress)
                    )
                await supervisor.wait()
                ended = True
        if ended:
            return Status.COMPLETED
        return Status.CANCELLED if run.wanted else Status.FAILED

    async def _collected(
        self,
        operation: Operation,
        arguments: Arguments,
        context: Context,
        status: Status,
        survivors: list[Process] | None = None,
    ) -> Ended:
        """The result from what is in the folder, once the command has ended."""
        traces = process.Traces(context.folder)
        strays = await process.drain(traces, self._scanner)
        strays = sorted({*strays, *(survivors or [])}, key=lambda stray: stray.pid)
        result = await trio.to_thread.run_sync(self._result, arguments, traces, status is Status.FAILED)
        result["strays"] = [stray.pid for stray in strays if is_alive(stray)]
        ended = traces.exit()
        if traces.has("no-workspace"):
            raise process.CannotStart(_why_not_begun(traces, arguments))
        if status is Status.COMPLETED and ended is None:
            return _unknown("its supervisor is gone and left no exit status", result)
        return Ended(status, result, seconds=process.ran_for_s(traces))

    def _result(self, arguments: Arguments, traces: process.Traces, timed_out: bool) -> dict[str, Any]:
        segments = Segments(traces.folder, self._segment_bytes)
        max_chars = max(1, arguments.max_output)
        head, tail, total = segments.ends(max_chars * RAW_PER_CHAR)
        where = segments.where()
        text = bounded(head, tail, total, max_chars, where)
        ended = traces.exit()
        return {
            "exit_status": None if ended is None else ended.code,
            "signal": None if ended is None else _signal_name(ended.code),
            "output": text.text,
            "truncated": text.truncated,
            "omitted_bytes": text.omitted_bytes,
            "output_path": where,
            "timed_out": timed_out,
            "lost_output": traces.has("lost"),
        }


async def _settled_claim(traces: process.Traces) -> None:
    """A supervisor that is just writing its claim needs a moment; one that died there never will."""
    with trio.move_on_after(process.SETTLE_S):
        while not traces.claim_is_written:  # noqa: ASYNC110  (another process writes it)
            await trio.sleep(0.01)


def _arguments(operation: Operation) -> Arguments:
    try:
        return msgspec.convert(operation.spec.args, Arguments)
    except msgspec.ValidationError as error:
        raise process.CannotStart(f"the arguments of the command are not right: {error}") from error


def _unknown(why: str, result: Mapping[str, Any] | None = None) -> Ended:
    return Ended(Status.UNKNOWN, {**(result or {}), "error": f"{why}. It may have run in part."})


def _why_not_begun(traces: process.Traces, arguments: Arguments) -> str:
    if traces.has("no-workspace"):
        return f"the folder {arguments.cwd!r} to run it in cannot be entered"
    return f"its own folder {str(traces.folder)!r} takes no files"


def _signal_name(code: int) -> str | None:
    try:
        return signal.Signals(code - 128).name if code > 128 else None
    except ValueError:
        return None
