"""The embedded stack of one home folder, as each of its users sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from noetl_stream.errors import UsageError
from noetl_stream.local import passwords, ports, postgres_data, record, server
from noetl_stream.local.binaries import wheel_version
from noetl_stream.local.credential_key import load_or_make_key
from noetl_stream.local.diagnosis import system_errors_explained
from noetl_stream.local.home import Home, prepare_home
from noetl_stream.local.locks import FileLock, held_alone
from noetl_stream.local.nats_server import NatsServer
from noetl_stream.local.passwords import Passwords
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.processes import Running, command_of, reap
from noetl_stream.local.record import ServerRecord
from noetl_stream.local.server import LocalServer, Pending

BUSY = "another command has been starting or stopping the local stack for too long"


@dataclass(frozen=True, slots=True)
class StackAddress:
    """How to reach the stack. The three addresses hold passwords, so they are not in its ``repr``; nor is the key."""

    nats_url: str = field(repr=False)
    postgres_dsn: str = field(repr=False)
    playbooks_dsn: str = field(repr=False)
    credential_key: str = field(repr=False)
    home: Path


class EmbeddedStack:
    """A use of the stack under one home; make it with :meth:`join`. As a context manager it leaves at the end.

    All methods block; they may be called from any thread, and in a program with an event loop from a thread only. Any
    number of uses may exist, in one process or many, and a use ends with its process however that ends. The servers
    outlive the process that started them, until the last use is left.

    Attributes:
        address: How to reach the servers now. :meth:`revive` may change it.
        notices: Lines a person should see, such as that a port had to change.
    """

    address: StackAddress
    notices: list[str]

    def __init__(self, home: Home, in_use: FileLock) -> None:
        self._home = home
        self._in_use: FileLock | None = in_use
        self._nats = NatsServer(home)
        self._postgres = PostgresServer(home)
        self._servers: tuple[LocalServer, ...] = (self._nats, self._postgres)
        self._running: dict[str, Running] = {}
        self.notices = []

    @classmethod
    def join(cls, home: Path) -> Self:
        """Uses the stack under ``home``; makes the home and starts what does not run.

        Raises:
            UsageError: ``home`` is a file, or lies under one.
            LocalStackError: a server cannot run: rights, ports, disk, programs, data of another version.
        """
        with system_errors_explained(home):
            prepared = prepare_home(home)
            with held_alone(prepared.start_lock, BUSY):
                stack = cls(prepared, FileLock(prepared.in_use_lock))
                stack._use().share()
                try:
                    stack._ensure_running()
                except BaseException:
                    stack._leave_under_lock()
                    raise
                return stack

    def pids(self) -> dict[str, int]:
        """The process of each server, by server name, as last seen by this use."""
        return {name: running.pid for name, running in self._running.items()}

    def revive(self) -> list[str]:
        """Starts again the servers that died, on their old ports if those are free, and names them.

        Empty if all run, or if another use was faster. Read :attr:`address` afterwards.

        Raises:
            UsageError: this use was left.
            LocalStackError: as in :meth:`join`; the use goes on.
        """
        with self._alone():
            return self._ensure_running()

    def others(self) -> bool:
        """Whether anyone else uses the stack now.

        Raises:
            UsageError: this use was left.
        """
        with self._alone() as in_use:
            found = not in_use.take_alone()
            in_use.share()
            return found

    def leave(self) -> bool:
        """Ends this use; the last one stops the servers, and only then is the answer ``True``.

        Leaving again does nothing.

        Raises:
            LocalStackError: a server does not stop.
        """
        if self._in_use is None:
            return False
        with system_errors_explained(self._home.root), held_alone(self._home.start_lock, BUSY):
            return self._leave_under_lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    @contextmanager
    def _alone(self) -> Iterator[FileLock]:
        with system_errors_explained(self._home.root), held_alone(self._home.start_lock, BUSY):
            yield self._use()

    def _use(self) -> FileLock:
        if self._in_use is None:
            raise UsageError(f"this use of the stack under {self._home.root} was left")
        return self._in_use

    def _ensure_running(self) -> list[str]:
        """Brings up what is down, both at the same time; names what it started."""
        secret = passwords.load_or_make(self._home, self._postgres.data)
        old_ports = record.read_ports(self._home)
        started: list[str] = []
        pending: list[Pending] = []
        for each in self._servers:
            running = each.find()
            if running is not None:
                pending.append(server.pending(each, running))
                continue
            if each.name in self._running:
                reap(self._running[each.name].pid)
            launched = server.start(each, old_ports.get(each.name), secret)
            pending.append(launched)
            self._running[each.name] = launched.running
            started.append(each.name)
        for one in pending:
            self._running[one.server.name] = server.wait_until_ready(one, secret)
            self._notice_other_port(one.server, old_ports.get(one.server.name))
        self.address = self._address(secret)
        if started or old_ports != {name: running.port for name, running in self._running.items()}:
            self._write_record()
        return started

    def _notice_other_port(self, each: LocalServer, old: int | None) -> None:
        port = self._running[each.name].port
        if old is not None and old != port:
            self.notices.append(f"port {old} of the embedded {each.title} is in use by another program: now {port}")

    def _address(self, secret: Passwords) -> StackAddress:
        nats_port = self._running[self._nats.name].port
        postgres_port = self._running[self._postgres.name].port
        return StackAddress(
            nats_url=self._nats.url(nats_port, secret),
            postgres_dsn=self._postgres.dsn(postgres_port, postgres_data.ENGINE, secret.noetl),
            playbooks_dsn=self._postgres.dsn(postgres_port, postgres_data.PLAYBOOKS, secret.playbooks),
            credential_key=load_or_make_key(self._home),
            home=self._home.root,
        )

    def _write_record(self, *, stopped: bool = False) -> None:
        record.write_record(
            self._home,
            {
                each.name: ServerRecord(
                    version=wheel_version(each.wheel),
                    port=self._running[each.name].port,
                    pid=None if stopped else self._running[each.name].pid,
                    url=f"{each.name}://{ports.LOOPBACK}:{self._running[each.name].port}",
                )
                for each in self._servers
                if each.name in self._running
            },
        )

    def _leave_under_lock(self) -> bool:
        in_use = self._use()
        self._in_use = None
        try:
            last = in_use.take_alone()
            if last:
                self._stop_all()
            return last
        finally:
            in_use.close()

    def _stop_all(self) -> None:
        server.stop([(each, running) for each in self._servers if (running := self._find(each)) is not None])
        self._write_record(stopped=True)

    def _find(self, each: LocalServer) -> Running | None:
        """Also finds what was launched a moment ago and has not written its pid file."""
        launched = self._running.get(each.name)
        found = each.find()
        if found is None and launched is not None and command_of(launched.pid, each.mark) is not None:
            return launched
        return found
