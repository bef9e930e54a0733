"""The activity of a command without other output: a line on the terminal, with its duration in seconds.

All output of commands erases it first (:mod:`noetl_stream.cli.base.output`), so that lines never mix.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Final

import click

from noetl_stream.durations import duration_text
from noetl_stream.telemetry.terminal import shown

FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PERIOD_S: Final = 0.1
ERASE: Final = "\r\x1b[2K"


class Activity:
    """The line of this process. If stderr is not a terminal that can erase it, nothing is shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._text = ""
        self._since_s = 0.0
        self._is_drawn = False
        self._ticking: threading.Thread | None = None

    def show(self, text: str) -> None:
        """Shows the present activity."""
        if not sys.stderr.isatty():
            return
        from noetl_stream.settings.sources.process_environment import environment_variable

        if environment_variable("TERM") in (None, "", "dumb"):
            return
        with self._lock:
            self._text, self._since_s = text, time.monotonic()
            self._draw()

    def tick(self) -> None:
        """Counts the seconds from now on, in a thread: once this process makes no more copies of itself."""
        if self._text and self._ticking is None:
            self._ticking = threading.Thread(target=self._tick, name="activity", daemon=True)
            self._ticking.start()

    def clear(self) -> None:
        """Erases the line."""
        with self._lock:
            self._text = ""
            if self._is_drawn and sys.stderr.isatty():  # in a copy of this process it is a file
                self._is_drawn = False
                click.echo(ERASE, err=True, nl=False)

    def _tick(self) -> None:
        while True:
            time.sleep(PERIOD_S)
            with self._lock:
                if not self._text:
                    self._ticking = None
                    return
                self._draw()

    def _draw(self) -> None:
        past_s = time.monotonic() - self._since_s
        seconds = f" {duration_text(int(past_s))}" if past_s >= 1 else ""
        line = f"{FRAMES[int(past_s / PERIOD_S) % len(FRAMES)]} {shown(self._text)} …{seconds}"
        with contextlib.suppress(OSError):  # the terminal is gone, and the command may continue
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            click.echo(f"{ERASE}{line[: width - 1]}", err=True, nl=False)
            self._is_drawn = True


activity: Final = Activity()
