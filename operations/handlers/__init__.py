"""The types of operation that there are, one file each.

Belongs here: the list of them.
Must not know: how any of them works.
"""

from __future__ import annotations

from operations.handlers.function import FunctionHandler
from operations.handlers.image import ImageHandler
from operations.handlers.shell import ShellHandler
from operations.handlers.skill import SkillHandler
from operations.handlers.timer import TimerHandler
from operations.operation import Handler


def default_handlers() -> tuple[Handler, ...]:
    """One new handler of every type: shell, function, image, skill, timer."""
    return (ShellHandler(), FunctionHandler(), ImageHandler(), SkillHandler(), TimerHandler())


__all__ = ["FunctionHandler", "ImageHandler", "ShellHandler", "SkillHandler", "TimerHandler", "default_handlers"]
