"""Real Postgres on loopback: one, or a primary and a standby that can be promoted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from nats_process import free_port
from noetl_stream.local.binaries import find_postgres_programs
from noetl_stream.local.processes import allow_access, allow_traversal, postgres_user

SETTINGS = {"fsync": "off", "jit": "off", "max_connections": "100", "shared_buffers": "32MB", "wal_keep_size": "256MB"}


class Postgres:
    """One of them, with its data in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._programs = find_postgres_programs()
        self._user = postgres_user()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@{self.host}/{database}?sslmode=disable"

    def initialize(self) -> None:
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        self.run("initdb", "-D", str(self.folder), "-U", "postgres", "-A", "trust", "--no-sync", *options)
        self.add_rule("host replication all 127.0.0.1/32 trust")

    def add_rule(self, line: str) -> None:
        with (self.folder / "pg_hba.conf").open("a") as rules:
            rules.write(line + "\n")

    def copy(self, primary: Postgres, name: str) -> None:
        """Makes this a standby, which the primary knows by ``name``."""
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={name}"
        self.run("pg_basebackup", "-D", str(self.folder), "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def start(self, *options: str) -> None:
        """Returns when it answers, if only that it takes no connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.folder), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", *options]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())
        pid_file = self.folder / "postmaster.pid"
        while not (pid_file.exists() and re.search("ready|standby", pid_file.read_text())):
            assert self._process.poll() is None, log.name
            time.sleep(0.02)

    def promote(self) -> None:
        """Returns when it can be written."""
        self.run("pg_ctl", "promote", "-D", str(self.folder), "-w")

    def freeze(self) -> None:
        """Neither it nor its system says anything any more, and connections stay open: as a host that is cut off."""
        for process in self._processes():
            process.suspend()

    def kill(self) -> None:
        """At once, as when its machine ends; the system ends its connections."""
        assert self._process is not None
        for process in self._processes():
            with suppress(psutil.NoSuchProcess):  # a backend that has ended meanwhile
                process.kill()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        if self._process is not None:
            self.kill()

    def run(self, program: str, *words: str) -> str:
        """What it prints."""
        ran = subprocess.run(
            [str(self._programs / program), *words], capture_output=True, text=True, check=False, **self._as_user()
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def _processes(self) -> list[psutil.Process]:
        assert self._process is not None
        postmaster = psutil.Process(self._process.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def _as_user(self) -> dict[str, object]:
        found: dict[str, object] = {"cwd": "/"}
        return found if self._user is None else {**found, "user": self._user.uid, "group": self._user.gid}


class PostgresPair:
    """A primary and its standby, which is synchronous if the test says so."""

    def __init__(self, primary: Postgres, standby: Postgres) -> None:
        self.primary = primary
        self.standby = standby

    def dsn(self, database: str = "postgres", user: str = "postgres", *, attrs: str = "read-write") -> str:
        """Of both, the primary first."""
        hosts = f"{self.primary.host},{self.standby.host}"
        return f"postgresql://{user}@{hosts}/{database}?sslmode=disable&target_session_attrs={attrs}"

    def fail_over(self, *, silently: bool = False) -> None:
        """The primary goes, and the standby is promoted. ``silently``: nobody hears of its end."""
        if silently:
            self.primary.freeze()
        else:
            self.primary.kill()
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    def repair(self) -> None:
        """Makes the former primary a synchronous standby."""
        self.standby.end()
        shutil.rmtree(self.standby.folder)
        self.standby.copy(self.primary, "standby")
        self.standby.start()
        wait_for_standby(self.primary)


def wait_for_standby(primary: Postgres) -> None:
    """Has commits wait for the standby from now on."""
    sql(primary, "alter system set synchronous_standby_names = 'standby'")
    sql(primary, "select pg_reload_conf()")


@contextmanager
def one_postgres(rules: str) -> Iterator[Postgres]:
    """One alone, whose ``pg_hba.conf`` has these rules after one for ``postgres``, who needs no password."""
    with _folder() as folder:
        server = Postgres(folder / "primary")
        server.initialize()
        (server.folder / "pg_hba.conf").write_text(f"host all postgres 127.0.0.1/32 trust\n{rules}")
        try:
            server.start()
            yield server
        finally:
            server.end()


@contextmanager
def postgres_pair(*statements: str, synchronous: bool = True) -> Iterator[PostgresPair]:
    """``statements`` run on the primary before the standby is made."""
    with _folder() as folder:
        primary, standby = Postgres(folder / "primary"), Postgres(folder / "standby")
        try:
            primary.initialize()
            primary.start()
            for statement in statements:
                sql(primary, statement)
            standby.copy(primary, "standby")
            standby.start()
            if synchronous:
                wait_for_standby(primary)
            yield PostgresPair(primary, standby)
        finally:
            primary.end()
            standby.end()


@contextmanager
def _folder() -> Iterator[Path]:
    """For a Postgres that may run as another user."""
    folder = Path(tempfile.mkdtemp(prefix="noetl-pair-"))
    user = postgres_user()
    if user is not None:
        os.chown(folder, user.uid, user.gid)
        allow_access(find_postgres_programs(), user)
        allow_traversal(folder / "primary", user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sql(server: Postgres, statement: str) -> None:
    server.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, server.dsn())
