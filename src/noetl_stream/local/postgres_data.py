"""A new Postgres data folder: made beside its place and moved there when it is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from noetl_stream.local.diagnosis import explain_output
from noetl_stream.local.home import PRIVATE_FOLDER_MODE, sync_folder
from noetl_stream.local.passwords import Passwords, scram_verifier
from noetl_stream.local.ports import LOOPBACK
from noetl_stream.local.processes import CLEAN_ENVIRONMENT
from noetl_stream.local.system_user import SystemUser

ENGINE = "noetl"
"""Database and role of the engine."""

PLAYBOOKS = "playbooks"
"""Database and role of playbooks (``auth: local_postgres``, LANGUAGE §11)."""

ADMINISTRATOR = "postgres"
"""Owns the cluster, has no password, and is let in over no connection."""

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
"""Written into ``postgresql.conf`` once; a person may change them there."""

CLIENT_RULES = f"""\
# database    user         address         method
host all         {ENGINE}        {LOOPBACK}/32    scram-sha-256
host {PLAYBOOKS}   {PLAYBOOKS}    {LOOPBACK}/32    scram-sha-256
"""


@dataclass(frozen=True, slots=True)
class FreshData:
    """A data folder in the making.

    Attributes:
        folder: Where it is made; what an interrupted start left there is removed.
        programs: The folder of ``initdb`` and ``postgres``.
        user: The system user that owns it, or ``None`` for ourselves.
        keep_open: The lock's descriptor that each process holds, so that none outlives it unnoticed.
        home: For messages.
    """

    folder: Path
    programs: Path
    user: SystemUser | None
    keep_open: int
    home: Path

    def make(self, passwords: Passwords) -> None:
        """Initialises the cluster, its two roles and databases, and syncs it all to disk.

        Raises:
            LocalStackError: one of Postgres' programs failed; what it said last is in the message.
        """
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=PRIVATE_FOLDER_MODE)
        if self.user is not None:
            os.chown(self.folder, self.user.uid, self.user.gid)
        self._initialise()
        self._make_databases(passwords)
        (self.folder / "pg_hba.conf").write_text(CLIENT_RULES, encoding="utf-8")
        self._run("syncing the new Postgres data", ["initdb", "--sync-only", "-D", str(self.folder)])

    def move_to(self, place: Path) -> None:
        self.folder.rename(place)
        sync_folder(place.parent)

    def _initialise(self) -> None:
        # Reads and writes UTF-8 and sorts by code point on any system, whatever locales that has.
        text = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        # Synced once at the end instead of twice; until then nobody is let in, by `reject`.
        access = ["-U", ADMINISTRATOR, "-A", "reject"]
        command = ["initdb", "-D", str(self.folder), *access, "--no-sync", "--no-instructions", *text, *settings]
        self._run("initialising Postgres", command)

    def _make_databases(self, passwords: Passwords) -> None:
        """By Postgres' single-user mode, which needs no port, no connection and no administrator's password."""
        statements = [
            f"CREATE ROLE {ENGINE} LOGIN CREATEDB PASSWORD '{scram_verifier(passwords.noetl)}'",
            f"CREATE ROLE {PLAYBOOKS} LOGIN PASSWORD '{scram_verifier(passwords.playbooks)}'",
            *(f"CREATE DATABASE {name} OWNER {name}" for name in (ENGINE, PLAYBOOKS)),
            # What is wrong with a playbook's statement stands in its outcome; the log would keep secrets from it.
            f"ALTER ROLE {PLAYBOOKS} SET log_min_messages = fatal",
            *(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC" for name in (ENGINE, PLAYBOOKS)),
        ]
        options = ["-F", "-c", "exit_on_error=on", "-c", "log_checkpoints=off", "-D", str(self.folder)]
        sql = "".join(f"{statement};\n" for statement in statements)
        self._run("making the databases", ["postgres", "--single", *options, ADMINISTRATOR], sql)

    def _run(self, doing: str, command: Sequence[str], given: str = "") -> None:
        ran = subprocess.run(
            [str(self.programs / command[0]), *command[1:]],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd="/",
            env=CLEAN_ENVIRONMENT,
            pass_fds=(self.keep_open,),
            start_new_session=True,
            umask=0o077,
            user=None if self.user is None else self.user.uid,
            group=None if self.user is None else self.user.gid,
            extra_groups=None if self.user is None else [],
        )
        if ran.returncode != 0:
            raise explain_output(f"{doing} failed", ran.stdout, self.home)
