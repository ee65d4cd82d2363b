"""Translators: what a model may send, what it is told, and what tools are refused when they are made."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import harness
from harness.events import CallOutcome, ToolRecord, Wake
from harness.llm.model import Image, Text, ToolSchema
from harness.skill_files import find_skills
from harness.tools.bash import Bash
from harness.tools.registry import Presented, Registry, Rejection, ToolDefinitionError, Translated
from harness.tools.skill import Skill, SkillTool
from harness.tools.view_image import ViewImage
from harness.transcript import cut_middle
from operations import Operation, OperationSpec, Status


@harness.tool
def list_orders() -> list[int]:
    """List the orders."""
    return [1, 2]


REGISTRY = Registry([Bash(), ViewImage(), list_orders])


@pytest.mark.parametrize("raw", ["", "  ", "{}", "null"])
def test_nothing_is_no_arguments(raw: str) -> None:
    made = REGISTRY.translate("list_orders", raw, "/w")
    assert isinstance(made, Translated)
    assert (made.arguments, made.wake) == ({}, Wake.EACH)


BAD = [
    ("bash", '{"command":"ls"', "the arguments are not valid JSON"),
    ("bash", '{"command":"ls",}', "the arguments are not valid JSON"),
    ("bash", '{"command":"ls"}{"command":"pwd"}', "the arguments are not valid JSON"),
    ("bash", "[" * 100_000, "the arguments are nested more than 100 levels deep"),
    ("bash", "[]", "the arguments have to be a JSON object, not an array"),
    ("bash", '"ls"', "the arguments have to be a JSON object, not a string"),
    ("bash", "5", "the arguments have to be a JSON object, not a number"),
    ("bash", "true", "the arguments have to be a JSON object, not a boolean"),
    ("bash", "null", "the arguments do not fit: Object missing required field `command`"),
    ("bash", "{}", "the arguments do not fit: Object missing required field `command`"),
    ("bash", '{"command":5}', "the arguments do not fit: Expected `str`, got `int`"),
    ("bash", '{"command":"ls","x":1}', "the arguments do not fit: Object contains unknown field `x`"),
    ("bash", '{"command":" "}', "command is empty"),
    ("bash", '{"command":"a\\u0000b"}', "command contains a NUL character"),
    ("bash", '{"command":"ls","timeout_s":-1}', "timeout_s has to be a positive number of seconds"),
    ("bash", '{"command":"ls","timeout_s":"5"}', "the arguments do not fit: Expected `float | null`, got `str`"),
    ("bash", '{"command":"ls","max_output":0}', "max_output has to be a positive number of characters"),
    ("bash", '{"command":"ls","wake":"never"}', "wake has to be one of each, batch and quiet, not 'never'"),
    ("bash", '{"command":"ls","wake":["each"]}', "wake has to be one of each, batch and quiet"),
    ("view_image", '{"path":""}', "path is empty"),
    ("no_such", "{}", "there is no tool 'no_such'. The tools are: bash, view_image, list_orders."),
    ("", "{}", "there is no tool ''"),
    ("x" * 1000, "{}", "there is no tool 'xxx"),
]


@pytest.mark.parametrize(("name", "raw", "line"), BAD, ids=[f"{name[:12]} {raw[:40]!r}" for name, raw, _ in BAD])
def test_a_bad_call_is_an_answer_that_says_what_was_wrong(name: str, raw: str, line: str) -> None:
    made = REGISTRY.translate(name, raw, "/w")
    assert isinstance(made, Rejection)
    assert made.error.startswith(line)
    assert len(made.error) < 700


def test_wake_is_taken_out_of_the_arguments() -> None:
    made = REGISTRY.translate("bash", '{"command": "ls", "wake": "quiet"}', "/w")
    assert isinstance(made, Translated)
    assert (made.arguments, made.wake) == ({"command": "ls"}, Wake.QUIET)
    assert made.specs[0].args == {"command": "ls", "cwd": "/w", "max_output": 50_000}
    for record in REGISTRY.records():
        assert record.schema.parameters["properties"]["wake"]["enum"] == ["each", "batch", "quiet"]


def ended(status: Status, seconds: float | None = 0.5, **result: Any) -> Operation:
    return Operation("op", OperationSpec("shell", 1, {}), status, result=result, seconds=seconds)


@pytest.mark.parametrize(
    ("operation", "outcome", "text"),
    [
        (ended(Status.COMPLETED, exit_status=0, output="hi\n"), "ok", "exit status 0 (0.50 s)\n\nhi"),
        (ended(Status.COMPLETED, exit_status=0, output=""), "ok", "exit status 0 (0.50 s)\n\n(no output)"),
        (ended(Status.COMPLETED, None, exit_status=1, output=""), "failed", "exit status 1\n\n(no output)"),
        (ended(Status.COMPLETED, signal="SIGKILL", output="x"), "failed", "killed by SIGKILL (0.50 s)\n\nx"),
        (ended(Status.FAILED, 5.0, timed_out=True, output="x"), "failed", "timed out after 5.00 s\n\nx"),
        (ended(Status.CANCELLED, output="x"), "cancelled", "cancelled (0.50 s)\n\nx"),
        (ended(Status.UNKNOWN, None, error="gone"), "unknown", "outcome unknown: gone\n\n(no output)"),
        (ended(Status.FAILED, error="no such folder"), "failed", "failed: no such folder (0.50 s)\n\n(no output)"),
        (
            ended(Status.COMPLETED, exit_status=0, output="x", strays=[12, 13], truncated=True, output_path="/o"),
            "ok",
            "exit status 0 (0.50 s)\n\nx\n[the full output is in /o]\n"
            "[still running, left behind by the command: process 12, 13; to end it: kill 12 13]",
        ),
    ],
)
def test_a_finished_command_says_first_how_it_ended(operation: Operation, outcome: str, text: str) -> None:
    presented = REGISTRY.present("bash", [operation])
    assert (presented.outcome, presented.parts) == (outcome, (Text(text),))


@pytest.mark.parametrize("truncated", [False, True])
def test_a_long_result_names_its_file_also_where_its_middle_is_cut_out(truncated: bool) -> None:
    middle = "\n[... 150,000 bytes left out here; the full output is in /o ...]\n" if truncated else ""
    output = "a" * 25_000 + middle + "b" * 24_000
    operation = ended(Status.COMPLETED, exit_status=3, output=output, truncated=truncated, output_path="/o")
    (text,) = REGISTRY.present("bash", [operation]).parts
    assert isinstance(text, Text)
    shown = cut_middle(text.text, 400)
    assert shown.startswith("exit status 3") and shown.endswith("b\n[the full output is in /o]")


def test_an_image_is_shown_by_its_digest_and_a_bad_one_is_an_error() -> None:
    image = {"digest": "ab", "media_type": "image/png", "width": 3, "height": 2, "size": 70, "name": "a.png"}
    presented = REGISTRY.present("view_image", [ended(Status.COMPLETED, **image)])
    assert presented.parts == (Text("a.png: image/png, 3 x 2"), Image("ab", "image/png", 3, 2, 70))
    presented = REGISTRY.present("view_image", [ended(Status.FAILED, error="it is a folder")])
    assert (presented.outcome, presented.parts) == (CallOutcome.FAILED, (Text("failed: it is a folder"),))


# --- definitions


@pytest.mark.parametrize("name", ["admin.tools.list", "a/b", "with space", "x" * 90, "naïve"])
def test_a_name_that_no_provider_takes_is_refused(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="is not allowed"):

        @harness.tool(name=name)
        def refused() -> str:
            """Nothing."""
            return ""


def star(*args: int) -> str:
    return ""


def stars(**kwargs: int) -> str:
    return ""


def positional(a: int, /) -> str:
    return ""


def unresolved(a: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821  # that is the point
    return ""


def not_json(a: object = object()) -> str:
    return ""


def waker(wake: str) -> str:
    return ""


def no_schema(a: Callable[[], int]) -> str:
    return ""


def foreign(naïve: int) -> str:
    return ""


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (star, "tool 'star' has the variadic positional parameter 'args'"),
        (stars, "tool 'stars' has the variadic keyword parameter 'kwargs'"),
        (positional, "tool 'positional' has the positional-only parameter 'a'"),
        (unresolved, "the annotations of tool 'unresolved' cannot be read"),
        (not_json, "the default of 'a' in tool 'not_json' cannot be written as JSON"),
        (waker, "tool 'waker' has an argument 'wake', which is reserved"),
        (no_schema, "parameter 'a' of tool 'no_schema' has the type Callable"),
        (foreign, "argument 'naïve' of tool 'foreign' is not allowed"),
    ],
)
def test_a_function_that_a_model_cannot_be_offered_is_refused_at_once(function: Callable[..., str], line: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        harness.tool(function)
    assert str(caught.value).startswith(line)


class Custom:
    """A tool of a user's own, which works; its schema is in the test's hand."""

    name = "custom"
    functions: dict[str, Callable[..., Any]] = {}

    def __init__(self, **parameters: Any) -> None:
        self._record = ToolRecord(ToolSchema(self.name, "Do it.", parameters), "custom")

    def record(self) -> ToolRecord:
        return self._record

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...]:
        return (OperationSpec("shell", 1, {"command": "true", "cwd": workspace}),)

    def present(self, operations: Any) -> Presented:
        return Presented(CallOutcome.OK, ())


X = {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}}


def test_a_schema_that_no_provider_takes_is_refused_and_a_recursive_one_is_not() -> None:
    Registry([Bash(), Custom(**X, **{"$defs": {"X": X}}), deliver_parcel])
    for parameters, line in (
        ({"type": "string"}, "of type object"),
        ({}, "of type object"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, "of type object"),
        ({"oneOf": [{"type": "object"}, {"type": "object"}]}, "of type object"),
        ({"enum": ["A"], "type": "null"}, "of type object"),
        ({"type": "object", "properties": []}, "of type object"),
        ({"type": "object", "anyOf": [{"required": ["x"]}]}, "anyOf at its top level"),
        ({"type": "object", "properties": {"a b": {}}}, "argument 'a b' of tool 'custom' is not allowed"),
        ({"type": "object", "properties": {"": {}}}, "argument '' of tool 'custom' is not allowed"),
    ):
        with pytest.raises(ToolDefinitionError, match=line):
            Registry([Bash(), Custom(**parameters)])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="two tools are called 'bash'"):
        Registry([Bash(), Bash()])


class Address(msgspec.Struct):
    street: str
    number: int = 1


@harness.tool(name="deliver", description="Deliver a parcel.", timeout_s=5, idempotent=True)
def deliver_parcel(to: Address, tags: list[str] | None = None, fragile: bool = False) -> dict[str, Any]:
    return {"to": to.street, "tags": tags, "fragile": fragile}


def test_annotations_give_the_schema_and_arguments_arrive_as_declared() -> None:
    schema = deliver_parcel.record().schema
    assert (schema.name, schema.description) == ("deliver", "Deliver a parcel.")
    assert schema.parameters["required"] == ["to"]
    assert schema.parameters["properties"]["to"] == {"$ref": "#/$defs/Address"}
    assert schema.parameters["$defs"]["Address"]["required"] == ["street"]
    made = Registry([deliver_parcel]).translate("deliver", '{"to": {"street": "Elm"}}', "/w")
    assert isinstance(made, Translated)
    assert (made.specs[0].timeout_s, made.specs[0].idempotent) == (5, True)
    run = deliver_parcel.functions["deliver"]
    assert run({"to": {"street": "Elm"}, "fragile": True}) == {"text": '{"to":"Elm","tags":null,"fragile":true}'}


@pytest.mark.parametrize(
    ("returned", "text"),
    [(None, ""), ("", ""), ("a\ud800b", "a\ufffdb"), ({"a": [1]}, '{"a":[1]}'), (5, "5")],
)
def test_what_a_function_returns_is_text(returned: Any, text: str) -> None:
    def give() -> Any:
        return returned

    assert harness.tool(give).functions["give"]({}) == {"text": text}


def test_a_very_long_result_of_a_function_is_bounded_where_it_is_made() -> None:
    def give() -> str:
        return "x" * 10_000_000

    assert len(harness.tool(give).functions["give"]({})["text"]) < 201_000


# --- skills


def skill_file(folder: Path, data: bytes) -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(data)


GOOD = b"---\nname: %s\ndescription: Do it.\n---\nThe text.\n"


def test_skills_are_read_whatever_their_line_ends_and_marks(tmp_path: Path) -> None:
    base = tmp_path / ".agents/skills"
    plain = GOOD % b"plain"
    skill_file(base / "a", plain)
    skill_file(base / "b", b"\xef\xbb\xbf" + GOOD % b"bom")
    skill_file(base / "c", (GOOD % b"crlf").replace(b"\n", b"\r\n"))
    skill_file(base / "d", b"\xef\xbb\xbf" + (GOOD % b"both").replace(b"\n", b"\r\n"))
    skill_file(base / "e", b"\n<!-- a comment -->\n" + GOOD % b"late")
    skill_file(base / "f", b"---\nname: no\ndescription: A bool in YAML.\n---\n")
    skill_file(base / "g", b"---\nname: 2026-01-01\ndescription: A date in YAML.\n---\n")
    found = find_skills(tmp_path)
    assert [skill.name for skill in found.skills] == ["plain", "bom", "crlf", "both", "late", "no", "2026-01-01"]
    assert found.warnings == ()


def test_a_skill_that_cannot_be_read_is_named_with_its_reason_and_the_rest_load(tmp_path: Path) -> None:
    base = tmp_path / ".claude/skills"
    skill_file(base / "a", b"---\nname: colon\ndescription: Make it: now\n---\n")
    skill_file(base / "b", b"no front matter\n")
    skill_file(base / "c", b"---\n---\n")
    skill_file(base / "d", b"---\nname: bytes\ndescription: \xff\n---\n")
    skill_file(base / "e", b"---\ndescription: Nameless.\n---\n")
    (base / "f" / "SKILL.md").mkdir(parents=True)
    skill_file(base / "g", GOOD % b"good")
    skill_file(base / "h", b"---\nname: long\ndescription: " + b"x" * 20_000 + b"\n---\n")
    found = find_skills(tmp_path)
    assert [skill.name for skill in found.skills] == ["colon", "bytes", "e", "good", "long"]
    assert found.skills[0].description == "Make it: now"
    reasons = [warning.removeprefix(str(base)) for warning in found.warnings]
    assert reasons == [
        "/a/SKILL.md:2: its front matter is not YAML; it was read line by line",
        "/b/SKILL.md:1: has no front matter between two lines of ---",
        "/c/SKILL.md:1: its front matter has no description",
        "/d/SKILL.md:3: is not UTF-8 throughout; bad bytes were replaced",
        "/e/SKILL.md:1: its front matter has no name; its folder's is used",
        "/f/SKILL.md: is a folder, not a file",
    ]
    assert len(SkillTool(found.skills).record().schema.description) < 2000


def test_a_skill_that_no_reader_expects_costs_that_skill_and_no_session(tmp_path: Path) -> None:
    base = tmp_path / ".agents/skills"
    described = b"---\nname: %s\ndescription: %s\n---\n"
    skill_file(base / "brackets", described % (b"brackets", b"[" * 5000))
    skill_file(base / "half", described % (b"half", b'"a \\ud800 b"'))
    skill_file(base / "lines", described % (b'"a\\n- b"', b"x"))
    skill_file(base / "list", described % (b"list", b"[draft]"))
    references = b"".join(b"%c: &%c [%s]\n" % (at, at, b",".join([b"*%c" % (at - 1)] * 9)) for at in b"bcdefghij")
    skill_file(base / "memory", b"---\na: &a x\n" + references + described[4:] % (b"memory", b"*j"))
    (base / "nothing").mkdir()
    (base / "nothing" / "SKILL.md").symlink_to(tmp_path / "moved")
    (base / "outer").symlink_to(tmp_path / "moved")
    (base / "pipe").mkdir()
    os.mkfifo(base / "pipe" / "SKILL.md")
    skill_file(base / os.fsdecode(b"w\xff"), GOOD % b"bytes")
    skill_file(base / "z", GOOD % b"good")
    (base / "no-skill").mkdir()
    (base / "README.md").write_text("no skill either")
    found = find_skills(tmp_path)
    assert [skill.name for skill in found.skills] == ["brackets", "half", "a - b", "list", "memory", "good"]
    assert [skill.description for skill in found.skills][1:5] == ["a \ufffd b", "x", "[draft]", "*j"]
    Registry([SkillTool(found.skills)])
    reasons = [warning.removeprefix(str(base)) for warning in found.warnings]
    by_line = "SKILL.md:2: its front matter is not YAML; it was read line by line"
    assert reasons == [
        f"/brackets/{by_line}",
        f"/list/{by_line}",
        f"/memory/{by_line}",
        "/nothing/SKILL.md: no such file",
        "/outer/SKILL.md: no such file",
        "/pipe/SKILL.md: is a pipe, not a file",
        "/w\ufffd/SKILL.md: its path is not UTF-8, so that no log can name it; rename it",
    ]


def test_of_two_skills_with_one_name_the_first_counts_and_the_other_is_named(tmp_path: Path) -> None:
    for place in (".agents/skills/tdd", ".claude/skills/tdd", ".turnlog/skills/other"):
        skill_file(tmp_path / place, GOOD % b"tdd")
    skill_file(tmp_path / ".agents/skills/up", GOOD % b"TDD")
    found = find_skills(tmp_path)
    assert [skill.path for skill in found.skills] == [str(tmp_path / ".agents/skills/tdd/SKILL.md")]
    assert len(found.warnings) == 3 and all("is hidden by" in warning for warning in found.warnings)
    made = SkillTool(found.skills).translate({"name": "Tdd"}, "/w")
    assert not isinstance(made, Rejection) and made[0].args["path"] == found.skills[0].path


def test_a_skill_that_has_changed_says_so() -> None:
    tool = SkillTool([Skill("tdd", "Test first.", "/s/SKILL.md", "00")])
    presented = tool.present([ended(Status.COMPLETED, text="Write a test.", changed=True, files=["a.sh"], folder="/s")])
    assert presented.parts == (
        Text(
            "(This skill has changed since the session was opened.)\nWrite a test.\n\nFiles of this skill, in /s: a.sh"
        ),
    )
    assert isinstance(tool.translate({"name": "nope"}, "/w"), Rejection)
