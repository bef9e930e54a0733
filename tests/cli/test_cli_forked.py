"""``run`` forks its background process, and that its first worker, which holds no more than one that was started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli_program import PATIENCE_S, all_gone, environment, processes_of, start
from noetl_stream.local.background import COMMAND

pytestmark = [
    pytest.mark.xdist_group("own_stacks"),
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="workers are forked on Linux"),
]

FORK = """
import asyncio, json, os, socket, sys, threading
from noetl_stream.hosting.processes import fork

def show(words):
    about = {"words": words, "pid": os.getpid(), "session": os.getsid(0), "told": os.read(0, 100).decode()}
    about["command"] = open("/proc/self/cmdline").read().split("\\0")
    about["files"] = [int(name) for name in os.listdir("/proc/self/fd")]
    print(json.dumps(about), flush=True)
    sys.exit(3)

with socket.socket() as held:
    if sys.argv[1:] == ["threads"]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    child = fork(show, "worker")
    if child is None:
        sys.exit("not forked")
    child.tell(b"hello")
    sys.exit(asyncio.run(child.wait()))
"""


def forked_with(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FORK, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**settings), check=False)


def test_a_fork_has_a_session_and_arguments_of_its_own_and_no_file_of_its_parent() -> None:
    found = forked_with()
    assert found.returncode == 3, found.stderr
    about: dict[str, Any] = json.loads(found.stdout)
    assert about["words"] == ["worker", "--end-with-parent"]
    assert about["command"][:3] == ["noetl-stream", *about["words"]]
    assert about["session"] == about["pid"]
    assert about["told"] == "hello"
    listing = max(about["files"])
    assert sorted({*about["files"]} - {listing}) == [0, 1, 2]


@pytest.mark.parametrize("name", ["NOETL_CREDENTIAL_SHOP", "NOETL_SERVER_KEY", "NOETL_TOKEN_FILE"])
def test_a_process_with_a_secret_in_its_environment_is_not_forked(name: str) -> None:
    assert forked_with(**{name: "x"}).stderr == "not forked\n"


def test_a_process_with_threads_is_not_forked() -> None:
    assert forked_with("threads").stderr == "not forked\n"


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; empty if it is gone by now."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def files_in(process: psutil.Process) -> str:
    """The paths of what is mapped into its memory."""
    return " ".join(one.path for one in process.memory_maps())


def test_a_forked_worker_is_replaced_when_it_is_killed_and_ends_with_its_parent(own_home: Path, waiting: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gate:
        gate.settimeout(PATIENCE_S)
        run = start("run", waiting, "--set", f"gate={gate.getsockname()[1]}", "--home", own_home)
        line, _ = gate.accept()
    run.send_signal(signal.SIGINT)  # it would start another background process
    run.communicate(timeout=PATIENCE_S)
    [background] = [found for found in processes_of(own_home) if COMMAND in found.cmdline()]
    assert background.cmdline()[0] == "noetl-stream", "it was started, not forked"
    [forked] = [child for child in background.children() if "worker" in words_of(child)]
    assert "--pool" not in forked.cmdline(), "it was started, not forked"
    if os.geteuid() == 0:  # roles are hidden from others of their user
        assert "/asyncpg/" in files_in(background)
        assert "/asyncpg/" not in files_in(forked), "a worker knows no Postgres"
    forked.kill()
    while not (started := [child for child in background.children() if "--pool" in words_of(child)]):
        assert background.is_running()
    background.kill()
    assert all_gone(started)
    line.close()
