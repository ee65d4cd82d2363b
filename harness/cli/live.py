"""A run as a picture that moves: a row for each pending call with its clock, and what has landed above it.

Belongs here: drawing the timeline with rich.
Must not know: what an event means; that is in timeline.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from harness.cli import words
from harness.cli.timeline import Line, Row
from harness.cli.views import FooterLine, TimelineView
from harness.result import RunResult
from harness.state import SessionState

FRAME_S: Final = 0.1
STYLES: Final = {"said": "bold", "ok": "green", "bad": "red", "note": "dim", "text": ""}
HIDDEN: Final = ("turn", "started")
"""Kinds of lines that the moving part shows better."""


class LiveView(TimelineView):
    """Rich's Live without its thread: a frame is drawn by the same loop that changes the picture."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        super().__init__(self._console.encoding)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        spinner = "line" if self._console.options.ascii_only else "dots"
        self._spinner = Spinner(spinner, style="cyan")
        self._started_s = time.monotonic()

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(Text(""))
        self._live.stop()

    def begin(self, session_id: str, state: SessionState | None) -> None:
        self._show(Line("note", f"session {session_id}"))
        if state is not None:
            self._timeline.resume(state, time.monotonic())

    def note(self, text: str) -> None:
        self._console.print(Text(f"{self._marks['note']} {text}", style="yellow"))

    async def refresh(self) -> None:
        while True:
            self._live.update(self._picture(time.monotonic()), refresh=True)
            await trio.sleep(FRAME_S)

    def end(self, session_id: str, result: RunResult, footer: Sequence[FooterLine]) -> None:
        self._live.update(Text(""))
        self._live.stop()
        self._console.print()
        if result.text.strip():
            # Links are spelled out: a terminal link could hide where it leads.
            self._console.print(Markdown(words.tame(result.text), hyperlinks=False))
            self._console.print()
        width = max((len(line.name) for line in footer), default=0)
        for line in footer:
            # The terminal breaks what is too long, so that a command is copied as one line.
            self._console.print(Text.assemble((line.name.ljust(width), "dim"), "  ", line.text), soft_wrap=True)

    # --- drawing

    def _show(self, line: Line) -> None:
        # What is printed redraws the moving part below it, which must not show a call that has just ended.
        self._live.update(self._picture(time.monotonic()))
        if line.kind in HIDDEN:
            return
        if line.kind == "text":
            self._console.print(Padding(Text(line.text), (0, 0, 0, 2)))
            return
        style = STYLES[line.kind]
        text = Text(line.text, style="" if line.kind == "ok" else style)
        if line.detail:  # how it ended matters more than the end of a long command
            text.truncate(max(20, self._console.width * 2 // 5), overflow="ellipsis")
        shown = Text.assemble((f"{self._marks[line.kind]} ", style), text, (f"  {line.detail}".rstrip(), "dim"))
        self._console.print(shown, no_wrap=True, overflow="ellipsis", crop=True)

    def _picture(self, now_s: float) -> RenderableType:
        timeline = self._timeline
        room = max(1, self._console.height - 6)
        parts: list[RenderableType] = []
        if timeline.writing:
            tail = timeline.writing.splitlines()[-min(8, room) :]
            parts.append(Padding(Text("\n".join(tail), style="italic"), (0, 0, 0, 2)))
        rows = list(timeline.rows.values())
        if rows:
            parts.append(self._rows(rows[:room], now_s))
        if len(rows) > room:
            parts.append(Text(f"  and {words.counted(len(rows) - room, 'more call')}", style="dim"))
        parts.append(self._counter(now_s))
        return Group(*parts)

    def _rows(self, rows: Sequence[Row], now_s: float) -> Table:
        grid = Table.grid(padding=(0, 1), expand=True)
        grid.add_column(width=2)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=3)
        grid.add_column(no_wrap=True, justify="right", min_width=7)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
        for row in rows:
            clock = "waiting" if row.since_s is None else words.seconds(now_s - row.since_s)
            output = "cancelling" if row.cancelling else row.output
            grid.add_row(self._spinner, row.tool, Text(row.label), clock, Text(output, style="dim"))
        return grid

    def _counter(self, now_s: float) -> Text:
        timeline = self._timeline
        parts = [words.counted(timeline.turns, "turn")]
        if used := words.usage_text(timeline.usage):
            parts.append(used)
        parts.append(f"{words.counted(len(timeline.rows), 'call')} pending")
        if timeline.model_since_s is not None:
            doing = "thinks" if timeline.thinking or not timeline.writing else "writes"
            doing = "summarises" if timeline.summarising else doing
            parts.append(f"the model {doing}, {words.seconds(now_s - timeline.model_since_s)}")
        parts.append(words.seconds(now_s - self._started_s))
        return Text(" · ".join(parts), style="dim", no_wrap=True, overflow="ellipsis")
