"""Runs commands of this program in copies of a process that has imported the modules they need."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from noetl_stream.settings.sources.process_environment import show_arguments

PROGRAM: Final = "noetl-stream"

Main = Callable[[list[str]], object]
"""A function that runs a command, given its words, and exits."""


def fork_command(main: Main, words: Sequence[str], output: int | None = None, given: int | None = None) -> int | None:
    """Forks a child that calls ``main(words)`` like a new process of this program, in its own session; returns its pid.

    To be called before this process has an event loop or a connection: the child has all of its memory, but none of its
    files. ``None`` if there are threads, which a child would not have, if that cannot be known, or if there is no room
    for a child.

    Args:
        output: The descriptor that the child writes to, in place of those of this process.
        given: The descriptor that the child reads; by default there is nothing to read.
    """
    sys.stdout.flush()  # or the child would write it once more
    sys.stderr.flush()
    try:
        if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
            return None
        pid = os.fork()
    except OSError:
        return None
    if pid:
        return pid
    code: object = 1
    try:
        os.setsid()
        _keep_only(os.open(os.devnull, os.O_RDONLY) if given is None else given, output)
        show_arguments([PROGRAM, *words])
        main(list(words))
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else 1)


def _keep_only(given: int, output: int | None) -> None:
    """Makes the descriptors stdin, stdout and stderr, and closes all other files."""
    standard = {0: given} if output is None else {0: given, 1: output, 2: output}
    for number, descriptor in standard.items():
        os.dup2(descriptor, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2:
            with contextlib.suppress(OSError):  # it was the list itself
                os.close(int(name))
