"""The tools that come with the harness, as a caller asks for them.

Belongs here: one function a tool, for the public API.
Must not know: how the tools work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.skill_files import FOLDERS, SkillsRequest
from harness.tools.bash import Bash
from harness.tools.view_image import ViewImage

NAMES: Final = ("bash", "view_image", "skill")
"""The tools of a session whose caller chose none."""


def bash(*, timeout_s: float | None = None) -> Bash:
    """The tool `bash`. timeout_s: seconds a command may take when the call does not say."""
    return Bash(timeout_s=timeout_s)


def view_image() -> ViewImage:
    """The tool `view_image`."""
    return ViewImage()


def skills(folders: Sequence[str] = FOLDERS) -> SkillsRequest:
    """The tool `skill`, for the skills found when the session opens. folders: absolute, or in the workspace."""
    return SkillsRequest(folders)
