"""The types of operation that there are, one file each.

Belongs here: the list of them.
Must not know: how any of them works.
"""

from __future__ import annotations

from collections.abc import Collection

from operations.handlers.function import FunctionHandler
from operations.handlers.image import ImageHandler
from operations.handlers.shell import ShellHandler
from operations.handlers.skill import SkillHandler
from operations.handlers.timer import TimerHandler
from operations.operation import Handler


def default_handlers(*, hidden_env: Collection[str] = ()) -> tuple[Handler, ...]:
    """One new handler of every type: shell, function, image, skill, timer.

    hidden_env: environment variables that commands do not get.
    """
    return (ShellHandler(hidden_env=hidden_env), FunctionHandler(), ImageHandler(), SkillHandler(), TimerHandler())


__all__ = ["FunctionHandler", "ImageHandler", "ShellHandler", "SkillHandler", "TimerHandler", "default_handlers"]
