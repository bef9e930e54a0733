"""The start of an embedded server, the wait until it is ready, and its stop."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from noetl_stream.errors import LocalStackError
from noetl_stream.local import processes
from noetl_stream.local.home import FileLock
from noetl_stream.local.secrets import Secrets
from noetl_stream.local.startup_errors import explain_output, is_address_in_use, read_tail

READY_WAIT_S = 120.0
"""The wait for a server to be ready: enough for Postgres and NATS to recover after a crash."""

LEFTOVERS_WAIT_S = 1.0
"""The time in which the children of a killed server must notice that and end."""

PORT_ATTEMPTS = 5
LOG_LIMIT_BYTES = 16 * 1024 * 1024


class StopSignal(msgspec.Struct, frozen=True):
    """A signal that stops a server, and the wait for its end before the next signal."""

    number: signal.Signals
    wait_s: float


class LocalServer(Protocol):
    """An embedded server of one home."""

    name: str
    title: str
    wheel: str
    home: Path
    folder: Path
    log: Path
    identity: processes.ProcessIdentity
    stop_signals: Sequence[StopSignal]

    def find(self) -> processes.Running | None:
        """Returns the running server of this home's data, started by any process."""
        ...

    def prepare(self, secrets: Secrets, keep_open: int) -> None:
        """Creates or checks data and configuration before a start. Processes it runs inherit ``keep_open``."""
        ...

    def launch(self, port: int, keep_open: int) -> processes.Running:
        """Starts the server's process without waiting for it."""
        ...

    def is_ready(self, running: processes.Running) -> bool:
        """Returns whether the server accepts clients."""
        ...

    def kill_leftovers(self) -> None:
        """Kills processes of a dead server that still run on its data."""
        ...


class StartingServer(msgspec.Struct, frozen=True):
    """A server that may not be ready yet. Its log of this start begins at ``log_from_byte``."""

    server: LocalServer
    running: processes.Running
    log_from_byte: int


def start(server: LocalServer, wanted_port: int | None, secrets: Secrets) -> StartingServer:
    """Starts ``server``, which :meth:`LocalServer.find` did not find. Does not wait until it is ready.

    Args:
        wanted_port: The port to use if it is free; otherwise any free port.

    Raises:
        LocalStackError: The data is in use elsewhere, or the server cannot be started.
    """
    with guarded_data(server) as guard:
        server.prepare(secrets, guard.descriptor)
        log_from_byte = _rotate_if_large(server.log)
        # Checked last: a killed server's port becomes free with its lock, some time after its death.
        port = wanted_port if wanted_port is not None and processes.is_free(wanted_port) else processes.choose_port()
        return StartingServer(server, server.launch(port, guard.descriptor), log_from_byte)


def guard_path(server: LocalServer) -> Path:
    """Returns the path of the lock file that each process of ``server`` holds."""
    return server.folder / "server.lock"


@contextmanager
def guarded_data(server: LocalServer) -> Iterator[FileLock]:
    """Takes the lock on the data of ``server``, which none of its processes uses.

    Raises:
        LocalStackError: The data is in use elsewhere.
    """
    with closing(FileLock(guard_path(server))) as guard:
        # A running server without a pid file: its folder was removed, or its starter died before the file was written.
        processes.kill_all(server.identity)
        if not guard.try_exclusive_within(LEFTOVERS_WAIT_S):
            server.kill_leftovers()
        if not guard.try_exclusive_within(LEFTOVERS_WAIT_S):
            message = f"{server.folder} is in use by a {server.title} in another container or machine"
            raise LocalStackError(message, hint="stop it there, or choose another folder with --home or NOETL_HOME")
        yield guard


def wait_until_ready(starting: StartingServer, secrets: Secrets) -> processes.Running:
    """Waits until the server is ready. Restarts it on another port if its port was taken in the meantime.

    Raises:
        LocalStackError: The server ended or did not become ready; the message has its last log lines.
    """
    server = starting.server
    for _ in range(PORT_ATTEMPTS):
        if _becomes_ready(server, starting.running):
            return starting.running
        output = read_tail(server.log, starting.log_from_byte)
        if not is_address_in_use(output):
            break
        starting = start(server, None, secrets)
    raise explain_output(f"{server.title} stopped while starting", output, server.home, server.log)


def _rotate_if_large(log: Path) -> int:
    """Renames a large log to ``.1`` and returns the offset at which the next run's output starts."""
    size = log.stat().st_size if log.exists() else 0
    if size <= LOG_LIMIT_BYTES:
        return size
    log.replace(log.with_name(f"{log.name}.1"))
    return 0


def _becomes_ready(server: LocalServer, running: processes.Running) -> bool:
    """Waits until the server is ready (``True``) or has ended (``False``)."""
    deadline = time.monotonic() + READY_WAIT_S
    while not server.is_ready(running):
        if not processes.is_alive(running.pid):
            return False
        if time.monotonic() > deadline:
            message = f"{server.title} (pid {running.pid}) is not ready after {READY_WAIT_S:.0f} s"
            raise LocalStackError(message, hint=f"see {server.log}")
        time.sleep(processes.POLL_S)
    return True


def stop(servers: Sequence[tuple[LocalServer, processes.Running]]) -> None:
    """Stops the servers concurrently, with increasingly forceful signals.

    Raises:
        LocalStackError: A server does not stop.
    """
    for server, running in servers:
        processes.send(running.pid, server.stop_signals[0].number)
    for server, running in servers:
        _wait_until_stopped(server, running)


def _wait_until_stopped(server: LocalServer, running: processes.Running) -> None:
    for position, stop_signal in enumerate(server.stop_signals):
        if position > 0:
            processes.send(running.pid, stop_signal.number)
        if processes.wait_until_ended(running.pid, stop_signal.wait_s):
            return
    raise LocalStackError(f"{server.title} (pid {running.pid}) does not stop", hint=f"kill -9 {running.pid}")
