"""`@harness.tool`: a Python function as a tool.  Pure.

Belongs here: the schema from a signature, and turning what a function returns into something a model reads.
Must not know: how or when functions are run.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

import msgspec

from harness.events import CallOutcome, ToolRecord
from harness.llm.model import Text, ToolSchema
from harness.tools.registry import (
    Presented,
    Rejection,
    ToolDefinitionError,
    check_definition,
    checked,
    error_text,
    without_wake,
    worst,
)
from harness.transcript import clean, cut_middle
from operations import Operation, OperationSpec, Status

P = ParamSpec("P")
R = TypeVar("R")

RESULT_CHARS: Final = 200_000
"""Characters of a function's result that the log keeps; what is longer is cut in its middle."""


class FunctionTool(Generic[P, R]):
    """A function that a model may call; for Python code it stays the function that it was."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_s: float | None = None,
        idempotent: bool = False,
    ) -> None:
        if timeout_s is not None and not (math.isfinite(timeout_s) and timeout_s > 0):
            raise ToolDefinitionError(f"timeout_s has to be a positive number of seconds, not {timeout_s!r}.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ToolDefinitionError(f"tool {function.__name__!r} yields; a result comes whole. Return it instead.")
        self._function = function
        declared = _declared(function)
        self.name: str = str(name or getattr(function, "__name__", "") or getattr(declared, "__name__", ""))
        self.__doc__ = function.__doc__ if declared is function else declared.__doc__ or function.__doc__
        self._timeout_s, self._idempotent = timeout_s, idempotent
        self._shape = _arguments_of(function, self.name)
        self._schema = ToolSchema(self.name, description or inspect.getdoc(self) or self.name, _schema(self._shape))
        check_definition(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The callable that the `function` operation runs: from arguments to a serializable result."""
        return {self.name: self._runner()}

    def record(self) -> ToolRecord:
        """What the log keeps of it: the schema; the function itself has to come from the caller again."""
        return ToolRecord(self._schema, "function")

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...] | Rejection:
        """One `function` operation."""
        call = checked(arguments, self._shape)
        if isinstance(call, Rejection):
            return call
        args = {"name": self.name, "arguments": arguments}
        return (OperationSpec("function", 1, args, self._timeout_s, self._idempotent),)

    def present(self, operations: Sequence[Operation]) -> Presented:
        """What the function returned, as text."""
        return _presented(operations)

    def _runner(self) -> Callable[[dict[str, Any]], Any]:
        function, shape = self._function, self._shape
        call = cast("Callable[..., Any]", function)

        def bound(arguments: dict[str, Any]) -> dict[str, Any]:
            values = msgspec.convert(arguments, shape)
            return {name: getattr(values, name) for name in shape.__struct_fields__}

        if inspect.iscoroutinefunction(function):

            async def run_async(arguments: dict[str, Any]) -> dict[str, Any]:
                return _result(await call(**bound(arguments)))

            return run_async

        def run(arguments: dict[str, Any]) -> dict[str, Any] | Awaitable[dict[str, Any]]:
            value = call(**bound(arguments))
            return _later(value) if inspect.isawaitable(value) else _result(value)

        return run


class RecordedFunction:
    """A function that a log tells of, for a rerun that answers its calls from there; its arguments go unchecked."""

    functions: Mapping[str, Callable[..., Any]] = {}

    def __init__(self, record: ToolRecord) -> None:
        self.name = record.schema.name
        self._record = without_wake(record)

    def record(self) -> ToolRecord:
        """What the log has of it."""
        return self._record

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...]:
        """One `function` operation."""
        return (OperationSpec("function", 1, {"name": self.name, "arguments": arguments}),)

    def present(self, operations: Sequence[Operation]) -> Presented:
        """What the function returned then, as text."""
        return _presented(operations)


def _presented(operations: Sequence[Operation]) -> Presented:
    (operation,) = operations
    if operation.status is not Status.COMPLETED:
        return Presented(worst(operations), (Text(error_text(operations)),))
    return Presented(CallOutcome.OK, (Text(str((operation.result or {}).get("text", ""))),))


async def _later(value: Awaitable[object]) -> dict[str, Any]:
    """The result of a plain function that only makes a coroutine, such as one that wraps an async function."""
    return _result(await value)


def _result(value: object) -> dict[str, Any]:
    if value is None:
        text = ""
    elif isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(value).decode()
    return {"text": cut_middle(clean(text), RESULT_CHARS)}


def _declared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the annotations are: of a functools.partial, and of an object that can be called, not on it itself."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def _arguments_of(function: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    """A struct with a field for each parameter. Raises ToolDefinitionError naming the parameter that cannot be one."""
    try:
        hints = get_type_hints(_declared(function), include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, TypeError, ValueError) as error:
        raise ToolDefinitionError(f"the annotations of tool {name!r} cannot be read: {error}.") from error
    fields: list[Any] = []
    for parameter in parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            kind = parameter.kind.description
            raise ToolDefinitionError(
                f"tool {name!r} has the {kind} parameter {parameter.name!r}, which a model cannot name. Spell it out."
            )
        annotation = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            fields.append((parameter.name, annotation, _default(parameter, name)))
    try:
        return msgspec.defstruct("Arguments", fields, frozen=True, forbid_unknown_fields=True, kw_only=True)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ToolDefinitionError(f"the parameters of tool {name!r} cannot be offered to a model: {error}.") from error


def _default(parameter: inspect.Parameter, name: str) -> Any:
    try:
        msgspec.json.encode(parameter.default)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"the default of {parameter.name!r} in tool {name!r} cannot be written as JSON: {error}."
        ) from error
    if isinstance(parameter.default, (list, dict, set)):
        return msgspec.field(default_factory=lambda: type(parameter.default)(parameter.default))
    return parameter.default


def _schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (found,), components = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    except (TypeError, RuntimeError) as error:
        raise ToolDefinitionError(f"an annotation has no JSON Schema: {error}") from error
    schema = dict(components.pop("Arguments", found))
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if components:
        schema["$defs"] = components
    return schema


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout_s: float | None = None,
    idempotent: bool = False,
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a Python function a tool: `@harness.tool`, or `@harness.tool(name=..., ...)`.

    The annotations give the schema (anything msgspec knows), the docstring the description. An async function runs in
    the session's trio loop, a plain one in a thread. It returns text, or anything msgspec writes as JSON.
    timeout_s: seconds a call may take. idempotent: a call that a crash left in doubt may be run again.
    Raises ToolDefinitionError, at once, for a name, parameter or default that a model cannot be offered.
    """

    def made(of: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(of, name=name, description=description, timeout_s=timeout_s, idempotent=idempotent)

    return made if function is None else made(function)
