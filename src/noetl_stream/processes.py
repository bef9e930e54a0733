"""Child processes of this program: detached for ``run``, supervised for ``dev``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from noetl_stream.errors import LocalStackError
from noetl_stream.hosting import StackAccess
from noetl_stream.local.home import PRIVATE_FILE_MODE
from noetl_stream.settings.egress import ALLOW_VARIABLE, DENY_VARIABLE
from noetl_stream.settings.environment import Settings, child_environment

log = logging.getLogger(__name__)

RESTART_S = 1.0
STOP_S = 20.0


def command_line(*arguments: str) -> list[str]:
    """The command line of this program with other arguments."""
    return [sys.executable, "-m", "noetl_stream.cli.main", *arguments]


class Background:
    """The server and worker that ``run`` starts if none is running. They outlive it and end by themselves.

    With own servers, it needs the keys of a server: an operator without them waits for a server that others run.
    """

    def __init__(self, settings: Settings, stack: StackAccess) -> None:
        self._settings = settings
        self._stack = stack
        self._process: subprocess.Popen[bytes] | None = None
        self._waits = stack.embedded is None and not settings.server_keys
        self._has_said = False

    def start(self) -> None:
        """Starts them, unless this process already has and they still run.

        Raises:
            LocalStackError: They cannot be started, or ended with an error.
        """
        if self._waits:
            if not self._has_said:
                log.warning("no server answers: waiting until one is started with `noetl-stream server`")
            self._has_said = True
            return
        code = self._process.poll() if self._process is not None else 0
        if code is None:
            return
        embedded = self._stack.embedded
        home = ["--home", str(embedded.address.home)] if embedded is not None else []
        output = embedded.address.home / "background.log" if embedded is not None else Path(os.devnull)
        if code > 0:
            hint = f"see {output}" if embedded is not None else "run `noetl-stream server` to see why"
            raise LocalStackError(f"the background server exited with code {code}", hint=hint)
        try:
            with os.fdopen(os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE_MODE), "ab") as sink:
                self._process = subprocess.Popen(
                    command_line("background", *home),
                    stdin=subprocess.DEVNULL,
                    stdout=sink,
                    stderr=sink,
                    start_new_session=True,
                )
        except OSError as error:
            raise LocalStackError(f"cannot start the background server: {error.strerror}") from None


def end_with_parent() -> None:
    """In a child of :class:`Supervised`: shuts this process down when its parent ends, however that ends."""

    def wait() -> None:
        # The parent holds the other end of our stdin and never writes to it, so read() returns when the parent ends.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


class Supervised:
    """A child process that is restarted when it ends, until :meth:`stop`. It also ends with this process.

    Args:
        identity: Its environment has the addresses and keys of this identity, and no others.
        gateway_port: The port of the gateway on this machine, which tasks of a worker must not reach.
        inherited: Descriptors that the child gets too, under the same numbers.
    """

    def __init__(
        self,
        title: str,
        arguments: Sequence[str],
        stack: StackAccess,
        identity: str,
        *,
        gateway_port: int | None = None,
        inherited: Sequence[int] = (),
    ) -> None:
        self.title = title
        self._arguments = command_line(*arguments, "--end-with-parent")
        self._identity = identity
        self._stack = stack
        self._gateway_port = gateway_port
        self._inherited = inherited
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Runs the child until stopped, each time with the current endpoint of the stack."""
        while not self._stopping:
            environment = self._environment()
            environment |= self._egress(environment)
            # In its own session: we handle Ctrl-C and stop our children in order.
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=self._inherited,
            )
            code = await self._process.wait()
            if not self._stopping:
                log.warning("%s exited with code %s: restarting", self.title, code)
                await asyncio.sleep(RESTART_S)

    def _environment(self) -> dict[str, str]:
        endpoint = self._stack.endpoint_of(self._identity)
        return child_environment(
            nats_url=endpoint.nats_url,
            nats_nkey=endpoint.nats_nkey,
            postgres_dsn=endpoint.postgres_dsn,
            credentials=endpoint.credentials,
            credential_keys=endpoint.credential_keys,
            server_keys=endpoint.server_keys,
            access_keys=endpoint.access_keys,
        )

    def _egress(self, given: Mapping[str, str]) -> dict[str, str]:
        """What its tasks may connect to: the child knows neither that its servers are embedded nor the gateway."""
        found = {}
        if self._stack.embedded is not None and not given.get(ALLOW_VARIABLE):
            found[ALLOW_VARIABLE] = "loopback"
        if self._gateway_port is not None:
            found[DENY_VARIABLE] = ",".join(filter(None, (given.get(DENY_VARIABLE), f"loopback:{self._gateway_port}")))
        return found

    def restart(self) -> None:
        """Ends the child, so that it restarts with the current endpoint."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def stop(self) -> None:
        """Terminates the child, and kills it if it does not end."""
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
