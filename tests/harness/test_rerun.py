"""Sessions run again with recorded results."""

from __future__ import annotations

from pathlib import Path

import pytest

import harness
from harness.llm.model import ModelRequest, ModelResponse, Text, ToolCall
from operations import OperationSpec

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


async def test_images_of_messages_come_along(tmp_path: Path) -> None:
    async with harness.open_session(tmp_path / "s.db", model=Looks(), workspace=tmp_path) as session:
        (digest,) = await session.store.put_blobs([b"a picture"])
        await session.run(harness.Message("look", (harness.Image(digest, "image/png", 2, 2, 9),)))
    again = await harness.rerun(tmp_path / "s.db", session.id, model=Looks())
    assert [result.text for result in again.results] == ["b'a picture'"]


class Looks:
    name = "looks"

    async def respond(self, request: ModelRequest, *, emit: object) -> ModelResponse:
        return ModelResponse((Text(str(next(iter(request.blobs.values())))),))


async def test_each_run_has_the_settings_that_it_had(tmp_path: Path) -> None:
    class Tells:
        name = "tells"

        async def respond(self, request: ModelRequest, *, emit: object) -> ModelResponse:
            return ModelResponse((Text(request.instructions + " " + " ".join(tool.name for tool in request.tools)),))

    kept: dict[str, object] = {"model": Tells(), "workspace": tmp_path}
    async with harness.open_session(tmp_path / "s.db", tools=[], instructions="be kind", **kept) as session:  # type: ignore[arg-type]  # any options
        first = [(await session.run("one")).text, (await session.run("two")).text]
    opened = harness.open_session(
        tmp_path / "s.db",
        session_id=session.id,
        tools=[lucky_number],
        instructions="be brief",
        **kept,  # type: ignore[arg-type]  # any options
    )
    async with opened as session:
        first.append((await session.run("three")).text)
    assert first == ["be kind", "be kind", "be brief lucky_number"]
    again = await harness.rerun(tmp_path / "s.db", session.id, model=Tells())
    assert [result.text for result in again.results] == first
    with pytest.raises(harness.BadInput, match=r"model 'tells' cannot be made from its name. Pass model=\."):
        await harness.rerun(tmp_path / "s.db", session.id)


async def test_a_result_with_a_digest_of_its_own_is_no_image(tmp_path: Path) -> None:
    class Fingerprint:
        """A tool whose function says `digest` and means nothing that the store has."""

        name = "fingerprint"
        functions = {"fingerprint": lambda _: {"digest": "ab12", "text": "ab12"}}
        record = lucky_number.record

        def translate(self, arguments: object, workspace: str) -> tuple[OperationSpec, ...]:
            return (OperationSpec("function", 1, {"name": "fingerprint", "arguments": {}}),)

        present = lucky_number.present

    class Asks:
        name = "asks"

        async def respond(self, request: ModelRequest, *, emit: object) -> ModelResponse:
            if len(request.items) == 1:
                return ModelResponse((ToolCall("lucky_number", ""),))
            return ModelResponse((Text("done"),))

    tool = Fingerprint()
    tool.name = "lucky_number"
    session_id = await recorded(tmp_path, Asks(), tools=[tool])
    again = await harness.rerun(tmp_path / "s.db", session_id, model=Asks(), tools=[tool])
    assert [call.text for call in again.results[0].tool_calls] == ["ab12"]


async def test_a_session_without_a_run_is_not_run_again(tmp_path: Path) -> None:
    async with harness.open_session(tmp_path / "s.db", workspace=tmp_path) as session:
        pass
    with pytest.raises(harness.BadInput, match="has no run"):
        await harness.rerun(tmp_path / "s.db", session.id)


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
