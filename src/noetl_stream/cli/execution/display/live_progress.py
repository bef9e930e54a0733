"""Live progress on a terminal. Imported only there, since rich is slow to load."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from noetl_stream.cli.base.activity import FRAMES, PERIOD_S
from noetl_stream.cli.execution.display.progress import ProgressFold, ProgressLine, ProgressView, StepProgress, Summary
from noetl_stream.durations import duration_text
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.reading.events import FeedEvent, LogLineDocument
from noetl_stream.telemetry.terminal import shown

_PRINTED: Final = ("output", "printed", "token")
"""Kinds of lines that are printed above the picture, which shows the others in its own way."""

_NOTES: Final = 3
_LINES_BESIDE: Final = 12
"""Lines of the terminal that are reserved for output above the steps, and below."""


class LiveProgress(ProgressView):
    """A picture of the steps, redrawn in place several times a second, so that times advance. It stays at the end."""

    shows_output = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._fold = ProgressFold()
        self._summary = Summary(verbose=False)
        self._execution_id = ""
        self._waits: Sequence[ReasonDocument] = ()
        self._why_no_news = ""
        self._began_s: dict[str, float] = {}
        self._live = Live(self, console=console, refresh_per_second=1 / PERIOD_S)

    def start(self, execution_id: str) -> None:
        self._execution_id = execution_id
        self._live.start()

    def event(self, event: FeedEvent) -> None:
        self._waits, self._why_no_news = (), ""
        self._print(self._fold.lines(event))

    def written(self, lines: Iterable[LogLineDocument]) -> None:
        for line in lines:
            self._print(self._fold.written(line))

    def _print(self, lines: Iterable[ProgressLine]) -> None:
        for line in self._summary.chosen(lines):
            if line.kind in _PRINTED:
                self._console.print(Text(shown(line.text), style="yellow"))

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        self._waits = reasons

    def unreachable(self, what: str) -> None:
        self._why_no_news = what

    def close(self) -> None:
        self._waits, self._why_no_news = (), ""
        if self._live.is_started:
            self._live.stop()

    def __rich__(self) -> Group:
        steps = list(self._fold.steps.items())  # rich draws in a thread of its own
        room = max(5, self._console.height - _LINES_BESIDE)
        more = [Text(f"… and {len(steps) - room:,} earlier steps")] if len(steps) > room else []
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        for _ in range(4):
            table.add_column(no_wrap=True)
        for name, step in steps[-room:]:
            table.add_row(*self._row(name, step))
        troubles = [(name, step.error) for name, step in steps if step.error is not None and self._is_trouble(step)]
        notes = [_note(name, error) for name, error in troubles[-_NOTES:]]
        return Group(*more, table, *notes, *self._below(bool(steps)))

    def _row(self, name: str, step: StepProgress) -> Sequence[RenderableType]:
        is_running = step.open > 0 or step.state == "running"
        done_mark = Text("✓", style="green") if step.state == "done" else Text("✗", style="red")
        mark = Text(self._frame()) if is_running else done_mark
        width = 24 if self._console.width >= 100 else 12
        bar = ProgressBar(total=step.count, completed=step.ended, width=width) if step.count else ""
        failed = f", {step.failed:,} failed" if step.failed else ""
        done = (
            f"{step.ended:,}/{step.count:,}{failed}" if step.count else f"{step.runs:,} runs" if step.runs > 1 else ""
        )
        retries = f"{step.retries:,} {'retry' if step.retries == 1 else 'retries'}" if step.retries else ""
        past_s = time.monotonic() - self._began_s.setdefault(name, time.monotonic())
        seconds = duration_text(int(past_s)) if is_running and past_s >= 1 else ""
        return mark, Text(shown(name)), bar, done, retries, seconds

    def _is_trouble(self, step: StepProgress) -> bool:
        """Whether its error is shown: while it lasts, and unless it is that of the execution, which the end prints."""
        failing, error = self._fold.failing, step.error
        is_told = failing is not None and error is not None and failing.message == error.message
        return not is_told and (step.open > 0 or step.state == "failed")

    def _below(self, has_steps: bool) -> Sequence[Text]:
        """The reasons why nothing moves."""
        if self._why_no_news:
            return [Text(shown(f"  {self._why_no_news}"), style="yellow")]
        if self._waits:
            return [Text(shown(_counted_down(reason)), style="cyan") for reason in self._waits]
        if has_steps:
            return []
        return [Text(f"{self._frame()} execution {self._execution_id} has started")]

    def _frame(self) -> str:
        return FRAMES[int(time.monotonic() / PERIOD_S) % len(FRAMES)]


def _note(name: str, error: ErrorInfo) -> Text:
    """A note in one line of any width."""
    text = " ".join(f"   {name}: {error.kind}: {error.message}".splitlines())
    return Text(shown(text), style="dim", no_wrap=True, overflow="ellipsis")


def _counted_down(reason: ReasonDocument) -> str:
    if not reason.until:
        return f"  {reason.sentence}"
    left_s = datetime.fromisoformat(reason.until).timestamp() - time.time()
    return f"  {reason.sentence} ({duration_text(max(0, round(left_s)))} left)"
