"""The `skill` tool: read one of the instructions that the workspace offers.  Pure.

Belongs here: its schema, which lists the skills, and how a read skill is shown.
Must not know: where skills are found on disk (`harness.skill_files` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from harness.events import CallOutcome, ToolRecord
from harness.llm.model import Text, ToolSchema
from harness.tools.registry import Presented, Rejection, checked, error_text, excerpt, worst
from operations import Operation, OperationSpec, Status


class Skill(msgspec.Struct, frozen=True):
    """One skill: path is its SKILL.md, digest the blake2b-128 of that file's bytes when it was found."""

    name: str
    description: str
    path: str
    digest: str


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model may say."""

    name: str


class SkillTool:
    """The tool, for these skills."""

    name = "skill"
    functions: Mapping[str, Callable[..., Any]] = {}

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.skills = tuple(skills)
        self._by_name = {skill.name.casefold(): skill for skill in self.skills}

    def record(self) -> ToolRecord:
        """What the log keeps of it: the skills as they were found."""
        return ToolRecord(_schema(self.skills), "skill", {"skills": msgspec.to_builtins(self.skills)})

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...] | Rejection:
        """One `skill` operation."""
        call = checked(arguments, Arguments)
        if isinstance(call, Rejection):
            return call
        skill = self._by_name.get(call.name.casefold())
        if skill is None:
            names = ", ".join(skill.name for skill in self.skills) or "(none)"
            return Rejection(f"there is no skill {excerpt(call.name)}. The skills are: {names}.")
        args = {"path": skill.path, "name": skill.name, "digest": skill.digest}
        return (OperationSpec("skill", 1, args, idempotent=True),)

    def present(self, operations: Sequence[Operation]) -> Presented:
        """The skill's text, where its files are, and whether it is no longer what the session was opened with."""
        (operation,) = operations
        result = operation.result or {}
        if operation.status is not Status.COMPLETED:
            return Presented(worst(operations), (Text(error_text(operations)),))
        lines = []
        if result.get("changed"):
            lines.append("(This skill has changed since the session was opened.)")
        lines.append(str(result.get("text") or "(empty)"))
        if files := result.get("files"):
            lines.append(f"\nFiles of this skill, in {result.get('folder')}: {', '.join(map(str, files))}")
        return Presented(CallOutcome.OK, (Text("\n".join(lines)),))


DESCRIPTION_CHARS = 500
"""Characters of one skill's description that the tool's description shows, since every turn re-sends it."""


def _schema(skills: Sequence[Skill]) -> ToolSchema:
    lines = [f"- {skill.name}: {_short(skill.description)}" for skill in skills]
    return ToolSchema(
        name="skill",
        description="Read the instructions of a skill before you do what it is about. Skills:\n" + "\n".join(lines),
        parameters={
            "type": "object",
            "properties": {"name": {"type": "string", "description": "The skill's name."}},
            "required": ["name"],
            "additionalProperties": False,
        },
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= DESCRIPTION_CHARS else line[:DESCRIPTION_CHARS] + "..."
