"""Real servers under real homes. A home is made once and copied, so that most tests pay for a warm start only."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from in_memory import quick_folder
from noetl_stream.local import EmbeddedStack

USER_PROGRAM = """
import json, sys
from pathlib import Path
from noetl_stream.local import EmbeddedStack, cluster_archive
if len(sys.argv) > 2:
    cluster_archive.FOLDER = Path(sys.argv[2])
stack = EmbeddedStack.join(Path(sys.argv[1]))
print(json.dumps(stack.pids()), flush=True)
sys.stdin.readline()
print(json.dumps(stack.leave()), flush=True)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for homes.

    Not ``tmp_path``: each pytest session of root makes the folder above that private, so that Postgres' system user can
    no longer reach its data, even in another session.
    """
    with removed_at_the_end() as folder:
        yield folder


@contextmanager
def removed_at_the_end() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="noetl-local-", dir=quick_folder())).resolve()
    yield folder
    end_servers_under(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def made_home() -> Iterator[Path]:
    """A home whose servers were started once and stopped."""
    with removed_at_the_end() as folder:
        EmbeddedStack.join(folder / "home").leave()
        yield folder / "home"


@pytest.fixture
def home(made_home: Path) -> Iterator[Path]:
    """The made home, stopped, for tests that do not damage it."""
    yield made_home
    end_servers_under(made_home)


@pytest.fixture
def own_home(made_home: Path, place: Path) -> Path:
    """A copy of the made home, for tests that damage it."""
    copied = place / "home"
    subprocess.run(["cp", "-a", str(made_home), str(copied)], check=True)
    (copied / "stack.json").unlink()
    return copied


@pytest.fixture
def fresh_home(place: Path) -> Path:
    """A home that was never used."""
    return place / "fresh"


@pytest.fixture
def new_user() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts another process that joins a home, prints the pids, and leaves at a line on its stdin. It may be given
    another folder to look for archives of clusters in.
    """
    started: list[subprocess.Popen[str]] = []

    def start(*folders: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", USER_PROGRAM, *map(str, folders)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def servers_under() -> Callable[[Path], list[int]]:
    return find_servers_under


def find_servers_under(folder: Path) -> list[int]:
    """Every server process that serves ``folder``, or makes its data; without zombies and without their children.

    A process that Postgres has just forked still has the command line of its parent.
    """
    found: dict[int, int] = {}
    for process in psutil.process_iter(["name", "cmdline", "status", "ppid"]):
        about = process.info
        ours = any(part.startswith(f"{folder}/") for part in about["cmdline"] or [])
        if ours and about["name"] in {"nats-server", "postgres", "initdb"} and about["status"] != psutil.STATUS_ZOMBIE:
            found[process.pid] = about["ppid"]
    return [pid for pid, parent in found.items() if parent not in found]


def end_servers_under(folder: Path) -> None:
    """Kills what a failed test has left running."""
    for pid in find_servers_under(folder):
        os.kill(pid, signal.SIGKILL)


NOBODY = 65534


@pytest.fixture
def as_nobody(made_home: Path) -> Callable[[Callable[[], str]], str]:
    """Runs a function in a fork of this process that is an ordinary user, and returns what it returned.

    A fork, because that user may not be able to reach this Python, which has all its modules loaded by now:
    the made home needed them.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return run_as_nobody


def run_as_nobody(function: Callable[[], str]) -> str:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_drop_and_run, args=(function, sender))
    child.start()
    sender.close()
    outcome = receiver.recv()
    child.join()
    assert isinstance(outcome, str)
    return outcome


def _drop_and_run(function: Callable[[], str], sender: Connection) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    try:
        sender.send(function())
    except BaseException:
        sender.send(traceback.format_exc())
