"""What a tool is, and the tools of one session by name: calls to operations and back.  Pure.

Belongs here: the `Tool` contract, reading a call's arguments, refusing bad ones in words a model can act on.
Must not know: how operations run, the disk, the network, or what any one tool does.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from harness.events import CallOutcome, ToolRecord, Wake
from harness.llm.model import Part, Text, ToolSchema
from harness.nesting import is_deeper
from harness.transcript import clean
from operations import Operation, OperationSpec, Status
from operations.wording import error_text as error_line

log = logging.getLogger("turnlog.tools")

EXCERPT_CHARS: Final = 200
"""Characters of a bad argument string that its rejection quotes."""

MOST_DEPTH: Final = 100
"""Arrays and objects inside one another in a call's arguments."""

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The narrowest rule for tool names among the providers."""

ARGUMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""The same for names of arguments."""


class ToolDefinitionError(ValueError):
    """A tool cannot be offered to a model as it is. Raised when it is made, never in the middle of a session."""


class Rejection(msgspec.Struct, frozen=True):
    """Why a call was not accepted, as the model reads it."""

    error: str


class Presented(msgspec.Struct, frozen=True):
    """The result of a call, as the model reads it."""

    outcome: CallOutcome
    parts: tuple[Part, ...]


class Tool(Protocol):
    """A capability the model sees. Everything but the functions is pure: it may be called again in a replay.

    functions: Python callables that its operations run, by name; empty for tools whose operations need none.
    """

    @property
    def name(self) -> str: ...

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]: ...

    def record(self) -> ToolRecord:
        """What the log keeps of it. The schema is the tool's own, without `wake`."""
        ...

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...] | Rejection:
        """The work that a call asks for, at least one operation."""
        ...

    def present(self, operations: Sequence[Operation]) -> Presented:
        """The result of a call all of whose operations have ended, in the order `translate` gave them."""
        ...


# --- arguments


def read_arguments(raw: str) -> dict[str, Any] | Rejection:
    """The JSON object that a model wrote. Nothing at all, or null, is no arguments; everything else is refused."""
    if not raw.strip():
        return {}
    try:
        encoded = raw.encode("utf-8", "replace")
        value = msgspec.json.decode(encoded)
        if is_deeper(encoded, MOST_DEPTH):
            raise RecursionError
    except RecursionError:
        return Rejection(f"the arguments are nested more than {MOST_DEPTH} levels deep: {excerpt(raw)}")
    except msgspec.DecodeError as error:
        return Rejection(f"the arguments are not valid JSON ({error}): {excerpt(raw)}")
    if value is None:
        return {}
    if not isinstance(value, dict):
        return Rejection(f"the arguments have to be a JSON object, not {_json_type(value)}: {excerpt(raw)}")
    return value


T = TypeVar("T")


def checked(arguments: dict[str, Any], shape: type[T]) -> T | Rejection:
    """`arguments` as `shape`, a msgspec struct that forbids unknown fields."""
    try:
        return fitted(arguments, shape)
    except msgspec.ValidationError as error:
        return Rejection(f"the arguments do not fit: {error}. Correct them and call again.")


def fitted(arguments: dict[str, Any], shape: type[T]) -> T:
    """The same, for arguments that have been checked. Raises msgspec.ValidationError."""
    return msgspec.convert(arguments, shape, str_keys=True)  # JSON has no other keys, whatever a dict declares


def excerpt(raw: str) -> str:
    """The beginning of a text, quoted and bounded."""
    return repr(raw if len(raw) <= EXCERPT_CHARS else raw[:EXCERPT_CHARS] + "...")


def _json_type(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), type(value).__name__)


WAKE_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "enum": [wake.value for wake in Wake],
    "description": (
        "When this call's result should wake you while other calls still run. each (default): when it lands. "
        "batch: only when every batch call of this response has ended, or one has failed. "
        "quiet: never by itself; you read it with whatever comes next."
    ),
}


def with_wake(schema: ToolSchema) -> ToolSchema:
    """The schema as the model sees it: with the optional argument `wake` that every tool has."""
    if "wake" in schema.parameters.get("properties", {}):  # an absent tool's, from the log
        return schema
    properties = {**schema.parameters.get("properties", {}), "wake": WAKE_SCHEMA}
    return msgspec.structs.replace(schema, parameters={**schema.parameters, "properties": properties})


