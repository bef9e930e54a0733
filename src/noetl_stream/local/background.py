"""The background process that ``run`` starts when no server answers, and the data folder of a new home."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import PRIVATE_FILE_MODE, FileLock, Home, prepare_home
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.secrets import load_or_create_secrets
from noetl_stream.local.server_process import guard_path, guarded_data
from noetl_stream.local.stack import is_running
from noetl_stream.local.startup_errors import system_errors_explained
from noetl_stream.settings.key_variables import SERVER_KEY_VARIABLE
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.settings.sources.process_environment import show_arguments

log = logging.getLogger(__name__)

COMMAND: Final = "background"
DEBUGGER: Final = "--debugger"
"""The option with the descriptor of a debugger."""

PROGRAM: Final = "noetl-stream"
UNDO_POLL_S: Final = 0.02

NO_SERVER: Final = (
    f"no server answers: waiting until one is started with `noetl-stream server`. With {SERVER_KEY_VARIABLE}, which"
    " `noetl-stream setup` makes, this command would start one"
)

Main = Callable[[list[str]], object]
"""A function that runs a command, given its words, and exits."""


def command_line(*arguments: str) -> list[str]:
    """Returns the command line of this program with other arguments."""
    return [sys.executable, "-m", "noetl_stream", *arguments]


class Background:
    """Starts a server and a worker for ``run`` if none is running. They outlive it and end by themselves.

    With own servers, this needs the keys of a server: an operator without them waits for another operator's server.

    Args:
        main: Runs a command of this program, in a copy of this process if possible.
    """

    def __init__(self, settings: Settings, main: Main | None = None) -> None:
        self._settings = settings
        self._main = main
        self.debugger: int | None = None
        """The descriptor on which the worker has Python code debugged where it raises."""
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
        self._start(self._spawn)

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
        words += [] if self.debugger is None else [DEBUGGER, str(self.debugger)]
        with os.fdopen(_open_output(output), "ab") as sink:
            self._process = started(words, sink.fileno())
        self.log = None if home is None else output

    def _fork(self, words: list[str], output: int) -> _Process:
        """Starts a command in a copy of this process if possible: before it has an event loop."""
        alone = self._main if self.debugger is None else None
        pid = None if alone is None else fork_command(alone, words, output)
        return self._spawn(words, output) if pid is None else _Forked(pid)

    def _spawn(self, words: list[str], output: int) -> _Process:
        try:
            return subprocess.Popen(
                command_line(*words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=() if self.debugger is None else (self.debugger,),
            )
        except OSError as error:
            raise LocalStackError(f"cannot start the background server: {error.strerror}") from None

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


class Groundwork:
    """Holds the start lock of a new home, until its data folder is kept or undone.

    A child of this process creates the folder: a thread would wait for the imports of the check.
    """

    def __init__(self, home: Home, lock: FileLock, pool: str) -> None:
        self._home = home
        self._lock = lock
        self._postgres = PostgresServer(home)
        self._maker = os.fork()
        if self._maker == 0:
            try:
                os.setsid()  # this process's Ctrl-C does not reach it
                self._make(pool)
            finally:
                os._exit(0)

    @classmethod
    def begin(cls, folder: Path, pool: str) -> Self | None:
        """Begins a new home's data folder; ``None`` if there is a home, or another process makes it.

        Raises:
            LocalStackError, OSError: The folder cannot be made.
        """
        if folder.exists():
            return None
        with ExitStack() as closing:
            home = prepare_home(folder)
            lock = FileLock(home.start_lock)
            closing.callback(lock.close)
            if not lock.try_exclusive() or not lock.is_current() or home.passwords.exists():
                return None
            closing.pop_all()
            return cls(home, lock, pool)

    def keep(self) -> None:
        """Waits until the folder is created. Joining the stack repeats failed steps, and reports why they fail."""
        os.waitpid(self._maker, 0)
        self._lock.close()

    def undo(self) -> None:
        """Removes the home, with its data folder."""
        os.kill(self._maker, signal.SIGKILL)
        os.waitpid(self._maker, 0)
        guard = FileLock(guard_path(self._postgres))
        while not guard.try_exclusive_within(UNDO_POLL_S):  # processes it has started
            self._postgres.kill_leftovers()
        guard.close()
        from shutil import rmtree  # as in the server's module

        rmtree(self._home.root, ignore_errors=True)
        self._lock.close()

    def _make(self, pool: str) -> None:
        with suppress(LocalStackError, OSError):
            secrets = load_or_create_secrets(self._home, self._postgres.data, pool)
            with guarded_data(self._postgres) as guard:
                self._postgres.prepare(secrets, guard.descriptor)


def fork_command(main: Main, words: Sequence[str], output: int | None = None, given: int | None = None) -> int | None:
    """Forks a child that calls ``main(words)`` like a new process of this program, in its own session; returns its pid.

    Must be called before this process has an event loop or a connection: the child has all of its memory, but none of
    its files. ``None`` if there are threads, which a child would not have, if that cannot be known, or if there is no
    room for a child.

    Args:
        output: The descriptor that the child writes to, in place of those of this process.
        given: The descriptor that the child reads; by default there is nothing to read.
    """
    sys.stdout.flush()  # or the child would write it again
    sys.stderr.flush()
    try:
        if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
            return None
        pid = os.fork()
    except OSError:
        return None
    if pid:
        return pid
    code: object = 1
    try:
        os.setsid()
        _keep_only(os.open(os.devnull, os.O_RDONLY) if given is None else given, output)
        show_arguments([PROGRAM, *words])
        main(list(words))
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else 1)


def _keep_only(given: int, output: int | None) -> None:
    """Makes the descriptors stdin, stdout and stderr, and closes all other files."""
    standard = {0: given} if output is None else {0: given, 1: output, 2: output}
    for number, descriptor in standard.items():
        os.dup2(descriptor, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2:
            with suppress(OSError):  # it was the list itself
                os.close(int(name))
