"""The embedded stack of one home folder, shared by its users, and its record in ``stack.json``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from noetl_stream.errors import LocalStackError, UsageError
from noetl_stream.local import server_process as server
from noetl_stream.local.binaries import wheel_version
from noetl_stream.local.home import FileLock, Home, exclusive_lock, prepare_home, write_private
from noetl_stream.local.nats_server import NatsServer
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.processes import LOOPBACK, Running, command_of, reap
from noetl_stream.local.secrets import (
    OWNER,
    PLAYBOOKS,
    POSTGRES_USERS,
    Keys,
    Secrets,
    load_or_create_secrets,
    save_passwords,
)
from noetl_stream.local.server_process import LocalServer, StartingServer
from noetl_stream.local.startup_errors import system_errors_explained
from noetl_stream.sealing.keys import Unprinted
from noetl_stream.settings.sources.environment import DEFAULT_POOL

log = logging.getLogger(__name__)

RECORD_FORMAT: Final = 1
BUSY = "another command is starting or stopping the local stack and does not finish"


class StackAddress(Unprinted, frozen=True):
    """The addresses and secrets of the stack, by identity.

    Attributes:
        nats_url: The URL without a user, which a seed identifies.
        seeds: Seeds of NATS users, by identity.
        dsns: DSNs by Postgres user: ``noetl`` owns the engine's schema, ``noetl_server``, ``noetl_gateway`` and
            ``noetl_reader`` have the rights of these roles, ``playbooks`` owns the playbooks' database.
    """

    nats_url: str
    seeds: Mapping[str, str]
    dsns: Mapping[str, str]
    keys: Keys
    home: Path

    @property
    def postgres_dsn(self) -> str:
        """The DSN of the owner of the engine's database."""
        return self.dsns[OWNER]

    @property
    def playbooks_dsn(self) -> str:
        return self.dsns[PLAYBOOKS]