def without_wake(record: ToolRecord) -> ToolRecord:
    """The record of a log as the tool's own, without the argument that the harness had added."""
    properties = dict(record.schema.parameters.get("properties", {}))
    properties.pop("wake", None)
    schema = msgspec.structs.replace(record.schema, parameters={**record.schema.parameters, "properties": properties})
    return msgspec.structs.replace(record, schema=schema)


def _take_wake(arguments: dict[str, Any]) -> tuple[dict[str, Any], Wake] | Rejection:
    rest = dict(arguments)
    value = rest.pop("wake", Wake.EACH.value)
    if value is None:
        value = Wake.EACH.value
    if value not in list(Wake):
        return Rejection(f"wake has to be one of each, batch and quiet, not {excerpt(str(value))}. Call again.")
    return rest, Wake(value)


# --- the tools of a session


class Translated(msgspec.Struct, frozen=True):
    """An accepted call: its arguments without `wake`, and the work it asks for."""

    arguments: dict[str, Any]
    wake: Wake
    specs: tuple[OperationSpec, ...]


class AbsentTool:
    """A tool that the log has and this process has not: its schema stays as it was sent, its calls are refused."""

    functions: Mapping[str, Callable[..., Any]] = {}

    def __init__(self, record: ToolRecord) -> None:
        self.name = record.schema.name
        self._record = record

    def record(self) -> ToolRecord:
        """What the log has of it, as the model sees it."""
        return self._record

    def translate(self, arguments: dict[str, Any], workspace: str) -> Rejection:
        """Always a refusal."""
        return Rejection(f"the tool {self.name!r} is not available in this process. Do without it.")

    def present(self, operations: Sequence[Operation]) -> Presented:
        """How the operations ended, as it stands in the log."""
        return Presented(worst(operations), (Text(ended_text(operations)),))


