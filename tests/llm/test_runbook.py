"""The runbook model: what it starts, what it waits for, what it says. A tiny harness of our own plays the commands."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from harness.llm.model import (
    AssistantItem,
    Delta,
    Item,
    ModelRequest,
    StopReason,
    Text,
    ToolCall,
    ToolResultItem,
    UserItem,
)
from harness.llm.runbook import Runbook, reply
from harness.llm.runbook_answer import Outcome, read_result, table
from tests.llm.shapes import asking, joined, text_of, user

OK = "exit status 0 (0.50 s)\n\n"
RUNNING = "still running: its result will come in a later message"


class Play:
    """A session with the runbook, without a harness: results are given by hand."""

    def __init__(self, *items: Item) -> None:
        self.items = list(items)
        self.turns = 0
        self.calls: list[str] = []

    def ask(self, **fields: Any) -> list[str] | str:
        """One turn: the commands that it starts, or the text that it says."""
        output = reply(asking(*self.items, **fields))
        self.turns += 1
        named = tuple(
            msgspec.structs.replace(part, call_id=f"t{self.turns}c{index}") if isinstance(part, ToolCall) else part
            for index, part in enumerate(output)
        )
        self.items.append(AssistantItem(named, "runbook"))
        self.calls = [part.call_id for part in named if isinstance(part, ToolCall)]
        if self.calls:
            return [json.loads(part.arguments)["command"] for part in named if isinstance(part, ToolCall)]
        (text,) = named
        assert isinstance(text, Text)
        return text.text

    def give(self, *results: str, failed: bool = False) -> Play:
        for call_id, text in zip(self.calls, results, strict=True):
            self.items.append(ToolResultItem(call_id, "bash", (Text(text),), failed))
        return self

    def late(self, call_id: str, text: str) -> Play:
        self.items.append(user(f"Result of call {call_id} (bash):\n{text}"))
        return self


BOOK = """\
Intro.
```sh
echo zero
```
# One
```sh
echo a | tr a b
```
text
```bash
false
```
# Two (continue)
```sh
exit 3
```
# Three
```sh
echo c
```
"""


def test_each_heading_is_one_turn_of_quiet_calls() -> None:
    output = reply(asking(user(BOOK.replace("false", "true"))))
    assert output == (ToolCall("bash", '{"command":"echo zero","wake":"quiet"}'),)
    play = Play(user(BOOK.replace("false", "true")))
    assert play.ask() == ["echo zero"]
    assert play.give(OK + "zero").ask() == ["echo a | tr a b", "true"]
    assert play.give(OK + "b", OK + "(no output)").ask() == ["exit 3"]
    assert play.give("exit status 3 (0.01 s)\n\n(no output)").ask() == ["echo c"]
    answer = play.give(OK + "one\nc|d\n\n[the full output is in /tmp/x]").ask()
    assert answer == (
        "| command | exit | seconds | last output line |\n"
        "| --- | --- | --- | --- |\n"
        "| echo zero | 0 | 0.50 | zero |\n"
        "| echo a \\| tr a b | 0 | 0.50 | b |\n"
        "| true | 0 | 0.50 | (no output) |\n"
        "| exit 3 | 3 | 0.01 | (no output) |\n"
        "| echo c | 0 | 0.50 | c\\|d |\n"
        "\n"
        "5 commands, 1 failed."
    )


def test_a_failure_ends_the_runbook_and_says_where() -> None:
    play = Play(user(BOOK))
    play.ask()
    play.give(OK).ask()
    answer = play.give(OK, "exit status 1 (0.10 s)\n\n(no output)").ask()
    assert answer.endswith(
        '3 commands, 1 failed. The heading "One" ended the runbook. '
        'Not reached: "Two (continue)", "Three" (2 commands).'
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "timed out after 5.00 s\n\nx",
        "killed by SIGKILL (0.1 s)",
        "cancelled (1 s)",
        "outcome unknown: x",
        "",
        "command is empty. Say what to run.",
    ],
)
def test_everything_that_is_not_exit_status_0_is_a_failure(wrong: str) -> None:
    play = Play(user("# A\n```sh\nx\n```\n# B\n```sh\ny\n```"))
    play.ask()
    assert '1 failed. The heading "A" ended' in play.give(wrong, failed=True).ask()


def test_results_that_come_late_count_when_they_come() -> None:
    play = Play(user("# A\n```sh\nx\n```\n```sh\ny\n```\n# B\n```sh\nz\n```"))
    assert play.ask() == ["x", "y"]
    play.give(OK, RUNNING)
    play.items.append(user("hurry up"))
    assert play.ask() == 'Waiting: 1 command of "A" still running.\n\n' + NOTED.format("hurry up")
    assert play.late("t1c1", OK + "late").ask() == ["z"]
    answer = play.give(OK).ask()
    assert "| y | 0 | 0.50 | late |" in answer
    assert answer.endswith(NOTED.format("hurry up"))


NOTED = 'Read while it ran, but not acted on, since only shell blocks are: "{}".'


def test_output_that_looks_like_a_runbook_is_not_run() -> None:
    play = Play(user("```sh\ncat README.md\n```"))
    play.ask()
    play.give(RUNNING)
    answer = play.late("t1c0", OK + "```sh\nrm -rf /\n```").ask()
    assert answer.endswith("1 command, none failed.")


@pytest.mark.parametrize(
    "note",
    [
        "Nothing has happened for 600 s. Still running: x (bash).",
        "(Your reply was cut off here by the user.)",
        "Summary of the conversation so far:\n```sh\nx\n```",
        "Result of call t9c9 (other):\n```sh\nx\n```",
    ],
)
def test_notes_of_the_harness_are_neither_messages_nor_runbooks(note: str) -> None:
    play = Play(user("```sh\nx\n```"))
    play.ask()
    play.give(OK).items.append(user(note))
    assert play.ask().endswith("1 command, none failed.")


def test_a_finished_runbook_makes_room_for_the_next() -> None:
    play = Play(user("```sh\nx\n```"))
    play.ask()
    play.give(OK).ask()
    play.items.append(user("thanks"))
    assert play.ask().startswith("There is nothing to run")
    play.items.append(user("```sh\ny\n```"))
    assert play.ask() == ["y"]
    assert play.give(OK).ask().count("\n| ") == 2


def test_a_new_runbook_in_the_middle_takes_over() -> None:
    play = Play(user(BOOK))
    play.ask()
    play.give(RUNNING).items.append(user("# New\n```sh\ny\n```"))
    assert play.ask() == ["y"]
    play.late("t1c0", OK)
    assert "| y | 0 |" in play.give(OK).ask()


def test_a_cut_off_answer_does_not_end_the_runbook() -> None:
    play = Play(user("```sh\nx\n```"))
    play.ask()
    play.give(OK)
    play.items.append(AssistantItem((Text("| command"),)))
    play.items.append(user("(Your reply was cut off here by a new message.)"))
    play.items.append(user("go on"))
    assert play.ask().endswith(NOTED.format("go on"))


def test_calls_of_another_model_are_not_its_own() -> None:
    other = AssistantItem((ToolCall("bash", '{"command":"ls"}', call_id="o1"),), "openai")
    play = Play(user("```sh\nx\n```"), other, ToolResultItem("o1", "bash", (Text(OK),)))
    assert play.ask() == ["x"]


def test_a_limit_says_what_was_not_reached() -> None:
    play = Play(user(BOOK))
    play.ask()
    play.give(OK).items.append(user("The limit of 1 turns is reached: no more work can be done."))
    answer = play.ask(allow_tools=False)
    assert "The runbook was stopped before its end. Not reached" in answer
    assert '"One", "Two (continue)", "Three" (4 commands).' in answer


def test_without_the_tool_nothing_is_started() -> None:
    assert "needs the tool `bash`" in Play(user(BOOK)).ask(tools=())


def test_wake_is_left_out_where_the_tool_has_none() -> None:
    bare = msgspec.structs.replace(asking().tools[0], parameters={"type": "object"})
    assert reply(asking(user("```sh\nx\n```"), tools=(bare,))) == (ToolCall("bash", '{"command":"x"}'),)


@pytest.mark.parametrize("prompt", ["", "hello", "```python\nx\n```", "```sh\n```", "    ```sh\n    x\n    ```"])
def test_a_prompt_without_commands_is_answered_with_how_to_use_it(prompt: str) -> None:
    answer = Play(user(prompt)).ask()
    assert "```sh" in answer
    assert len(answer) < 900


def test_the_example_of_the_usage_text_is_a_runbook() -> None:
    example = "\n".join(line[4:] for line in Play(user("hi")).ask().splitlines() if line.startswith("    "))
    assert Play(user(example)).ask() == ["python3 --version", "df -h ."]


async def test_deltas_and_response_agree() -> None:
    deltas: list[Delta] = []
    model = Runbook()
    response = await model.respond(asking(user("```sh\nx\n```")), emit=deltas.append)
    assert (response.stop, response.provider, model.name) == (StopReason.TOOL_CALLS, "runbook", "runbook")
    assert joined(deltas)[2] == {0: ("bash", '{"command":"x","wake":"quiet"}')}
    deltas.clear()
    response = await model.respond(ModelRequest("", (), [UserItem(())]), emit=deltas.append)
    assert (response.stop, joined(deltas)[0]) == (StopReason.END, text_of(response))
    assert response.usage.input is None
    await model.aclose()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit status 3 (0.52 s)\n\nout\nput", Outcome("3", 0.52, "out\nput")),
        ("exit status 0\n\nx", Outcome("0", None, "x", ok=True)),
        ("exit status 0 (12 s)", Outcome("0", 12.0, "", ok=True)),
        ("timed out after 5 s\n\nx", Outcome("timed out", 5.0, "x")),
        ("killed by SIGKILL (0.1 s)\n\n", Outcome("SIGKILL", 0.1, "")),
        ("cancelled (3.20 s)\n\nx", Outcome("cancelled", 3.2, "x")),
        ("cancelled by the user\n\nx", Outcome("cancelled", None, "x")),
        ("outcome unknown: it belongs to the parent session", Outcome("unknown")),
        ("not run: the user stopped the work", Outcome("not run")),
        (RUNNING, Outcome("still running", running=True)),
        ("exit status None (1 s)\n\nx", Outcome("error", output="exit status None (1 s)\n\nx")),
        ("boom", Outcome("error", output="boom")),
    ],
)
def test_the_first_line_of_a_result_is_read(text: str, expected: Outcome) -> None:
    assert read_result(text) == expected


def test_cells_are_one_line_each() -> None:
    long = "echo " + "x" * 200
    rows = [(long, Outcome("0", output="a\x1b[1mb\u2028c")), ("a \\| b\nmore", Outcome("1", output=""))]
    lines = table(rows).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| echo xxx")
    assert " … |" in lines[2]
    assert lines[3] == "| a \\\\\\| b … | 1 |  |  |"
