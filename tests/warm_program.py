"""The program, forked from a process that has its libraries loaded: a third of a second less a command.

Each command is still a process of its own, with its own arguments, environment, folder, streams and exit code. Tests
about starting, about what a command leaves running, about signals or terminals start the program as people do:
:mod:`cli_program`.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from threading import Lock

import noetl_stream
from cli_program import NOETL, PATIENCE_S, environment

LOADED_PACKAGES = ("cli", "client", "engine", "local", "tools")
LOADED_MODULES = ("noetl_stream.hosting", "noetl_stream.wiring", "uvloop")
"""What is imported before any command, among it what most commands import only once they need it."""

_one_at_a_time = Lock()
"""Whoever starts a process looks after the others, too, and multiprocessing takes no two who look at once."""


def noetl(
    *arguments: object, given: str = "", timeout_s: float = PATIENCE_S, cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """As :func:`cli_program.noetl`. ``given`` is its standard input."""
    with _one_at_a_time, ExitStack() as folders:
        started = _Started.with_input(given, arguments, cwd, settings, folders)
        return started.end(timeout_s)


def all_at_once(commands: Iterable[Sequence[object]], **settings: str) -> list[subprocess.CompletedProcess[str]]:
    """Runs commands side by side."""
    with _one_at_a_time, ExitStack() as folders:
        started = [_Started.with_input("", words, None, settings, folders) for words in commands]
        return [one.end(PATIENCE_S) for one in started]


@dataclass
class _Started:
    """A command that runs, with files for its standard streams."""

    words: list[str]
    process: ForkServerProcess
    streams: list[Path]

    @classmethod
    def with_input(
        cls, given: str, words: Sequence[object], cwd: Path | None, settings: dict[str, str], folders: ExitStack
    ) -> _Started:
        folder = folders.enter_context(tempfile.TemporaryDirectory())
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        for stream, text in zip(streams, (given, "", ""), strict=True):
            stream.write_text(text)
        arguments = [*map(str, words)]
        process = _warm().Process(
            target=_command, args=(arguments, environment(**settings), cwd or Path.cwd(), streams), daemon=True
        )
        process.start()
        return cls(arguments, process, streams)

    def end(self, timeout_s: float) -> subprocess.CompletedProcess[str]:
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            raise subprocess.TimeoutExpired([*NOETL, *self.words], timeout_s)
        _, output, errors = [stream.read_text() for stream in self.streams]
        return subprocess.CompletedProcess([*NOETL, *self.words], self.process.exitcode, output, errors)


@cache
def _warm() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    modules = [
        module.name
        for package in LOADED_PACKAGES
        for module in pkgutil.walk_packages([f"{noetl_stream.__path__[0]}/{package}"], f"noetl_stream.{package}.")
    ]
    context.set_forkserver_preload([*modules, *LOADED_MODULES])
    return context


def _command(words: list[str], variables: dict[str, str], folder: Path, streams: list[Path]) -> None:
    for number, stream in enumerate(streams):
        descriptor = os.open(stream, os.O_RDWR)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)

    from noetl_stream.cli.main import main

    main(words)
