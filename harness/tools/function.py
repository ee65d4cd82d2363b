"""`@harness.tool`: a Python function as a tool.  Pure.

Belongs here: a function as a `Tool`, and turning what it returns into something a model reads.
Must not know: how or when functions are run, or how a signature is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, overload

import msgspec

from harness.events import CallOutcome, ToolRecord
from harness.llm.model import Text, ToolSchema
from harness.tools.registry import (
    Presented,
    Rejection,
    ToolDefinitionError,
    check_definition,
    check_seconds,
    checked,
    error_text,
    fitted,
    without_wake,
    worst,
)
from harness.tools.signature import arguments_of, declared_by, schema_of
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
        if not callable(function):
            raise ToolDefinitionError(f"{function!r} is no function, so it cannot be a tool.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ToolDefinitionError(f"tool {function.__name__!r} yields; a result comes whole. Return it instead.")
        check_seconds(timeout_s)
        for said, value in (("name", name), ("description", description)):
            if value is not None and not isinstance(value, str):
                raise ToolDefinitionError(f"the {said} of a tool has to be text, not {value!r}.")
        self._function = function
        declared = declared_by(function)
        self.name: str = name or str(getattr(function, "__name__", "") or getattr(declared, "__name__", ""))
        self.__doc__ = function.__doc__ if declared is function else declared.__doc__ or function.__doc__
        self._timeout_s, self._idempotent = timeout_s, idempotent
        self._shape = arguments_of(function, self.name)
        parameters = schema_of(self._shape, self.name)
        self._schema = ToolSchema(self.name, description or inspect.getdoc(self) or self.name, parameters)
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
            values = fitted(arguments, shape)
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
