"""Keys stay where they are: in the environment of the process that sends them."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.runtime import hidden_variables

KEY = "key-that-nobody-may-see"


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def test_a_command_does_not_see_the_models_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("SOMETHING_ELSE", "visible")
    async with harness.open_session(tmp_path / "s.db", model="runbook", workspace=tmp_path) as session:
        result = await session.run("# All\n\n~~~sh\nenv\n~~~\n")
    assert "SOMETHING_ELSE=visible" in result.tool_calls[0].text
    assert "OPENAI_API_KEY" not in result.tool_calls[0].text
    assert KEY.encode() not in everything_in(tmp_path)


def test_a_variable_that_commands_need_can_be_let_through() -> None:
    assert {"OPENAI_API_KEY", "ANTHROPIC_API_KEY"} <= hidden_variables({})
    passed = hidden_variables({"TURNLOG_PASS_ENV": "OPENAI_API_KEY, MISTRAL_API_KEY"})
    assert "OPENAI_API_KEY" not in passed and "ANTHROPIC_API_KEY" in passed
