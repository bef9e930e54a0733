"""Live progress on a terminal. Imported only there, since rich is slow to load."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from noetl_stream.cli.execution.progress import ProgressFold, ProgressView
from noetl_stream.ports.operations.executions import ReasonDocument
from noetl_stream.ports.operations.feed import FeedEvent
from noetl_stream.telemetry.terminal import shown

_LOGGED: Final = ("retry", "failed", "discarded", " | ")


class LiveProgress(ProgressView):
    """A table of the steps, redrawn in place several times a second, so that times count down."""

    def __init__(self, console: Console) -> None:
        self._fold = ProgressFold()
        self._waits: Sequence[ReasonDocument] = ()
        self._live = Live(self, console=console, refresh_per_second=8, transient=True)
        self._live.start()

    def event(self, event: FeedEvent) -> None:
        self._waits = ()
        for line in self._fold.lines(event):
            if any(word in line for word in _LOGGED):
                self._live.console.print(Text(shown(line), style="yellow"))

    def waits(self, reasons: Sequence[ReasonDocument]) -> None:
        self._waits = reasons

    def close(self) -> None:
        self._live.stop()

    def __rich__(self) -> Group:
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, step in list(self._fold.steps.items()):  # rich draws in a thread of its own
            mark = {"running": "…", "done": "✓", "failed": "✗"}[step.state if not step.open else "running"]
            bar = ProgressBar(total=step.count, completed=step.ended, width=24) if step.count else Text("")
            failed = f", {step.failed} failed" if step.failed else ""
            done = (
                f"{step.ended}/{step.count}{failed}" if step.count else (f"{step.runs} runs" if step.runs > 1 else "")
            )
            retries = f"{step.retries} {'retry' if step.retries == 1 else 'retries'}" if step.retries else ""
            table.add_row(mark, Text(shown(name)), bar, done, retries)
        return Group(table, *(Text(shown(_counted_down(reason)), style="cyan") for reason in self._waits))


def _counted_down(reason: ReasonDocument) -> str:
    if not reason.until:
        return f"  {reason.sentence}"
    left_s = datetime.fromisoformat(reason.until).timestamp() - time.time()
    return f"  {reason.sentence} ({timedelta(seconds=max(0, round(left_s)))} left)"
