"""Sessions run again with recorded results."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.llm.model import ModelRequest, ModelResponse, Text, ToolCall

PROMPT = "# One\n\n~~~sh\necho one; sleep 0.2\n~~~\n\n~~~sh\necho two\n~~~\n\n# Two\n\n~~~sh\nexit 3\n~~~\n"


@harness.tool
def lucky_number() -> int:
    """Give a number."""
    return 7


class OneByOne:
    """A model that makes the same calls, one a turn."""

    name = "one-by-one"
    commands = ("echo one; sleep 0.2", "echo two", "exit 3")

    async def respond(self, request: ModelRequest, *, emit: object) -> ModelResponse:
        made = sum(isinstance(item, harness.AssistantItem) for item in request.items)
        if made < len(self.commands):
            return ModelResponse((ToolCall("bash", f'{{"command": "{self.commands[made]}"}}'),))
        return ModelResponse((Text("done"),))


async def recorded(folder: Path, model: object = "runbook", **options: object) -> str:
    async with harness.open_session(folder / "s.db", model=model, workspace=folder, **options) as session:  # type: ignore[arg-type]  # any options
        await session.run(PROMPT)
        return session.id


async def test_the_same_model_gets_the_same_results_and_nothing_is_executed(tmp_path: Path) -> None:
    session_id = await recorded(tmp_path)
    (tmp_path / "s.db.operations").rename(tmp_path / "moved")
    again = await harness.rerun(tmp_path / "s.db", session_id)
    (result,) = again.results
    assert (again.unmatched, result.turns, result.outcome) == ((), 3, "completed")
    assert "3 commands, 1 failed" in result.text
    assert not (tmp_path / "s.db.operations").exists()


async def test_another_model_is_measured_on_the_recorded_results(tmp_path: Path) -> None:
    session_id = await recorded(tmp_path)
    again = await (await harness.replay(tmp_path / "s.db", session_id)).rerun(model=OneByOne())
    assert (again.turns, again.unmatched) == (4, ())
    assert [call.outcome for call in again.results[0].tool_calls] == ["ok", "ok", "failed"]


async def test_what_the_log_has_no_result_for_is_named_or_run(tmp_path: Path) -> None:
    session_id = await recorded(tmp_path)

    class Other(OneByOne):
        commands = ("echo one; sleep 0.2", "echo new")

    again = await harness.rerun(tmp_path / "s.db", session_id, model=Other())
    assert [call.outcome for call in again.results[0].tool_calls] == ["ok", "failed"]
    assert len(again.unmatched) == 1 and "echo new" in again.unmatched[0]
    again = await harness.rerun(tmp_path / "s.db", session_id, model=Other(), execute=["shell"], into=tmp_path / "t.db")
    assert [call.outcome for call in again.results[0].tool_calls] == ["ok", "ok"]
    assert [entry.id for entry in await harness.sessions(tmp_path / "t.db")] == [again.session_id]


async def test_functions_answer_from_the_log_without_being_given(tmp_path: Path) -> None:
    class Asks:
        name = "asks"

        async def respond(self, request: ModelRequest, *, emit: object) -> ModelResponse:
            if len(request.items) == 1:
                return ModelResponse((ToolCall("lucky_number", ""),))
            return ModelResponse((Text(str(request.items[-1])),))

    session_id = await recorded(tmp_path, Asks(), tools=[lucky_number])
    again = await harness.rerun(tmp_path / "s.db", session_id, model=Asks())
    assert [call.text for call in again.results[0].tool_calls] == ["7"]
    with pytest.raises(harness.UnknownSession):
        await harness.rerun(tmp_path / "s.db", "nobody")
