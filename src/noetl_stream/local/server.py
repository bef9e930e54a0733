"""What the two embedded servers have in common: start one, wait until it answers, stop it."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from noetl_stream.errors import LocalStackError
from noetl_stream.local import ports
from noetl_stream.local.diagnosis import explain_output, read_tail, says_address_taken
from noetl_stream.local.locks import FileLock
from noetl_stream.local.passwords import Passwords
from noetl_stream.local.processes import POLL_S, ProcessIdentity, Running, is_alive, kill_all, send, wait_until_gone

READY_WAIT_S = 120.0
"""Long enough for Postgres to replay its log, and NATS its streams, after a crash."""

REMAINS_WAIT_S = 1.0
"""How long the children of a killed server may take to notice it and go."""

PORT_ATTEMPTS = 5
LOG_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A signal and how many seconds the server has to obey it before the next one is tried."""

    number: signal.Signals
    wait_s: float


class LocalServer(Protocol):
    """One embedded server of one home. Everything but ``name`` is about this home."""

    name: str
    title: str
    wheel: str
    home: Path
    folder: Path
    log: Path
    mark: ProcessIdentity
    stop_orders: Sequence[StopOrder]

    def find(self) -> Running | None:
        """The server that runs on the current data, whoever started it."""
        ...

    def prepare(self, passwords: Passwords, keep_open: int) -> None:
        """Makes or checks data and configuration before a start. ``keep_open`` is for the processes it runs."""
        ...

    def launch(self, port: int, keep_open: int) -> Running:
        """Starts the process and returns at once."""
        ...

    def is_ready(self, running: Running) -> bool:
        """Whether clients are served now."""
        ...

    def end_remains(self) -> None:
        """Kills what a dead server left running on its data."""
        ...


@dataclass(frozen=True, slots=True)
class Pending:
    """A server that runs and may not be ready yet; its log from ``log_from_byte`` on is about this wait."""

    server: LocalServer
    running: Running
    log_from_byte: int


def pending(server: LocalServer, running: Running) -> Pending:
    """For a server that was found running."""
    return Pending(server, running, server.log.stat().st_size if server.log.exists() else 0)


def start(server: LocalServer, wanted_port: int | None, passwords: Passwords) -> Pending:
    """Starts ``server``, which :meth:`LocalServer.find` did not find. Does not wait until it is ready.

    Args:
        wanted_port: The port to have if it is free; otherwise it gets any.

    Raises:
        LocalStackError: the data is in use out of our sight, or the server cannot be started.
    """
    guard = FileLock(server.folder / "server.lock")
    try:
        # Its pid file does not name it: its folder was removed under it, or its starter died before the file was there.
        kill_all(server.mark)
        if not guard.take_alone_within(REMAINS_WAIT_S):
            server.end_remains()
        if not guard.take_alone_within(REMAINS_WAIT_S):
            raise LocalStackError(
                f"{server.folder} is in use by a {server.title} of another container or machine",
                hint="stop it there, or choose another folder with --home or NOETL_HOME",
            )
        server.prepare(passwords, guard.descriptor)
        log_from_byte = _put_aside_if_large(server.log)
        # Asked last: the port of a server that was killed becomes free with its lock, which is later than its death.
        port = wanted_port if wanted_port is not None and ports.is_free(wanted_port) else ports.choose_port()
        return Pending(server, server.launch(port, guard.descriptor), log_from_byte)
    finally:
        guard.close()


def wait_until_ready(pending: Pending, passwords: Passwords) -> Running:
    """Waits until the server serves. Starts it again on another port when its own was taken at the last moment.

    Raises:
        LocalStackError: it died or did not get ready; its last log lines are in the message.
    """
    server = pending.server
    for _ in range(PORT_ATTEMPTS):
        if _is_served(server, pending.running):
            return pending.running
        said = read_tail(server.log, pending.log_from_byte)
        if not says_address_taken(said):
            break
        pending = start(server, None, passwords)
    raise explain_output(f"{server.title} stopped while starting", said, server.home, server.log)


def _put_aside_if_large(log: Path) -> int:
    """Where the next run's part of ``log`` begins; a large log becomes ``.1`` first."""
    size = log.stat().st_size if log.exists() else 0
    if size <= LOG_LIMIT_BYTES:
        return size
    log.replace(log.with_name(f"{log.name}.1"))
    return 0


def _is_served(server: LocalServer, running: Running) -> bool:
    """``True`` once it is ready, ``False`` if it died first."""
    deadline = time.monotonic() + READY_WAIT_S
    while not server.is_ready(running):
        if not is_alive(running.pid):
            return False
        if time.monotonic() > deadline:
            raise LocalStackError(
                f"{server.title} (pid {running.pid}) is not ready after {READY_WAIT_S:.0f} s",
                hint=f"its log is {server.log}",
            )
        time.sleep(POLL_S)
    return True


def stop(servers: Sequence[tuple[LocalServer, Running]]) -> None:
    """Stops all of ``servers`` at the same time, asking kindly first.

    Raises:
        LocalStackError: one of them cannot be ended.
    """
    for server, running in servers:
        send(running.pid, server.stop_orders[0].number)
    for server, running in servers:
        _see_to_end(server, running)


def _see_to_end(server: LocalServer, running: Running) -> None:
    for position, order in enumerate(server.stop_orders):
        if position > 0:
            send(running.pid, order.number)
        if wait_until_gone(running.pid, order.wait_s):
            return
    raise LocalStackError(f"{server.title} (pid {running.pid}) does not stop", hint=f"kill -9 {running.pid}")
