"""Creates a Postgres data folder under a temporary name and renames it when it is complete."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from noetl_stream.local.diagnosis import explain_output
from noetl_stream.local.home import PRIVATE_FOLDER_MODE, sync_folder
from noetl_stream.local.ports import LOOPBACK
from noetl_stream.local.processes import CLEAN_ENVIRONMENT
from noetl_stream.local.secrets import Passwords, scram_verifier
from noetl_stream.local.system_user import SystemUser

ENGINE = "noetl"
"""The engine's database and role."""

PLAYBOOKS = "playbooks"
"""The playbooks' database and role (``auth: local_postgres``, LANGUAGE §11)."""

ADMINISTRATOR = "postgres"
"""Owns the cluster. It has no password and cannot connect."""

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
"""Written to ``postgresql.conf`` once; users may change them there."""

CLIENT_RULES = f"""\
# database    user         address         method
host all         {ENGINE}        {LOOPBACK}/32    scram-sha-256
host {PLAYBOOKS}   {PLAYBOOKS}    {LOOPBACK}/32    scram-sha-256
"""


@dataclass(frozen=True, slots=True)
class NewDataFolder:
    """A data folder that is being created.

    Attributes:
        folder: Its temporary path. Leftovers of an interrupted start are removed.
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
        """Initializes the cluster with its two roles and databases, and syncs it to disk.

        Raises:
            LocalStackError: One of Postgres' programs failed; the message has its last output.
        """
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(mode=PRIVATE_FOLDER_MODE)
        if self.user is not None:
            os.chown(self.folder, self.user.uid, self.user.gid)
        self._initialize()
        self._create_databases(passwords)
        (self.folder / "pg_hba.conf").write_text(CLIENT_RULES, encoding="utf-8")
        self._run("syncing the new Postgres data", ["initdb", "--sync-only", "-D", str(self.folder)])

    def move_to(self, target: Path) -> None:
        self.folder.rename(target)
        sync_folder(target.parent)

    def _initialize(self) -> None:
        # UTF-8 and sorting by code point, whatever locales the system has.
        text = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        # Synced once at the end. Until then `reject` lets no client in.
        access = ["-U", ADMINISTRATOR, "-A", "reject"]
        command = ["initdb", "-D", str(self.folder), *access, "--no-sync", "--no-instructions", *text, *settings]
        self._run("initializing Postgres", command)

    def _create_databases(self, passwords: Passwords) -> None:
        """Uses Postgres' single-user mode, which needs no port, connection or administrator password."""
        statements = [
            f"CREATE ROLE {ENGINE} LOGIN CREATEDB PASSWORD '{scram_verifier(passwords.noetl)}'",
            f"CREATE ROLE {PLAYBOOKS} LOGIN PASSWORD '{scram_verifier(passwords.playbooks)}'",
            *(f"CREATE DATABASE {name} OWNER {name}" for name in (ENGINE, PLAYBOOKS)),
            # Errors of a playbook's statements are in its outcome; in the log they could leak secrets.
            f"ALTER ROLE {PLAYBOOKS} SET log_min_messages = fatal",
            *(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC" for name in (ENGINE, PLAYBOOKS)),
        ]
        options = ["-F", "-c", "exit_on_error=on", "-c", "log_checkpoints=off", "-D", str(self.folder)]
        sql = "".join(f"{statement};\n" for statement in statements)
        self._run("creating the databases", ["postgres", "--single", *options, ADMINISTRATOR], sql)

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
