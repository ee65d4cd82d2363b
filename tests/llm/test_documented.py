"""The page on models tells a custom model's author every field and every value there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.llm import model
from harness.llm.model import ErrorKind, StopReason

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
SECTION = PAGE.partition("## A model of your own")[2].partition("\n## ")[0]
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", SECTION))))

STRUCTS = (
    *(model.ModelRequest, model.ToolSchema, model.ModelSettings, model.UserItem, model.AssistantItem),
    *(model.ToolResultItem, model.Text, model.Image, model.Reasoning, model.ToolCall, model.ModelResponse),
    *(model.Usage, model.TextDelta, model.ReasoningDelta, model.ToolCallDelta, model.AttemptDropped),
)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_field_that_a_model_gets_or_gives_is_named(struct: type[model.Text]) -> None:
    assert struct.__name__ in WORDS
    assert set(struct.__struct_fields__) <= WORDS


def test_every_stop_reason_and_kind_of_error_is_named() -> None:
    assert {reason.name for reason in StopReason} <= WORDS
    assert not [kind for kind in ErrorKind if f"| `{kind.value}` |" not in PAGE]
