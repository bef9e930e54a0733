"""The process that ``run`` starts when no server answers, as ``run`` sees it; what it does is in ``background``."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from noetl_stream.errors import LocalStackError
from noetl_stream.local.diagnosis import system_errors_explained
from noetl_stream.local.groundwork import Groundwork
from noetl_stream.local.home import PRIVATE_FILE_MODE, prepare_home
from noetl_stream.local.stack import is_running
from noetl_stream.settings.environment import Settings

log = logging.getLogger(__name__)

WAITING: Final = "--when-told"
"""The option of a process that loads, and begins once it is told its log."""

PATH_BYTES: Final = 64 * 1024


def command_line(*arguments: str) -> list[str]:
    """The command line of this program with other arguments."""
    return [sys.executable, "-m", "noetl_stream", *arguments]


class Background:
    """The server and worker that ``run`` starts if none is running. They outlive it and end by themselves.

    With own servers, it needs the keys of a server: an operator without them waits for a server that others run.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._is_waiting = False
        self._groundwork: Groundwork | None = None
        self._lacks_keys = settings.nats_url is not None and not settings.server_keys
        self._has_said = False

    def load(self) -> None:
        """If the embedded stack does not run, loads them to wait for :meth:`start_loaded`.

        Meanwhile the data folder of a new home is made. Unless they are needed, :meth:`close` undoes what was done.
        """
        if self._settings.nats_url is not None:
            return
        with system_errors_explained(self._settings.home):
            if is_running(self._settings.home):
                return
        self._process = _started(
            [WAITING, *_home_option(self._settings.home.resolve())], subprocess.PIPE, subprocess.DEVNULL
        )
        self._is_waiting = True
        with system_errors_explained(self._settings.home):
            self._groundwork = Groundwork.begin(self._settings.home, self._settings.pool)

    def start_loaded(self) -> None:
        """:meth:`start`, if they have been loaded. Errors: the same."""
        if self._is_waiting:
            self.start()
        if self._groundwork is not None:
            self._groundwork.keep()
            self._groundwork = None

    def close(self) -> None:
        """Undoes what :meth:`load` did, if it was not needed."""
        if self._groundwork is not None:
            self._groundwork.undo()
            self._groundwork = None

    def start(self) -> None:
        """Starts them, unless this process already has and they still run.

        Raises:
            LocalStackError: They cannot be started, or ended with an error.
        """
        if self._lacks_keys:
            if not self._has_said:
                log.warning("no server answers: waiting until one is started with `noetl-stream server`")
            self._has_said = True
            return
        home = self._home()
        output = home / "background.log" if home is not None else Path(os.devnull)
        if self._is_waiting:
            self._tell(output)
            return
        code = self._process.poll() if self._process is not None else 0
        if code is None:
            return
        if code > 0:
            hint = f"see {output}" if home is not None else "run `noetl-stream server` to see why"
            raise LocalStackError(f"the background server exited with code {code}", hint=hint)
        with os.fdopen(_opened(output), "ab") as sink:
            self._process = _started([] if home is None else _home_option(home), subprocess.DEVNULL, sink.fileno())

    def _tell(self, output: Path) -> None:
        self._is_waiting = False
        assert self._process is not None
        assert self._process.stdin is not None
        os.close(_opened(output))  # an error with it shows here
        with contextlib.suppress(BrokenPipeError):  # it has ended: the next start says so
            self._process.stdin.write(os.fsencode(output) + b"\n")
            self._process.stdin.close()

    def _home(self) -> Path | None:
        """The home of the embedded stack, which exists from then on; ``None`` for own servers."""
        if self._settings.nats_url is not None:
            return None
        with system_errors_explained(self._settings.home):
            return prepare_home(self._settings.home).root


def await_start() -> None:
    """In a process that :meth:`Background.load` started: returns once it is told to begin, with its output in its log.

    Ends the process if the one that started it ends first.
    """
    received = b""
    while not received.endswith(b"\n"):
        piece = os.read(0, PATH_BYTES)
        if not piece:
            sys.exit(0)
        received += piece
    descriptor = _opened(Path(os.fsdecode(received[:-1])))
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def _started(options: list[str], given: int, output: int) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command_line("background", *options), stdin=given, stdout=output, stderr=output, start_new_session=True
        )
    except OSError as error:
        raise LocalStackError(f"cannot start the background server: {error.strerror}") from None


def _home_option(home: Path) -> list[str]:
    return ["--home", str(home)]


def _opened(output: Path) -> int:
    try:
        return os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE)
    except OSError as error:
        raise LocalStackError(f"cannot start the background server: {output}: {error.strerror}") from None
