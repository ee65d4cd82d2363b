"""Which blocks of a Markdown text are commands, and under which heading."""

from __future__ import annotations

import pytest

from harness.llm.runbook_markdown import Group, groups


def one(*commands: str, title: str = "") -> list[Group]:
    return [Group(title, commands)]


CASES = {
    "languages": (
        "```sh\na\n```\n```bash\nb\n```\n```shell\nc\n```\n```SH title=x\nd\n```\n"
        "```python\ne\n```\n```\nf\n```\n```sh-session\ng\n```",
        one("a", "b", "c", "d"),
    ),
    "tildes": ("~~~sh\na\n```\nb\n~~~", one("a\n```\nb")),
    "longer fence": ("````sh\ncat <<X\n```sh\nX\n````", one("cat <<X\n```sh\nX")),
    "never closed": ("```sh\na\nb", one("a\nb")),
    "in a list": ("1. First\n\n   ```sh\n   a\n     b\n   ```\n- x\n  ~~~bash\n  c\n  ~~~", one("a\n  b", "c")),
    "indented a little": ("  ```sh\n  a\n  ```", one("a")),
    "indented code is no fence": ("    ```sh\n    a\n    ```", []),
    "in a comment": ("<!--\n```sh\na\n```\n-->", []),
    "inside another fence": ("```markdown\n~~~sh\na\n~~~\n```", []),
    "empty": ("```sh\n```\n```sh\n\n  \n```", []),
    "many lines": ("```sh\ncd x\n\nmake\n```", one("cd x\n\nmake")),
    "crlf": ("# T\r\n```sh\r\na\r\nb\r\n```\r\n", one("a\nb", title="T")),
    "no line end": ("```sh\na\n```", one("a")),
    "backticks in the info string": ("``` sh `x`\na\n```", []),
    "headings": (
        "# A\n```sh\na\n```\n## B ##\n```sh\nb\n```\n### C\ntext\n#### D\n```sh\nd\n```",
        [Group("A", ("a",)), Group("B", ("b",)), Group("D", ("d",))],
    ),
    "setext": ("A\n===\n```sh\na\n```\nB *x*\n---\n```sh\nb\n```", [Group("A", ("a",)), Group("B *x*", ("b",))]),
    "before the first": ("```sh\na\n```\n# B\n```sh\nb\n```", [Group("", ("a",)), Group("B", ("b",))]),
    "heading in a fence": (
        "# A\n```sh\n# not a heading\na\n```\n```text\n# nor this\n```\n```sh\nb\n```",
        one("# not a heading\na", "b", title="A"),
    ),
    "same title twice": ("# A\n```sh\na\n```\n# A\n```sh\nb\n```", [Group("A", ("a",)), Group("A", ("b",))]),
    "no heading without a space": ("#A\n```sh\na\n```", one("a")),
    "front matter": ("---\ntitle: x\n---\n# A\n```sh\na\n```", one("a", title="A")),
    "console": ("```console\n$ echo a\na\n$ echo \\\n> b\nb\n> not typed\n```", one("echo a\necho \\\nb")),
    "console, here-document": ("```console\n$ cat <<X\n> a\n>\n> X\na\n```", one("cat <<X\na\n\nX")),
    "console, output only": ("```console\nhello\n```", []),
    "prompt in a shell block": ("```shell\n$ ls\nx\n```", one("ls")),
    "dollar later in a shell block": ("```sh\necho\n$ x\n```", one("echo\n$ x")),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_commands_and_headings(text: str, expected: list[Group]) -> None:
    assert list(groups(text)) == expected


@pytest.mark.parametrize(
    ("title", "goes_on"),
    [("Lint (continue)", True), ("Lint (CONTINUE)", True), ("(continue) Lint", False), ("Lint", False), ("", False)],
)
def test_a_title_may_let_the_runbook_go_on(title: str, goes_on: bool) -> None:
    assert Group(title, ()).goes_on is goes_on


def test_a_closed_heading_may_let_it_go_on() -> None:
    assert groups("## Lint (continue) ##\n```sh\na\n```")[0].goes_on


def test_a_long_document_is_read_quickly() -> None:
    assert len(groups("# H\n\n> text\n\n```sh\nx\n```\n" * 2000)) == 2000
