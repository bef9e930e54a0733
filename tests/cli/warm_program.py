"""The program, forked from a process that has its libraries loaded: a third of a second less a command.

Each command is still a process of its own, with its own arguments, environment, folder, output and exit code. Tests
about starting, about what a command leaves running, or about terminals start the program as people do:
:mod:`cli_program`.
"""

from __future__ import annotations

import multiprocessing
import os
import pkgutil
import subprocess
import tempfile
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

from cli_program import NOETL, PATIENCE_S, environment

import noetl_stream.cli


def noetl(
    *arguments: object, timeout_s: float = PATIENCE_S, cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """As :func:`cli_program.noetl`."""
    words = [*map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, "stdout"), Path(folder, "stderr")]
        process = _warm().Process(
            target=_command, args=(words, environment(**settings), cwd or Path.cwd(), streams), daemon=True
        )
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired([*NOETL, *words], timeout_s)
        output, errors = [stream.read_text() for stream in streams]
    return subprocess.CompletedProcess([*NOETL, *words], process.exitcode, output, errors)


@cache
def _warm() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    commands = [module.name for module in pkgutil.walk_packages(noetl_stream.cli.__path__, "noetl_stream.cli.")]
    context.set_forkserver_preload(commands)
    return context


def _command(words: list[str], variables: dict[str, str], folder: Path, streams: list[Path]) -> None:
    for number, stream in enumerate(streams, start=1):
        descriptor = os.open(stream, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)

    from noetl_stream.cli.main import main

    main(words)
