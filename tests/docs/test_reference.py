"""docs/reference.md has an entry for everything public, and what an entry says of names, defaults and ranges is so.

An entry is what a list item begins with, in backticks: a name, or a call with all parameters and their defaults; or a
heading that is a name, with a table of parameters or fields under it; or a line of the table of errors.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

import harness
import harness.aio
import operations
import store
from harness.validation import check_limits, check_policy, check_settings

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
MODULES = {"harness.aio": harness.aio, "store": store, "operations": operations, "harness": harness}
PUBLIC = [(module, name) for module in (harness, harness.aio, store, operations) for name in module.__all__]

HANDED_OUT = {"Session", "Run", "Events", "Deltas", "SqliteStore", "SessionState", "OperationGroup", "Updates"}
"""Nobody but the package calls these to make one, or with arguments."""

INTERNAL = {"Session.close", "Deltas.put", "Deltas.end", "Updates.add", "Updates.close"} | {
    f"OperationGroup.{name}" for name in ("forget", "give_up_all")
}
"""Public to other modules of the package only."""

WHOLE = [
    *(harness.Session, harness.Run, harness.Events, harness.Deltas, harness.Replay, harness.Scripted),
    *(harness.Model, harness.Tool, harness.Store, store.Lease),
    *(operations.OperationManager, operations.OperationGroup, operations.Updates),
    *(operations.Handler, operations.Context),
]
"""Classes of which every member has an entry, as every structure has."""


class Parameter(NamedTuple):
    name: str
    keyword_only: bool
    default: Any


class Row(NamedTuple):
    of: str
    name: str
    default: str
    range: str


def items() -> list[str]:
    """The list items of the page, each on one line."""
    found = re.findall(r"^- (.+?)(?=^- |^$|^#)", PAGE.read_text() + "\n", re.M | re.S)
    return [" ".join(item.split()) for item in found]


def table_rows() -> Iterator[tuple[str, list[str], list[str]]]:
    """(the heading above, the table's head, the cells) of each line of a table."""
    heading, head = "", list[str]()
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.strip("# `")
        if not line.startswith("|"):
            head = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif not cells[0].startswith("---"):
            yield heading, head, cells


def field_rows() -> list[Row]:
    rows = []
    for heading, head, cells in table_rows():
        if head[0] in ("parameter", "field"):
            where = cells[2] if head[2] == "range" else ""
            rows.append(Row(heading, cells[0].strip("`"), cells[1].strip("`"), where))
    return rows


def errors() -> dict[str, str]:
    """The errors of the table, with the base that it gives."""
    return {cells[0].strip("`"): cells[1].strip("`") for _, head, cells in table_rows() if head[0] == "error"}


@cache
def written() -> dict[str, str | None]:
    """Every entry's name, with the parameters as they are written, or None."""
    found: dict[str, str | None] = {}
    for item in items():
        start = re.match(r"`[^`]+`(, `[^`]+`)*", item)
        for code in re.findall(r"`([^`]+)`", start[0]) if start else []:
            call = re.fullmatch(r"([\w.]+)\((.*)\)", code)
            found[call[1] if call else code] = call[2] if call else None
    return found


@cache
def entries() -> frozenset[str]:
    return frozenset({*written(), *errors(), *(row.of for row in field_rows())})


def value_of(entry: str) -> Any:
    """What an entry is about."""
    if entry in MODULES:
        return MODULES[entry]
    prefix = next((prefix for prefix in MODULES if entry.startswith(prefix + ".")), None)
    value: Any = MODULES[prefix or "harness"]
    for name in (entry.removeprefix(f"{prefix}.") if prefix else entry).split("."):
        value = getattr(value, name)
    return value


def real_parameters(of: Any, *, bound: bool) -> list[Parameter]:
    """bound: the first one is `self`."""
    fields = {field.name: field for field in msgspec.structs.fields(of)} if is_struct(of) else {}
    found = []
    for parameter in list(inspect.signature(of).parameters.values())[1 if bound else 0 :]:
        default = parameter.default
        if parameter.name in fields and fields[parameter.name].default_factory is not msgspec.NODEFAULT:
            default = fields[parameter.name].default_factory()
        keyword_only = parameter.kind is parameter.KEYWORD_ONLY
        found.append(Parameter(parameter.name, keyword_only, default))
    return found


def parsed(parameters: str) -> list[Parameter]:
    """Parameters as the page writes them."""
    made = cast("ast.FunctionDef", ast.parse(f"def f({parameters}): pass").body[0]).args
    plain = [*made.posonlyargs, *made.args]
    defaults = [None] * (len(plain) - len(made.defaults)) + list(made.defaults)
    found = [Parameter(arg.arg, False, evaluated(node)) for arg, node in zip(plain, defaults, strict=True)]
    found += [Parameter(a.arg, True, evaluated(d)) for a, d in zip(made.kwonlyargs, made.kw_defaults, strict=True)]
    return found + ([Parameter(made.kwarg.arg, False, inspect.Parameter.empty)] if made.kwarg else [])


def evaluated(node: ast.expr | None) -> Any:
    return inspect.Parameter.empty if node is None else default_of(ast.unparse(node))


def default_of(text: str) -> Any:
    names = {"Status": operations.Status} | {name: getattr(harness, name) for name in ("StopReason", "Coalesce")}
    names |= {name: getattr(harness, name) for name in ("Usage", "Limits", "ModelSettings")}
    return eval(text, names) if text else inspect.Parameter.empty


def is_struct(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


def is_a(value: Any, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def members(of: Any) -> list[str]:
    """Its own public methods and properties."""
    fields = set(of.__struct_fields__) if is_struct(of) else set()
    kinds = (property, classmethod, staticmethod)
    names = [name for name, value in vars(of).items() if inspect.isfunction(value) or isinstance(value, kinds)]
    return [name for name in names if not name.startswith("_") and name not in fields]


def test_everything_public_has_an_entry() -> None:
    missing = []
    for module, name in PUBLIC:
        again = module is not harness and getattr(harness, name, None) is getattr(module, name)
        entry = name if module is harness or again else f"{module.__name__}.{name}"
        if entry not in entries():
            missing.append(entry)
    assert missing == []


def test_every_entry_is_there() -> None:
    of_instances = {f"Session.{name}" for name in ("id", "store", "warnings")} | {"Run.id"}
    of_instances |= {"Replay.session_id", "Replay.events"}
    of_instances |= {f"operations.Handler.{name}" for name in ("type", "version", "limit")}
    for entry in entries() - of_instances:
        value_of(entry)
    assert of_instances <= entries()


def needs_parameters(name: str, value: Any) -> bool:
    if inspect.isfunction(value):
        return True
    is_protocol = getattr(value, "_is_protocol", False)
    other = any(is_a(value, base) for base in (BaseException, enum.Enum, harness.Event))
    return isinstance(value, type) and not is_protocol and not other and name not in HANDED_OUT


def test_every_public_call_and_structure_is_there_with_its_parameters() -> None:
    tables = {row.of for row in field_rows()}
    for module, name in PUBLIC:
        twin = getattr(harness, name, None)
        if twin is getattr(module, name) and module is not harness:
            continue
        if module is harness.aio and twin is not None:
            continue  # see the test of the two
        if needs_parameters(name, getattr(module, name)):
            entry = name if module is harness else f"{module.__name__}.{name}"
            assert entry in tables or written()[entry] is not None, entry


@pytest.mark.parametrize("entry", sorted(entry for entry, parameters in written().items() if parameters is not None))
def test_the_parameters_of_an_entry_are_the_real_ones(entry: str) -> None:
    value = value_of(entry)
    owner = value_of(entry.rpartition(".")[0]) if "." in entry else None
    bound = inspect.isfunction(value) and isinstance(owner, type)
    parameters = written()[entry]
    assert parameters is not None
    assert parsed(parameters) == real_parameters(value, bound=bound)


@pytest.mark.parametrize("of", sorted({row.of for row in field_rows()}))
def test_the_parameters_of_a_table_are_the_real_ones(of: str) -> None:
    shown = [(row.name, default_of(row.default)) for row in field_rows() if row.of == of]
    assert shown == [(real.name, real.default) for real in real_parameters(value_of(of), bound=False)]


@pytest.mark.parametrize("of", [*WHOLE, *(value for m, n in PUBLIC if is_struct(value := getattr(m, n)))], ids=str)
def test_every_member_has_an_entry(of: Any) -> None:
    module = next(m for m, name in PUBLIC if getattr(m, name) is of)
    prefix = "" if module is harness else f"{module.__name__}."
    shown = {name for name in members(of) if f"{of.__name__}.{name}" not in INTERNAL}
    assert {name for name in shown if f"{prefix}{of.__name__}.{name}" not in entries()} == set()


ENUMS = {value for m, n in PUBLIC if is_a(value := getattr(m, n), enum.Enum)}


@pytest.mark.parametrize("of", sorted(ENUMS, key=str), ids=str)
def test_every_value_of_an_enumeration_is_named(of: Any) -> None:
    (item,) = [item for item in items() if re.match(rf"`(operations\.)?{of.__name__}`", item)]
    assert set(re.findall(r"`([A-Z_]+)`", item)) == set(of.__members__)


def test_every_error_is_in_the_table_with_its_base() -> None:
    raised = {value for module, name in PUBLIC if is_a(value := getattr(module, name), BaseException)}
    assert {value_of(entry) for entry in errors()} == raised
    for entry, base in errors().items():
        assert value_of(entry).__mro__[1].__name__ == base, entry


def test_every_fact_that_an_error_carries_is_named() -> None:
    rows = {cells[0].strip("`"): cells for _, head, cells in table_rows() if head[0] == "error"}
    for entry, (_, base, said) in rows.items():
        said += rows.get(base.strip("`"), ["", "", ""])[2]  # what a base has, all have
        init = vars(value_of(entry)).get("__init__")
        facts = set(re.findall(r"self\.(\w+)\b(?=[^=\n(]* = )", inspect.getsource(init))) if init else set()
        assert {fact for fact in facts if f"`{fact}`" not in said} == set(), entry


OUTSIDE: dict[str, list[Any]] = {
    "": [],
    "above 0": [0, -1],
    "0 or more": [-0.5, float("nan"), float("inf")],
    "above 0, at most 1": [0, 1.5],
    "each above 0": [{"bash": 0}],
}
INSIDE: dict[str, list[Any]] = {
    "": [],
    "above 0": [1],
    "0 or more": [0, 0.5],
    "above 0, at most 1": [0.1, 1],
    "each above 0": [{"bash": 1}],
}
CHECKS: dict[str, Any] = {"Policy": check_policy, "Limits": check_limits, "ModelSettings": check_settings}


@pytest.mark.parametrize(
    "row", [row for row in field_rows() if row.of in CHECKS], ids=lambda row: f"{row.of}.{row.name}"
)
def test_the_range_of_a_field_is_the_one_that_is_held(row: Row) -> None:
    made = value_of(row.of)
    for value in INSIDE[row.range]:
        CHECKS[row.of](made(**{row.name: value}))
    for value in OUTSIDE[row.range]:
        with pytest.raises(harness.BadInput, match=row.name):
            CHECKS[row.of](made(**{row.name: value}))


TWINS = [name for name in harness.aio.__all__ if hasattr(harness, name)]


@pytest.mark.parametrize("name", TWINS)
def test_what_asyncio_programs_call_takes_the_arguments_of_its_namesake(name: str) -> None:
    ours, native = getattr(harness.aio, name), getattr(harness, name)
    if inspect.isfunction(native):
        assert real_parameters(ours, bound=False) == real_parameters(native, bound=False)
        return
    documented = [member for member in members(native) if f"{name}.{member}" not in INTERNAL]
    for member in documented:
        a, b = getattr(ours, member), getattr(native, member)
        assert not inspect.isfunction(b) or real_parameters(a, bound=True) == real_parameters(b, bound=True)