class Registry:
    """The tools of one session, by the names that the model uses."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        """Raises ToolDefinitionError for two tools of one name, or a tool that has an argument called `wake`."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            check_definition(tool)
            if tool.name in self._tools:
                raise ToolDefinitionError(f"two tools are called {tool.name!r}. Rename one.")
            self._tools[tool.name] = tool

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """Every tool's name, in the order given."""
        return tuple(self._tools)

    def absent(self, name: str) -> bool:
        """Whether a tool is known from the log only, so that nothing can run it here."""
        tool = self._tools.get(name)
        return tool is None or isinstance(tool, AbsentTool)

    def kind(self, name: str) -> str:
        """What kind of tool has that name, as its record says."""
        return self._tools[name].record().kind

    def records(self) -> tuple[ToolRecord, ...]:
        """What the log keeps of the tools, with schemas as the model sees them."""
        found = [tool.record() for tool in self._tools.values()]
        return tuple(msgspec.structs.replace(record, schema=with_wake(record.schema)) for record in found)

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Every Python callable that operations of these tools may need, by name."""
        return {name: function for tool in self._tools.values() for name, function in tool.functions.items()}

    def translate(self, name: str, raw_arguments: str, workspace: str) -> Translated | Rejection:
        """What a call asks for. Whatever is wrong with it comes back as a Rejection; nothing is raised."""
        tool = self._tools.get(name)
        if tool is None:
            return Rejection(f"there is no tool {excerpt(name)}. The tools are: {', '.join(self.names) or '(none)'}.")
        arguments = read_arguments(raw_arguments)
        if isinstance(arguments, Rejection):
            return arguments
        taken = _take_wake(arguments)
        if isinstance(taken, Rejection):
            return taken
        rest, wake = taken
        try:
            specs = tool.translate(rest, workspace)
        except Exception as error:
            log.exception("the tool %r could not translate a call", name)
            return Rejection(f"the tool {name!r} failed: {error_line(error)}. Do without it.")
        if isinstance(specs, Rejection):
            return specs
        if not isinstance(specs, tuple) or not all(isinstance(spec, OperationSpec) for spec in specs):
            log.error("the tool %r translated a call into %r, which is no tuple of OperationSpecs", name, specs)
            return Rejection(f"the tool {name!r} failed: what it asked for is no work. Do without it.")
        return Translated(rest, wake, specs) if specs else Rejection(f"the tool {name!r} asked for no work.")

    def present(self, name: str, operations: Sequence[Operation]) -> Presented:
        """The model-facing result of an ended call."""
        tool = self._tools.get(name)
        if tool is None:  # the session's tools were changed while the call ran
            return Presented(worst(operations), (Text(clean(ended_text(operations))),))
        try:
            presented = tool.present(operations)
            if not isinstance(presented, Presented):
                raise TypeError(f"present has to return a Presented, not {type(presented).__name__}")
            return Presented(presented.outcome, tuple(_cleaned(part) for part in presented.parts))
        except Exception as error:
            log.exception("the tool %r could not present a result", name)
            told = f"the tool {name!r} could not tell its result ({error_line(error)})"
            return Presented(CallOutcome.FAILED, (Text(clean(f"{told}\n{ended_text(operations)}")),))


def _cleaned(part: Part) -> Part:
    return Text(clean(part.text)) if isinstance(part, Text) else part


def check_definition(tool: Tool) -> None:
    """Raises ToolDefinitionError when a provider would refuse the tool, naming it and the reason."""
    if not NAME.fullmatch(tool.name):
        raise ToolDefinitionError(
            f"tool name {tool.name!r} is not allowed: use 1 to 64 ASCII letters, digits, underscores and hyphens."
        )
    try:
        msgspec.json.decode(msgspec.json.encode(tool.record()), type=ToolRecord)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ToolDefinitionError(f"the record of tool {tool.name!r} cannot be written to a log: {error}.") from error
    parameters = tool.record().schema.parameters
    if parameters.get("type") != "object" or not isinstance(parameters.get("properties", {}), dict):
        raise ToolDefinitionError(f"the schema of tool {tool.name!r} has to be of type object at its top level.")
    if not isinstance(tool, AbsentTool):
        _check_arguments(tool.name, parameters)


def check_seconds(timeout_s: Any) -> None:
    """Raises ToolDefinitionError unless it is None or a time-out that a call can have."""
    if timeout_s is None:
        return
    number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if not (number and 0 < timeout_s < math.inf):
        raise ToolDefinitionError(f"timeout_s has to be a positive number of seconds, not {timeout_s!r}.")


def _check_arguments(name: str, parameters: Mapping[str, Any]) -> None:
    for keyword in ("oneOf", "anyOf", "allOf"):
        if keyword in parameters:
            raise ToolDefinitionError(
                f"the schema of tool {name!r} has {keyword} at its top level, which providers refuse. "
                "Move it into a property, or say it in the description."
            )
    for argument in parameters.get("properties", {}):
        if argument == "wake":
            raise ToolDefinitionError(f"tool {name!r} has an argument 'wake', which is reserved. Rename it.")
        if not ARGUMENT.fullmatch(argument):
            raise ToolDefinitionError(
                f"argument {argument!r} of tool {name!r} is not allowed: use 1 to 64 ASCII letters, digits, "
                "underscores, hyphens and dots."
            )


# --- what presenters share

_OUTCOMES: Final = {
    Status.COMPLETED: CallOutcome.OK,
    Status.FAILED: CallOutcome.FAILED,
    Status.CANCELLED: CallOutcome.CANCELLED,
    Status.UNKNOWN: CallOutcome.UNKNOWN,
}


def worst(operations: Sequence[Operation]) -> CallOutcome:
    """The outcome of a call whose operations ended so: the least certain one counts."""
    order = [CallOutcome.OK, CallOutcome.CANCELLED, CallOutcome.FAILED, CallOutcome.UNKNOWN]
    return max((_OUTCOMES[operation.status] for operation in operations), key=order.index)


def error_text(operations: Sequence[Operation]) -> str:
    """What went wrong, one line an operation that did not complete."""
    lines = []
    for operation in operations:
        said = str((operation.result or {}).get("error") or "")
        match operation.status:
            case Status.CANCELLED:
                lines.append(f"cancelled{f': {said}' if said else ''}")
            case Status.UNKNOWN:
                lines.append(f"outcome unknown: {said or 'it may or may not have happened'}")
            case Status.FAILED:
                lines.append(f"failed: {said or 'no reason given'}")
            case _:
                lines.append("completed")
    return "\n".join(lines)


def ended_text(operations: Sequence[Operation]) -> str:
    """What can be told of operations whose tool is not at hand: the text they returned, or how they ended."""
    results = [operation.result or {} for operation in operations]
    texts = [str(result.get("text") or result.get("output") or "") for result in results]
    return "\n".join(text for text in texts if text) or error_text(operations)
