"""The `view_image` tool: look at an image file.  Pure.

Belongs here: its schema, its arguments, and how a read image is shown to the model.
Must not know: how files are read or what bytes an image has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from harness.events import CallOutcome, ToolRecord
from harness.llm.model import Image, Text, ToolSchema
from harness.tools.registry import Presented, Rejection, checked, error_text, worst
from operations import Operation, OperationSpec, Status


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model may say."""

    path: str


class ViewImage:
    """The tool."""

    name = "view_image"
    functions: Mapping[str, Callable[..., Any]] = {}

    def record(self) -> ToolRecord:
        """What the log keeps of it."""
        return ToolRecord(SCHEMA, "view_image")

    def translate(self, arguments: dict[str, Any], workspace: str) -> tuple[OperationSpec, ...] | Rejection:
        """One `image` operation."""
        call = checked(arguments, Arguments)
        if isinstance(call, Rejection):
            return call
        if not call.path.strip() or "\0" in call.path:
            return Rejection("path is empty or has a NUL character. Give the path of an image file.")
        return (OperationSpec("image", 1, {"path": call.path, "cwd": workspace}, idempotent=True),)

    def present(self, operations: Sequence[Operation]) -> Presented:
        """A line that names the image, and the image."""
        (operation,) = operations
        result = operation.result or {}
        if operation.status is not Status.COMPLETED:
            return Presented(worst(operations), (Text(error_text(operations)),))
        image = Image(
            digest=str(result["digest"]),
            media_type=str(result["media_type"]),
            width=int(result.get("width") or 0),
            height=int(result.get("height") or 0),
            size=int(result.get("size") or 0),
        )
        name = result.get("name") or operation.spec.args.get("path")
        label = Text(f"{name}: {image.media_type}, {image.width} x {image.height}")
        return Presented(CallOutcome.OK, (label, image))


SCHEMA: Final = ToolSchema(
    name="view_image",
    description="Look at a PNG, JPEG, GIF or WebP file of the workspace.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Path of the file, relative to the workspace."}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
