"""The process that ``run`` starts when no server answers, as ``run`` sees it; its work is in ``hosting``."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import PRIVATE_FILE_MODE, prepare_home
from noetl_stream.local.stack import is_running
from noetl_stream.local.startup_errors import system_errors_explained
from noetl_stream.settings.sources.environment import SERVER_KEY_VARIABLE, Settings

if TYPE_CHECKING:  # most commands start nothing
    from noetl_stream.local.forks import Main
    from noetl_stream.local.groundwork import Groundwork

log = logging.getLogger(__name__)

COMMAND: Final = "background"

NO_SERVER: Final = (
    f"no server answers: waiting until one is started with `noetl-stream server`. With {SERVER_KEY_VARIABLE}, which"
    " `noetl-stream setup` makes, this command would start one"
)


def command_line(*arguments: str) -> list[str]:
    """Returns the command line of this program with other arguments."""
    return [sys.executable, "-m", "noetl_stream", *arguments]


class Background:
    """Starts a server and a worker for ``run`` if none is running. They outlive it and end by themselves.

    With own servers, this needs the keys of a server: an operator without them waits for another operator's server.

    Args:
        main: Runs a command of this program, in a copy of this process where there can be one.
    """

    def __init__(self, settings: Settings, main: Main | None = None) -> None:
        self._settings = settings
        self._main = main
        self._process: _Process | None = None
        self.is_stack_down = False
        """Whether :meth:`prepare` has found the stack down, until it is started."""
        self.log: Path | None = None
        """The log of the embedded stack's server and worker, once they were started."""
        self._groundwork: Groundwork | None = None
        self._lacks_keys = settings.nats_url is not None and not settings.server_keys
        self._has_said = False

    def prepare(self) -> None:
        """Begins a new home's data folder, if the embedded stack does not run; :meth:`close` undoes it."""
        if self._settings.nats_url is not None:
            return
        with system_errors_explained(self._settings.home):
            if is_running(self._settings.home):
                return
            from noetl_stream.local.groundwork import Groundwork

            self._groundwork = Groundwork.begin(self._settings.home, self._settings.pool)
        self.is_stack_down = True

    def start_prepared(self) -> None:
        """Calls :meth:`start`, if :meth:`prepare` has found no stack: no server can answer then. Errors: the same."""
        if self.is_stack_down:
            self.is_stack_down = False
            self._start(self._fork)
        if self._groundwork is not None:
            self._groundwork.keep()
            self._groundwork = None

    def close(self) -> None:
        """Undoes :meth:`prepare`, if its data folder was not needed."""
        if self._groundwork is not None:
            self._groundwork.undo()
            self._groundwork = None

    def start(self) -> None:
        """Starts the server and worker, unless this process already has and they still run.

        Raises:
            LocalStackError: The processes cannot be started, or ended with an error.
        """
        self._start(_spawn)

    def _start(self, started: _Starting) -> None:
        if self._lacks_keys:
            if not self._has_said:
                log.warning("%s", NO_SERVER)
            self._has_said = True
            return
        home = self._home()
        output = home / "background.log" if home is not None else Path(os.devnull)
        code = self._process.poll() if self._process is not None else 0
        if code is None:
            return
        if code > 0:
            hint = f"see {output}" if home is not None else "run `noetl-stream server` to see why"
            raise LocalStackError(f"the background server exited with code {code}", hint=hint)
        words = [COMMAND] if home is None else [COMMAND, "--home", str(home)]
        with os.fdopen(_open_output(output), "ab") as sink:
            self._process = started(words, sink.fileno())
        self.log = None if home is None else output

    def _fork(self, words: list[str], output: int) -> _Process:
        """Starts a command in a copy of this process, where there can be one: before it has an event loop."""
        from noetl_stream.local.forks import fork_command

        pid = None if self._main is None else fork_command(self._main, words, output)
        return _spawn(words, output) if pid is None else _Forked(pid)

    def _home(self) -> Path | None:
        """Returns the home of the embedded stack, and makes it if missing; ``None`` for own servers."""
        if self._settings.nats_url is not None:
            return None
        with system_errors_explained(self._settings.home):
            return prepare_home(self._settings.home).root


class _Process(Protocol):
    def poll(self) -> int | None:
        """Returns the exit code of the process once it has ended, as of :class:`subprocess.Popen`."""
        ...


_Starting = Callable[[list[str], int], _Process]
"""A function that starts a command of this program, given its words and the descriptor of its output."""


def _spawn(words: list[str], output: int) -> _Process:
    try:
        return subprocess.Popen(
            command_line(*words), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    except OSError as error:
        raise LocalStackError(f"cannot start the background server: {error.strerror}") from None


class _Forked(msgspec.Struct):
    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def _open_output(output: Path) -> int:
    try:
        return os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE)
    except OSError as error:
        raise LocalStackError(f"cannot start the background server: {output}: {error.strerror}") from None
