"""What a model may say to a Python function: a struct and a JSON Schema from its signature.  Pure.

Belongs here: annotations and defaults, and refusing a parameter that no model could give.
Must not know: tools, calls, or how functions are run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, get_type_hints

import msgspec

from harness.tools.registry import ToolDefinitionError

REF: Final = "#/$defs/{name}"


def declared_by(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the annotations are: of a functools.partial, and of an object that can be called, not on it itself."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def arguments_of(function: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    """A struct with a field for each parameter. Raises ToolDefinitionError naming the parameter that cannot be one."""
    try:
        hints = get_type_hints(declared_by(function), include_extras=True)
        parameters = inspect.signature(function).parameters
    except (NameError, AttributeError, TypeError, ValueError) as error:
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


def schema_of(shape: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """The JSON Schema of that struct, its own part at the top level and the types it uses under `$defs`.

    Raises ToolDefinitionError that names the parameter whose type has none.
    """
    try:
        (found,), components = msgspec.json.schema_components([shape], ref_template=REF)
    except Exception as error:  # the types are the caller's: resolving their own annotations raises what it likes
        _refuse_parameter(shape, name)
        raise ToolDefinitionError(f"the parameters of tool {name!r} have no JSON Schema together: {error}.") from error
    # By its reference and not by its name, which a type of the caller's may have as well.
    schema = dict(components.pop(found["$ref"].removeprefix(REF.format(name=""))))
    schema.pop("title", None)
    schema.setdefault("properties", {})
    if components:
        schema["$defs"] = components
    return schema


def _refuse_parameter(shape: type[msgspec.Struct], name: str) -> None:
    for field in msgspec.structs.fields(shape):
        try:
            msgspec.json.schema(field.type)
        except Exception as error:
            kind = getattr(field.type, "__qualname__", None) or repr(field.type)
            reason = (str(error) or type(error).__name__).splitlines()[-1].rstrip(".")
            raise ToolDefinitionError(
                f"parameter {field.encode_name!r} of tool {name!r} has the type {kind}, which a model cannot write as "
                f"JSON ({reason}). Take text or a number instead."
            ) from error
