"""What a simulated process calls: a model, commands, images and functions, with seeded whims.

Belongs here: the objects that a process hands to `open_session`.
Must not know: the store, or when anything is killed.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import trio

import harness
from harness.llm.model import (
    AttemptDropped,
    Emit,
    ErrorKind,
    ModelError,
    ModelRequest,
    ModelResponse,
    OutputItem,
    Reasoning,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UserItem,
)
from operations import Context, Ended, Operation, OperationManager, Status
from operations.handlers.function import FunctionHandler
from store.chain import blob_digest
from tests.simulation.world import World


class Host(Protocol):
    """The process around the outsides. dead: nothing happens any more."""

    dead: bool
    session_id: str

    def starting(self, what: str) -> None:
        """Something is about to be started: the place to be killed at, and to be asked with what right."""
        ...


class SimulatedModel:
    """Answers with whatever the seed says, within what the contract of a model allows."""

    name = "simulated"

    def __init__(self, world: World, host: Host) -> None:
        self._world, self._host = world, host

    async def respond(self, request: ModelRequest, *, emit: Emit) -> ModelResponse:
        world, chance = self._world, self._world.chance
        self._host.starting("a model call")
        world.requested(
            [
                part.text
                for item in request.items
                if isinstance(item, UserItem)
                for part in item.parts
                if isinstance(part, Text)
            ]
        )
        await trio.sleep(0.1 if world.calm else chance.choice([0.0, 0.0, 0.2, 1.0, 1.0, 5.0, 40.0]))
        text = f"answer {world.requests}"
        for piece in (text[:3], text[3:]):
            emit(TextDelta(piece))
            if chance.random() < 0.3:
                await trio.sleep(chance.random())
        if not world.calm:
            self._fail(emit)
        calls = self._calls(request)
        for index, call in enumerate(calls):
            emit(ToolCallDelta(index, call.name, call.arguments))
        await trio.lowlevel.checkpoint()
        output: list[OutputItem] = [Text(text)] if not calls or chance.random() < 0.5 else []
        if chance.random() < 0.2:
            output.insert(0, Reasoning("thinking", provider="simulated", opaque="{}"))
        return ModelResponse((*output, *calls), self._stop(calls), Usage(input=len(request.items), output=2))

    def _fail(self, emit: Emit) -> None:
        chance = self._world.chance
        roll = chance.random()
        if roll < 0.1:
            self._world.counts["model failures"] += 1
            raise ModelError(chance.choice(list(ErrorKind)), "simulated failure")
        if roll < 0.12:
            self._world.counts["model failures"] += 1
            raise RuntimeError("a bug of the model object")
        if roll < 0.15:
            emit(AttemptDropped("simulated", 0.0))

    def _stop(self, calls: list[ToolCall]) -> StopReason:
        chance = self._world.chance
        if not self._world.calm and chance.random() < 0.06:
            return chance.choice([StopReason.LENGTH, StopReason.REFUSAL, StopReason.PAUSED])
        return StopReason.TOOL_CALLS if calls else StopReason.END

    def _calls(self, request: ModelRequest) -> list[ToolCall]:
        world, chance = self._world, self._world.chance
        if world.calm or chance.random() < 0.3 or not (request.allow_tools or chance.random() < 0.1):
            return []
        return [self._call(index) for index in range(chance.randint(1, 5))]

    def _call(self, index: int) -> ToolCall:
        chance = self._world.chance
        key = f"k{self._world.requests}.{index}"
        wake: dict[str, Any] = chance.choice([{}, {"wake": "each"}, {"wake": "batch"}, {"wake": "quiet"}])
        slow = {"timeout_s": 2.0} if chance.random() < 0.1 else {}
        name, arguments = chance.choice(
            [
                ("bash", {"command": f"run {key}", **slow}),
                ("bash", {"command": f"run {key}"}),
                ("note", {"key": key}),
                ("look", {"key": key}),
                ("view_image", {"path": f"{key}.png"}),
            ]
        )
        raw = msgspec.json.encode({**arguments, **wake}).decode()
        if chance.random() < 0.08:
            name, raw = chance.choice(
                [("bash", "{"), ("bash", ""), ("bash", '{"command": 5}'), ("no_such_tool", "{}"), (name, raw + "}")]
            )
        return ToolCall(name, raw, provider="simulated")


def tools(world: World, host: Host) -> list[Any]:
    """The tools of a session; those that are functions belong to this process."""

    async def note(key: str) -> str:
        """Do something that must not be done twice."""
        return await _function(world, host, key)

    async def look(key: str) -> str:
        """Do something that is as good twice as once."""
        return await _function(world, host, "again " + key)

    return [harness.bash(), harness.view_image(), harness.tool(note), harness.tool(idempotent=True)(look)]


async def _function(world: World, host: Host, key: str) -> str:
    host.starting(f"function {key}")
    if host.dead:
        await trio.sleep_forever()
    # A branch that was forked before a call was translated makes that call itself: its effect is another one.
    world.effect(f"{key} of {host.session_id}")
    await trio.sleep(0.1 if world.calm else world.chance.choice([0.0, 0.1, 2.0, 20.0]))
    if world.chance.random() < 0.1:
        raise ValueError("the function fails")
    return f"did {key}"


class Commands:
    """The handler of commands: as the real one, it claims before it starts and finds again what it started."""

    type, version = "shell", 1

    def __init__(self, world: World, host: Host, limit: int) -> None:
        self._world, self._host, self.limit = world, host, limit

    async def start(self, operation: Operation, context: Context) -> Ended:
        self._host.starting(f"operation {operation.id}")
        if self._host.dead:
            await trio.sleep_forever()
        command = self._world.begin(operation.id)
        if self._world.chance.random() < 0.3:
            await trio.sleep(0.01)
        await context.running({"place": operation.id})
        return await self._watched(command)

    async def recover(self, operation: Operation, context: Context) -> Ended:
        command = self._world.commands.get(operation.id)
        if command is not None:
            if operation.status is Status.READY:
                await context.running({"place": operation.id})
            return await self._watched(command)
        if operation.status is not Status.READY or not context.same_boot:
            return Ended(Status.UNKNOWN, {"error": "the machine was restarted"})
        if context.cancelling:
            return Ended(Status.CANCELLED, {"output": ""})
        return await self.start(operation, context)

    async def cancel(self, operation: Operation) -> bool:
        command = self._world.commands.get(operation.id)
        match command.obeys if command is not None else "at once":
            case "by task":
                return False
            case "with an error":
                raise OSError("simulated: no such process")
            case "later" if command is not None:
                command.end_at(min(command.ends_at, trio.current_time() + 1.5), Status.CANCELLED)
            case "at once" if command is not None:
                command.end_at(trio.current_time(), Status.CANCELLED)
            case _:
                return command is not None
        return True

    async def _watched(self, command: Any) -> Ended:
        await command.wait()
        if command.lost:
            return Ended(Status.UNKNOWN, {"error": "the machine was restarted"})
        result = {"output": "some output", "exit_status": command.exit_status}
        return Ended(command.status, result if command.status is not Status.FAILED else {"error": "failed"})


class Images:
    """The handler of images: every path is one, with bytes of its own."""

    type, version, limit = "image", 1, 2

    def __init__(self, world: World) -> None:
        self._world = world

    async def start(self, operation: Operation, context: Context) -> Ended:
        await context.running()
        await trio.sleep(self._world.chance.choice([0.0, 0.1]))
        data = str(operation.spec.args["path"]).encode()
        result = {"digest": blob_digest(data), "media_type": "image/png", "width": 1, "height": 1, "size": len(data)}
        return Ended(Status.COMPLETED, result, blobs=(data,))

    async def recover(self, operation: Operation, context: Context) -> Ended:
        return await self.start(operation, context)

    async def cancel(self, operation: Operation) -> bool:
        return False


def manager(world: World, host: Host, limit: int) -> OperationManager:
    """The operations of one process. limit: commands at once."""
    return OperationManager([Commands(world, host, limit), Images(world), FunctionHandler(limit=max(2, limit))])
