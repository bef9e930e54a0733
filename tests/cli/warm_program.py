"""The program, with its libraries loaded already: a third of a second less a command.

Each command is still a process of its own, with its own arguments, environment, folder, output and exit code: a fork of
one that has imported what the commands need and done nothing else. Tests about starting, about what a command leaves
running, or about terminals start the program as people do: :mod:`cli_program`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from cli_program import NOETL, PATIENCE_S, environment

import noetl_stream.cli
from noetl_stream.cli.main import main

MOST_BYTES = 200_000


def noetl(
    *arguments: object, timeout_s: float = PATIENCE_S, cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """As :func:`cli_program.noetl`."""
    words = [*map(str, arguments)]
    order = json.dumps([words, environment(**settings), str(cwd or Path.cwd())]).encode()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process_id, code = _line().order(order, [output.fileno(), errors.fileno()], timeout_s)
        if code is None:
            os.kill(process_id, signal.SIGKILL)
            _line().ended()
            raise subprocess.TimeoutExpired([*NOETL, *words], timeout_s)
        said = []
        for file in (output, errors):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess([*NOETL, *words], code, *said)


class _Line:
    """To the process that forks, one command at a time."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno())]
        devnull = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, stdin=devnull, stdout=devnull, env=environment(), pass_fds=[theirs.fileno()]
        )
        theirs.close()

    def order(self, order: bytes, streams: list[int], timeout_s: float) -> tuple[int, int | None]:
        """The process id of the command, and its exit code; none if it has not ended in time."""
        self._line.settimeout(timeout_s)
        socket.send_fds(self._line, [order], streams)
        process_id = self._told()
        try:
            return process_id, self.ended()
        except TimeoutError:
            return process_id, None

    def ended(self) -> int:
        """Waits for the end of the command; its exit code."""
        return self._told()

    def _told(self) -> int:
        told = self._line.recv(64)
        assert told, "the warm program cannot start, or has died: its last words are on stderr"
        return int(told)

    def close(self) -> None:
        self._line.close()
        self._process.wait()


@cache
def _line() -> _Line:
    line = _Line()
    atexit.register(line.close)
    return line


def _serve(line: socket.socket) -> None:
    """Forks a process for each order; returns in that process, or when nobody orders any more."""
    while True:
        order, streams, _, _ = socket.recv_fds(line, MOST_BYTES, 2)
        if not order:
            sys.exit(0)
        process_id = os.fork()
        if not process_id:
            line.close()
            _become(order, streams)
            return
        for stream in streams:
            os.close(stream)
        line.send(str(process_id).encode())
        _, status = os.waitpid(process_id, 0)
        line.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(order: bytes, streams: list[int]) -> None:
    words, variables, folder = json.loads(order)
    for number, stream in enumerate(streams, start=1):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.argv[1:] = words


if __name__ == "__main__":
    for module in pkgutil.iter_modules(noetl_stream.cli.__path__):
        with contextlib.suppress(Exception):  # a command that cannot be loaded says why when it is used
            importlib.import_module(f"noetl_stream.cli.{module.name}")
    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main(sys.argv[1:])