class EmbeddedStack:
    """A use of the stack of one home, created by :meth:`join`. As a context manager it leaves on exit.

    All methods block: in a program with an event loop, call them from a thread. Any number of processes may have any
    number of uses; a use ends with its process, however that ends. The servers outlive the process that started them,
    until the last use is left.

    Attributes:
        address: The addresses of the servers. :meth:`revive` may change it.
        notices: Messages for the user, for example that a port changed.
    """

    address: StackAddress
    notices: list[str]

    def __init__(self, home: Home, in_use: FileLock, pool: str, trigger_streams: Sequence[str]) -> None:
        self._home = home
        self._pool = pool
        self._publishes = bool(trigger_streams)
        self._in_use: FileLock | None = in_use
        self._nats = NatsServer(home, trigger_streams)
        self._postgres = PostgresServer(home)
        self._servers: tuple[LocalServer, ...] = (self._nats, self._postgres)
        self._running: dict[str, Running] = {}
        self.notices = []

    @classmethod
    def join(cls, home: Path, pool: str = DEFAULT_POOL, trigger_streams: Sequence[str] = ()) -> Self:
        """Joins the stack of ``home``. Creates the home and starts the servers as needed.

        Args:
            pool: A pool whose workers get a NATS user.
            trigger_streams: The streams that triggers may read; none: unchanged.

        Raises:
            UsageError: ``home`` is a file, or under one.
            LocalStackError: A server cannot run: permissions, ports, disk, programs, data of another version.
        """
        with system_errors_explained(home), _locked_home(home) as prepared:
            stack = cls(prepared, FileLock(prepared.in_use_lock), pool, trigger_streams)
            stack._use().share()
            log.info("starting NATS and Postgres, unless they run")
            try:
                stack._ensure_running()
            except BaseException:
                stack._leave_under_lock()
                raise
            return stack

    def is_prepared(self, digest: str) -> bool:
        """Returns whether the last preparation of the schema and the streams had this digest."""
        try:
            return self._home.prepared.read_text(encoding="utf-8") == digest
        except OSError:
            return False

    def note_prepared(self, digest: str) -> None:
        """Records a preparation, so that later commands skip the same one."""
        if not self.is_prepared(digest):
            write_private(self._home.prepared, digest)

    def pids(self) -> dict[str, int]:
        """Returns the pids of the servers by name, as last seen by this use."""
        return {name: running.pid for name, running in self._running.items()}

    def revive(self) -> list[str]:
        """Restarts servers that died, on their old ports if possible, and returns their names.

        The list is empty if all run or another use restarted them. Read :attr:`address` afterwards.

        Raises:
            UsageError: This use has been left.
            LocalStackError: As for :meth:`join`. The use continues.
        """
        with self._start_locked():
            return self._ensure_running()

    def has_other_users(self) -> bool:
        """Returns whether the stack has other users.

        Raises:
            UsageError: This use has been left.
        """
        with self._start_locked() as in_use:
            found = not in_use.try_exclusive()
            in_use.share()
            return found

    def leave(self) -> bool:
        """Ends this use and returns whether it was the last one, which stops the servers. Leaving twice does nothing.

        Raises:
            LocalStackError: A server does not stop.
        """
        if self._in_use is None:
            return False
        with system_errors_explained(self._home.root), exclusive_lock(self._home.start_lock, BUSY):
            return self._leave_under_lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()

    @contextmanager
    def _start_locked(self) -> Iterator[FileLock]:
        with system_errors_explained(self._home.root), exclusive_lock(self._home.start_lock, BUSY):
            yield self._use()

    def _use(self) -> FileLock:
        if self._in_use is None:
            raise UsageError(f"the stack under {self._home.root} has already been left")
        return self._in_use

    def _ensure_running(self) -> list[str]:
        """Starts the servers that are down, concurrently, and returns their names."""
        secrets = load_or_create_secrets(self._home, self._postgres.data, self._pool, publishes=self._publishes)
        self._refuse_older_servers(secrets)
        old_ports = read_ports(self._home)
        found = [(each, each.find()) for each in self._servers]
        starting = [
            StartingServer(each, running, each.log.stat().st_size if each.log.exists() else 0)
            for each, running in found
            if running is not None
        ]
        down = [each for each, running in found if running is None]
        if down:
            starting += self._start(down, old_ports, secrets)
        for one in starting:
            self._running[one.server.name] = server.wait_until_ready(one, secrets)
            self._notice_port_change(one.server, old_ports.get(one.server.name))
        if not secrets.passwords.stored:
            save_passwords(self._home, secrets.passwords)
        self._nats.update(secrets, self._running[self._nats.name])
        self.address = self._address(secrets)
        if down or old_ports != {name: running.port for name, running in self._running.items()}:
            self._write_record()
        return [each.name for each in down]

    def _start(
        self, down: Sequence[LocalServer], old_ports: Mapping[str, int], secrets: Secrets
    ) -> Sequence[StartingServer]:
        """Starts servers side by side: NATS starts while Postgres makes its folder."""
        from concurrent.futures import ThreadPoolExecutor  # most commands start nothing

        def start(each: LocalServer) -> StartingServer:
            if each.name in self._running:
                reap(self._running[each.name].pid)
            launched = server.start(each, old_ports.get(each.name), secrets)
            self._running[each.name] = launched.running
            return launched

        with ThreadPoolExecutor(len(down)) as threads:
            return list(threads.map(start, down))

    def _notice_port_change(self, each: LocalServer, old: int | None) -> None:
        port = self._running[each.name].port
        if old is not None and old != port:
            self.notices.append(f"port {old} of the embedded {each.title} is in use by another program; using {port}")

    def _refuse_older_servers(self, secrets: Secrets) -> None:
        """Refuses servers of an older version, which have no users for this one."""
        if not secrets.passwords.stored and any(each.find() is not None for each in self._servers):
            message = f"the servers under {self._home.root} were started by an older noetl-stream"
            raise LocalStackError(message, hint="stop the commands that use them, then run this again")

    def _address(self, secrets: Secrets) -> StackAddress:
        postgres_port = self._running[self._postgres.name].port
        return StackAddress(
            nats_url=self._nats.url(self._running[self._nats.name].port),
            seeds=secrets.seeds,
            dsns={user: self._postgres.dsn(postgres_port, user, secrets.passwords) for user in POSTGRES_USERS},
            keys=secrets.keys,
            home=self._home.root,
        )

    def _write_record(self, *, stopped: bool = False) -> None:
        """Writes ``stack.json``, which contains no passwords. A server's ``pid`` is null while it is stopped."""
        servers = {
            each.name: {
                "version": wheel_version(each.wheel),
                "port": running.port,
                "pid": None if stopped else running.pid,
                "url": f"{each.name}://{LOOPBACK}:{running.port}",
            }
            for each in self._servers
            if (running := self._running.get(each.name)) is not None
        }
        from noetl_stream import __version__  # looking it up takes as long as a command that reads

        record = {"format": RECORD_FORMAT, "noetl_stream": __version__, "servers": servers}
        write_private(self._home.record, json.dumps(record, indent=2) + "\n")
        if not stopped:
            write_private(self._home.services, self._services())

    def _services(self) -> str:
        """Returns connections for ``psql service=…``: the engine's tables for a reader, and the playbooks' database."""
        found = []
        for service, user in ((OWNER, "noetl_reader"), (PLAYBOOKS, PLAYBOOKS)):
            parts = urlsplit(self.address.dsns[user])
            found.append(f"[{service}]\nhost={parts.hostname}\nport={parts.port}\ndbname={parts.path[1:]}\n")
            found.append(f"user={parts.username}\npassword={parts.password}\nsslmode=disable\n")
        return "".join(found)

    def _leave_under_lock(self) -> bool:
        in_use = self._use()
        self._in_use = None
        try:
            last = in_use.try_exclusive()
            if last:
                self._stop_all()
            return last
        finally:
            in_use.close()

    def _stop_all(self) -> None:
        server.stop([(each, running) for each in self._servers if (running := self._find(each)) is not None])
        self._write_record(stopped=True)

    def _find(self, each: LocalServer) -> Running | None:
        """Finds a server, even one that was just launched and has not written its pid file."""
        launched = self._running.get(each.name)
        found = each.find()
        if found is None and launched is not None and command_of(launched.pid, each.identity) is not None:
            return launched
        return found


@contextmanager
def _locked_home(folder: Path) -> Iterator[Home]:
    """Holds the start lock of a home, made if it is missing."""
    while True:
        home = prepare_home(folder)
        with exclusive_lock(home.start_lock, BUSY) as lock:
            if lock.is_current():
                yield home
                return


def is_running(home: Path) -> bool:
    """Returns whether the servers of a home run."""
    found = Home(home.resolve())
    return all(server.find() is not None for server in (NatsServer(found), PostgresServer(found)))


def read_ports(home: Home) -> dict[str, int]:
    """Returns the port that each server last used, by server name.

    The record is a cache for users and for the next start; the system knows whether a server runs. If the record is
    lost or damaged, only the old port numbers are lost.
    """
    try:
        servers = json.loads(home.record.read_text(encoding="utf-8"))["servers"]
        return {name: int(server["port"]) for name, server in servers.items()}
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return {}
