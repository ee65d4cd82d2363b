"""Signatures of functions as tools: what a model may say to them, and what is refused in one line when it is made."""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

import harness
from harness.tools.registry import Registry, Rejection, ToolDefinitionError, Translated


class Arguments(msgspec.Struct):
    """A caller's own type, which happens to be called as the harness calls its struct."""

    street: str


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


def accepting(annotation: object) -> Callable[..., str]:
    def given(x: Any) -> str:
        return repr(x)

    given.__annotations__["x"] = annotation
    return given


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (trio.Event, "Event"),  # whose own annotations name what is imported for a type checker only
        (object, "object"),
        (Callable[[int], int], "Callable"),
        (Path, "Path"),
        (threading.Lock, ""),
        (Mixed, "Mixed"),
        (complex, "complex"),
    ],
)
def test_a_parameter_that_no_json_can_carry_is_named_with_its_type_on_one_line(annotation: object, kind: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        harness.tool(accepting(annotation))
    line = str(caught.value)
    assert line.startswith(f"parameter 'x' of tool 'given' has the type {kind}")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"timeout_s": "5"}, "timeout_s has to be a positive number of seconds, not '5'."),
        ({"timeout_s": True}, "timeout_s has to be a positive number of seconds, not True."),
        ({"timeout_s": float("nan")}, "timeout_s has to be a positive number of seconds, not nan."),
        ({"timeout_s": 0}, "timeout_s has to be a positive number of seconds, not 0."),
        ({"name": 5}, "the name of a tool has to be text, not 5."),
        ({"description": b"x"}, "the description of a tool has to be text, not b'x'."),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_when_the_tool_is_made(options: dict[str, Any], line: str) -> None:
    for make in (harness.tool, harness.aio.tool):
        with pytest.raises(ToolDefinitionError) as caught:
            make(**options)(accepting(int))
        assert str(caught.value) == line


def test_tools_that_come_with_the_harness_refuse_options_the_same_way() -> None:
    for timeout_s in ("5", -1, float("inf")):
        with pytest.raises(ToolDefinitionError, match="timeout_s has to be a positive number of seconds"):
            harness.bash(timeout_s=timeout_s)  # type: ignore[arg-type]  # that is the point
    for folders in ("skills", 5, [5]):
        with pytest.raises(ToolDefinitionError, match="folders of skills have to be a list of paths"):
            harness.skills(folders)  # type: ignore[arg-type]  # that is the point


def test_what_cannot_be_called_is_no_tool() -> None:
    with pytest.raises(ToolDefinitionError, match="5 is no function"):
        harness.tool(5)  # type: ignore[call-overload]  # that is the point


def test_keys_that_are_numbers_are_read_from_the_text_that_json_has_for_them() -> None:
    for tool in (harness.tool(accepting(dict[int, str])), harness.aio.tool(accepting(dict[int, str]))):
        registry = Registry([tool])
        made = registry.translate("given", '{"x": {"1": "one"}}', "/w")
        assert isinstance(made, Translated)
        assert tool.functions["given"](made.arguments) == {"text": "{1: 'one'}"}
        assert isinstance(registry.translate("given", '{"x": {"one": "1"}}', "/w"), Rejection)


def test_a_type_may_be_called_arguments() -> None:
    made = harness.tool(accepting(Arguments))
    parameters = made.record().schema.parameters
    assert (parameters["type"], parameters["required"]) == ("object", ["x"])
    (ours,) = parameters["$defs"].values()
    assert ours["required"] == ["street"]
    assert made.functions["given"]({"x": {"street": "Elm"}}) == {"text": "Arguments(street='Elm')"}
