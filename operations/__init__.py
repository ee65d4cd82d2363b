"""Executing work in the background: operations, their handlers, the manager.

Belongs here: the public names of this package.
Must not know: sessions, models, tools.
"""

from __future__ import annotations

from operations.group import OperationGroup
from operations.handlers import (
    FunctionHandler,
    ImageHandler,
    ShellHandler,
    SkillHandler,
    TimerHandler,
    default_handlers,
)
from operations.manager import OperationManager
from operations.operation import (
    TERMINAL,
    TRANSITIONS,
    Context,
    Ended,
    Handler,
    IllegalTransition,
    Operation,
    OperationSpec,
    Progress,
    Status,
    UnknownOperationType,
    Update,
    moved,
)
from operations.updates import Updates

__all__ = [
    "TERMINAL",
    "TRANSITIONS",
    "Context",
    "Ended",
    "FunctionHandler",
    "Handler",
    "IllegalTransition",
    "ImageHandler",
    "Operation",
    "OperationGroup",
    "OperationManager",
    "OperationSpec",
    "Progress",
    "ShellHandler",
    "SkillHandler",
    "Status",
    "TimerHandler",
    "UnknownOperationType",
    "Update",
    "Updates",
    "default_handlers",
    "moved",
]
