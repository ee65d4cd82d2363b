"""Finding skills in a workspace.

Belongs here: the folders searched and their order, reading a SKILL.md's front matter, and saying what was left out.
Must not know: how a skill is shown to a model.

Order, for the list and for loading alike: .agents/skills, then .claude/skills, then .turnlog/skills; within one, by
folder name. Of two skills with one name (capitals aside) the first counts, and the other is named in a warning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.tools.registry import ToolDefinitionError
from harness.tools.skill import Skill
from harness.transcript import clean
from operations.handlers.files import NotReadable, read_plain

FOLDERS: Final = (".agents/skills", ".claude/skills", ".turnlog/skills")
MAX_BYTES: Final = 1_000_000
NAME_CHARS: Final = 100


class SkillsRequest:
    """`harness.skills()`: look for skills when the session opens. folders: relative to the workspace, or absolute."""

    def __init__(self, folders: Sequence[str] = FOLDERS) -> None:
        usable = isinstance(folders, Iterable) and not isinstance(folders, str)
        if not usable or not all(isinstance(folder, str) for folder in folders):
            raise ToolDefinitionError(f"folders of skills have to be a list of paths as text, not {folders!r}.")
        self.folders = tuple(folders)


class Found(msgspec.Struct, frozen=True):
    """The skills of a workspace, and one line for each file that was left out or read leniently."""

    skills: tuple[Skill, ...]
    warnings: tuple[str, ...]


def find_skills(workspace: Path, folders: Sequence[str] = FOLDERS) -> Found:
    """Every skill under the workspace. Blocks on the disk; never raises for what it finds there."""
    skills: dict[str, Skill] = {}
    warnings: list[str] = []
    for folder in folders:
        for path in _candidates(workspace / folder, warnings):
            skill = _read(path, warnings)
            if skill is None:
                continue
            first = skills.setdefault(skill.name.casefold(), skill)
            if first is not skill:
                warnings.append(f"{path}: skill {skill.name!r} is hidden by {first.path}")
    return Found(tuple(skills.values()), tuple(map(clean, warnings)))


def _candidates(folder: Path, warnings: list[str]) -> list[Path]:
    try:
        return sorted(child / "SKILL.md" for child in folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        warnings.append(f"{folder}: cannot be listed ({error.strerror})")
        return []


def _read(path: Path, warnings: list[str]) -> Skill | None:
    if str(path) != clean(str(path)):
        warnings.append(f"{path}: its path is not UTF-8, so that no log can name it; rename it")
        return None
    try:
        data = read_plain(str(path), MAX_BYTES)
    except NotReadable as error:
        if not _is_absent(path, error):
            warnings.append(str(error))
        return None
    return _parse(path, data, warnings)


def _is_absent(path: Path, error: NotReadable) -> bool:
    """Whether there is no file to speak of. A link to nothing is one: somebody meant something by it."""
    if isinstance(error.__cause__, FileNotFoundError):
        return path.parent.exists() and not path.is_symlink()
    return isinstance(error.__cause__, NotADirectoryError)


def _parse(path: Path, data: bytes, warnings: list[str]) -> Skill | None:
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if "\ufffd" in text:
        line = text[: text.index("\ufffd")].count("\n") + 1
        warnings.append(f"{path}:{line}: is not UTF-8 throughout; bad bytes were replaced")
    front = _front_matter(text)
    if front is None:
        warnings.append(f"{path}:1: has no front matter between two lines of ---")
        return None
    fields = _fields(front, path, warnings)
    description = clean(fields.get("description", "")).strip()
    if not description:
        warnings.append(f"{path}:1: its front matter has no description")
        return None
    name = " ".join(clean(fields.get("name", "")).split())
    if not name:
        name = path.parent.name
        warnings.append(f"{path}:1: its front matter has no name; its folder's is used")
    digest = hashlib.blake2b(data, digest_size=16).hexdigest()
    return Skill(name[:NAME_CHARS], description, str(path), digest)


def _front_matter(text: str) -> str | None:
    """The lines between the first two lines of ---; blank lines and HTML comments may stand before them."""
    lines = text.split("\n")
    start = 0
    while start < len(lines) and (not lines[start].strip() or _is_comment(lines[start])):
        start += 1
    if start == len(lines) or lines[start].rstrip() != "---":
        return None
    for end in range(start + 1, len(lines)):
        if lines[end].rstrip() == "---":
            return "\n".join(lines[start + 1 : end])
    return None


def _is_comment(line: str) -> bool:
    return line.strip().startswith("<!--") and line.strip().endswith("-->")


def _fields(front: str, path: Path, warnings: list[str]) -> dict[str, Any]:
    import yaml  # slow to import, and most sessions have no skills

    try:
        # BaseLoader keeps every scalar a string: a skill may be called `no` or 2026-01-01.
        value: object = yaml.load(front, Loader=yaml.BaseLoader) or {}  # it makes nothing but plain values
    except (yaml.YAMLError, RecursionError):
        value = None
    # A list is text that happens to begin with a bracket; as a list of lists it could be made to fill the memory.
    if isinstance(value, dict) and all(isinstance(value.get(key, ""), str) for key in ("name", "description")):
        return value
    warnings.append(f"{path}:2: its front matter is not YAML; it was read line by line")
    return _line_by_line(front)


def _line_by_line(front: str) -> dict[str, str]:
    """`key: everything after the first colon`, which is what most unquoted descriptions mean."""
    fields: dict[str, str] = {}
    for line in front.split("\n"):
        key, colon, value = line.partition(":")
        if colon and key.strip() == key and key:
            fields.setdefault(key, value.strip().strip("'\""))
    return fields
