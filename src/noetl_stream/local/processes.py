"""Server processes: start them apart from us, know them again, end them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import PRIVATE_FILE_MODE
from noetl_stream.local.system_user import SystemUser

POLL_S = 0.005

CLEAN_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}
"""Messages in English, for :mod:`diagnosis`; and none of the secrets that the caller's environment may hold."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs: its process and the loopback port it has or is about to have."""

    pid: int
    port: int


def launch(command: Sequence[str], log: Path, keep_open: int, user: SystemUser | None) -> int:
    """Starts a server in a session of its own, so that no Ctrl-C of ours reaches it, and returns its pid.

    Args:
        log: Gets what the server writes, after what it holds.
        keep_open: A lock's descriptor, held by the server as long as it lives.
        user: The system user to become, or ``None`` to stay.

    Raises:
        LocalStackError: the program cannot be started.
    """
    log_descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_descriptor,
            stderr=log_descriptor,
            pass_fds=(keep_open,),
            start_new_session=True,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            umask=0o077,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
    except OSError as error:
        raise LocalStackError(f"{command[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(log_descriptor)
    # The server outlives us by design: this tells Popen not to warn of that. `reap` collects it if it dies before us.
    process.returncode = 0
    return process.pid


def read_pid(path: Path) -> int | None:
    """The pid on the first line of a server's own pid file, or ``None``."""
    try:
        return int(path.read_text(encoding="utf-8").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """What tells a server's process from all others.

    A pid alone may be another process' by now, and a path alone may be on the command line of somebody's editor.
    """

    program: str
    argument: str


def command_of(pid: int, mark: ProcessIdentity) -> list[str] | None:
    """The command line of ``pid`` if it is alive and bears ``mark``."""
    try:
        command: list[str] = psutil.Process(pid).cmdline()
    except psutil.Error:
        return None
    return command if mark.argument in command and Path(command[0]).name == mark.program else None


def is_alive(pid: int) -> bool:
    """Whether ``pid`` runs; a zombie does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def exists(pid: int) -> bool:
    """Whether the system knows ``pid``, be it as a zombie."""
    return bool(psutil.pid_exists(pid))


def kill_all(mark: ProcessIdentity) -> None:
    """Kills each process that bears ``mark``, and waits until they are gone."""
    found = [process for process in psutil.process_iter() if command_of(process.pid, mark)]
    for process in found:
        send(process.pid, signal.SIGKILL)
    for process in found:
        wait_until_gone(process.pid, wait_s=5.0)


def works_in(pid: int, program: str, folder: Path) -> bool:
    """Whether ``pid`` runs ``program`` in ``folder``, as each process of a Postgres does in its data."""
    try:
        process = psutil.Process(pid)
        return bool(process.name() == program and process.cwd() == str(folder))
    except psutil.Error:
        return False


def kill_all_in(program: str, folder: Path) -> None:
    """Kills each process of ``program`` whose working folder is ``folder``."""
    for process in psutil.process_iter():
        if works_in(process.pid, program, folder):
            send(process.pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal; a process that is gone needs none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until_gone(pid: int, wait_s: float) -> bool:
    """Whether ``pid`` ended within ``wait_s`` seconds."""
    deadline = time.monotonic() + wait_s
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    reap(pid)
    return True


def reap(pid: int) -> None:
    """Collects ``pid`` if it is a dead child of ours, otherwise nothing. For servers only: others are waited for."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
