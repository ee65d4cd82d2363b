"""Markdown to the groups of shell commands that a runbook is made of.  Pure.

Belongs here: which blocks are commands, what a command's text is, under which heading it stands.
Must not know: what has been run already, requests, or results.

A CommonMark parser does the reading, because a command must never be found where a reader of the document sees none:
in a comment, in an indented example of a fence, in a block of another language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from markdown_it.token import Token

SHELLS: Final = frozenset({"sh", "bash", "shell", "console"})
"""The first word after a fence that makes its block a command, in any case of letters."""

_CONTINUE: Final = re.compile(r"\(continue\)$", re.IGNORECASE)


class Group(msgspec.Struct, frozen=True):
    """The commands under one heading, which run at the same time. title: empty before the first heading."""

    title: str
    commands: tuple[str, ...]

    @property
    def goes_on(self) -> bool:
        """Whether the runbook goes on when one of these commands fails."""
        return _CONTINUE.search(self.title) is not None

    @property
    def label(self) -> str:
        """The title for people."""
        return self.title or "(before the first heading)"


@lru_cache(maxsize=16)  # each turn of a run reads the same prompt again
def groups(markdown: str) -> tuple[Group, ...]:
    """The groups of a document that have commands, in order. Empty when no block is a command."""
    found: list[Group] = []
    title, commands = "", list[str]()
    for kind, text in _headings_and_blocks(markdown):
        if kind == "heading":
            if commands:
                found.append(Group(title, tuple(commands)))
            title, commands = text, []
        else:
            commands.append(text)
    if commands:
        found.append(Group(title, tuple(commands)))
    return tuple(found)


def _headings_and_blocks(markdown: str) -> Iterator[tuple[str, str]]:
    # Imported here: parsing is needed by this one model, and costs more to load than the rest of the package.
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(markdown)
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            yield "heading", " ".join(tokens[position + 1].content.split())
        elif token.type == "fence" and (command := _command(token)):
            yield "block", command


def _command(fence: Token) -> str:
    """The command of a fenced block, or nothing when it holds none."""
    word = (fence.info.split() or [""])[0].lower()
    if word not in SHELLS:
        return ""
    text = fence.content
    # "$ " begins no command in any shell, so a block that starts with it is a transcript whatever it is called.
    if word == "console" or text.lstrip().startswith("$ "):
        text = _typed(text)
    return text.strip("\n") if text.strip() else ""


def _typed(transcript: str) -> str:
    """What was typed in a transcript: lines after `$ `, and after `> ` directly below one; the rest is output."""
    typed: list[str] = []
    typing = False
    for line in transcript.splitlines():
        bare = line.lstrip()
        if bare.startswith("$ "):
            typed.append(bare[2:])
            typing = True
        elif typing and (bare.startswith("> ") or bare == ">"):
            typed.append(bare[2:])
        else:
            typing = False
    return "\n".join(typed)
