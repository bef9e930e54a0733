"""Child processes of this program: detached in the background for ``run``, supervised for ``dev``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from noetl_stream.errors import LocalStackError
from noetl_stream.hosting import StackAccess
from noetl_stream.settings.environment import Settings, child_environment
from noetl_stream.settings.tools import HTTP_ALLOW_VARIABLE

log = logging.getLogger(__name__)

RESTART_S = 1.0
STOP_S = 20.0


def command_line(*arguments: str) -> list[str]:
    """This program with other arguments."""
    return [sys.executable, "-m", "noetl_stream.cli.main", *arguments]


class Background:
    """The server and worker that ``run`` starts when it finds none. They outlive it, and end by themselves."""

    def __init__(self, settings: Settings, stack: StackAccess) -> None:
        self._settings = settings
        self._place = stack
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts them, unless this process has, and they still run.

        Raises:
            LocalStackError: they cannot be started, or ended with an error.
        """
        code = self._process.poll() if self._process is not None else 0
        if code is None:
            return
        embedded = self._place.embedded
        home = ["--home", str(embedded.address.home)] if embedded is not None else []
        output = embedded.address.home / "background.log" if embedded is not None else Path(os.devnull)
        if code > 0:
            why = f"its log is {output}" if embedded is not None else "run `noetl-stream server` to see why"
            raise LocalStackError(f"the server started in the background ended with code {code}", hint=why)
        try:
            with output.open("ab") as sink:
                self._process = subprocess.Popen(
                    command_line("background", *home),
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                )
        except OSError as error:
            raise LocalStackError(f"cannot start a server in the background: {error.strerror}") from None


def end_with_parent() -> None:
    """For a child of :class:`Supervised`: ends this process in order when its parent is gone, however it went."""

    def wait() -> None:
        # The parent holds the other end of our stdin and never writes to it: the kernel tells us when it is closed.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


class Supervised:
    """A child that is started again when it dies, until :meth:`stop`; it also ends when this process does."""

    def __init__(self, title: str, arguments: Sequence[str], stack: StackAccess) -> None:
        self.title = title
        self._arguments = command_line(*arguments, "--end-with-parent")
        self._needs_keys = arguments[0] in ("server", "gateway")
        self._place = stack
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Runs the child for ever, each time in the place as it is then."""
        while not self._stopping:
            endpoint = self._place.endpoint
            keys = endpoint.credential_keys if self._needs_keys else ()
            environment = child_environment(endpoint.nats_url, endpoint.postgres_dsn, endpoint.credentials, keys)
            if self._place.embedded is not None and not environment.get(HTTP_ALLOW_VARIABLE):
                environment[HTTP_ALLOW_VARIABLE] = "loopback"  # the child cannot tell that its servers are embedded
            # In a session of its own: a Ctrl-C is for us, and we end our children in order.
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments, env=environment, stdin=asyncio.subprocess.PIPE, start_new_session=True
            )
            code = await self._process.wait()
            if not self._stopping:
                log.warning("%s ended with code %s: starting it again", self.title, code)
                await asyncio.sleep(RESTART_S)

    def move(self) -> None:
        """Ends the child, so that it starts again where the place is now."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def stop(self) -> None:
        """Asks the child to end, and kills it if it does not."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()
