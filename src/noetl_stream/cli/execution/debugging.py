"""The terminal of ``run --pdb``, on which the functions of an execution are debugged where they raised.

The process of a function requests lines from a socket and writes its output to it. It has no other access to the
terminal: text typed after the end of the command is not its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from typing import Final, Self

from noetl_stream.cli.base.session import Target, gateway_of
from noetl_stream.errors import UsageError
from noetl_stream.local.background import Background
from noetl_stream.settings.sources.environment import Settings

ASKS: Final = b"\0"
"""The byte by which the debugger requests a line (:class:`noetl_stream.tools.python.line.Terminal`)."""

_QUIT: Final = b"q\n"
_READ_BYTES: Final = 4096
_ENDING_S: Final = 3.0
"""The wait for the end of an earlier command's stack."""
_POLL_S: Final = 0.1


class DebuggerTerminal:
    """This terminal, for a debugger at the other end of a socket."""

    @classmethod
    def of(cls, target: Target, settings: Settings) -> Self:
        """The terminal of a command.

        Raises:
            UsageError: the functions would not run in a worker that this command starts, or there is no terminal.
        """
        here = "debug on this machine: --home DIR"
        if (gateway := gateway_of(target, settings)) is not None:
            raise UsageError(f"--pdb cannot be used with {gateway.name}: its workers are not this command's", hint=here)
        if settings.nats_url is not None:
            raise UsageError("--pdb: NOETL_NATS_URL names servers that have workers of their own", hint=here)
        if not sys.stdin.isatty():
            raise UsageError("--pdb: stdin is not a terminal", hint="run it on a terminal")
        return cls()

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._terminal = os.open(os.ttyname(sys.stdin.fileno()), os.O_RDWR | os.O_NOCTTY)

    def attach(self, background: Background, settings: Settings) -> None:
        """Connects the debugger to the worker of a background. Prepares its stack once that of an earlier command is
        down.

        Raises:
            UsageError: another stack runs in this home: its workers would take the tasks.
        """
        background.debugger = self._theirs.fileno()
        ends_s = time.monotonic() + _ENDING_S
        while not background.is_stack_down:
            if time.monotonic() > ends_s:
                hint = "end it, or debug in another folder: --home DIR"
                raise UsageError(f"--pdb: a stack with workers of its own runs in {settings.home}", hint=hint)
            time.sleep(_POLL_S)
            background.prepare()

    def start(self) -> None:
        """Serves the debugger from now on."""
        threading.Thread(target=self._serve, name="terminal", daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the terminal or the debugger is gone
            while shown := self._ours.recv(_READ_BYTES):
                for number, text in enumerate(shown.split(ASKS)):
                    if number > 0:
                        self._ours.sendall(os.read(self._terminal, _READ_BYTES) or _QUIT)
                    os.write(self._terminal, text)
