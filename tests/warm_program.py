"""The program, forked from a process that has its libraries loaded: half a second less for a command.

Each command is still a process of its own, with its own arguments, environment, folder, streams, signals and exit code.
Tests about starting, about what a command leaves running, about terminals start the program as people do:
:mod:`cli_program`.
"""

from __future__ import annotations

import atexit
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from cli_program import NOETL, PATIENCE_S, environment

SCRIPT = """\
#!{python} -IS
import json, os, signal, socket, sys

words = sys.argv[1:]
if words and words[0] in {roles} and words[1:2] != ["list"]:
    os.execv({program!r}, [{program!r}, *words])
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [json.dumps([words, os.getcwd(), dict(os.environ)]).encode() + b"\\n"], [0, 1, 2])
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: server.send(bytes([number])))
code = server.recv(1)
os._exit(code[0] if code else 1)
"""
ROLES = ("dev", "server", "worker", "gateway")
"""The commands that run until they are ended."""


def noetl(
    *arguments: object, given: str = "", timeout_s: float = PATIENCE_S, cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """As :func:`cli_program.noetl`. ``given`` is its standard input."""
    with _started(arguments, given, cwd, settings) as started:
        return started.end(timeout_s)


def all_at_once(commands: Iterable[Sequence[object]], **settings: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs commands side by side."""
    with ExitStack() as ending:
        started = [ending.enter_context(_started(words, "", None, settings)) for words in commands]
        return [one.end(PATIENCE_S) for one in started]


def write_script(folder: Path) -> Path:
    """Writes a ``noetl-stream`` for a ``PATH`` into ``folder``."""
    script = folder / "noetl-stream"
    program = str(Path(sys.executable).with_name("noetl-stream"))
    script.write_text(SCRIPT.format(python=sys.executable, roles=ROLES, program=program, address=_server().address))
    script.chmod(0o755)
    return script


@dataclass
class _Started:
    """A command that runs, with files for its output."""

    words: list[str]
    server: socket.socket
    output: IO[str]
    errors: IO[str]

    def end(self, timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.server.settimeout(timeout_s)
        try:
            code = self.server.recv(1)
        except TimeoutError:
            self.server.send(bytes([signal.SIGKILL]))
            raise subprocess.TimeoutExpired([*NOETL, *self.words], timeout_s) from None
        self.output.seek(0)
        self.errors.seek(0)
        return subprocess.CompletedProcess(
            [*NOETL, *self.words], code[0] if code else -1, self.output.read(), self.errors.read()
        )


@contextmanager
def _started(arguments: Sequence[object], given: str, cwd: Path | None, settings: dict[str, str]) -> Iterator[_Started]:
    words = [*map(str, arguments)]
    with (
        socket.socket(socket.AF_UNIX) as server,
        tempfile.TemporaryFile("w+") as stdin,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        stdin.write(given)
        stdin.seek(0)
        server.connect(_server().address)
        request = json.dumps([words, str(cwd or Path.cwd()), environment(**settings)])
        socket.send_fds(server, [f"{request}\n".encode()], [stdin.fileno(), output.fileno(), errors.fileno()])
        yield _Started(words, server, output, errors)


@dataclass
class _Server:
    address: str
    process: subprocess.Popen[bytes]


@cache
def _server() -> _Server:
    """The process that forks the commands. It is started once and ends with this one."""
    folder = tempfile.mkdtemp(prefix="noetl-warm-")
    address = f"{folder}/socket"
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm_server.py")), address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return _Server(address, process)
