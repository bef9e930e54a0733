"""Child processes of this program that end with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from noetl_stream.hosting import StackAccess
from noetl_stream.local.background import command_line
from noetl_stream.settings.egress import ALLOW_VARIABLE, DENY_VARIABLE
from noetl_stream.settings.environment import identity_environment, inherited_environment, set_environment
from noetl_stream.settings.status import STATUS_VARIABLE

log = logging.getLogger(__name__)

RESTART_S = 1.0
PIPE_BYTES: Final = 64 * 1024
STOP_S = 20.0


def end_with_parent() -> None:
    """In a child of :class:`Supervised`: takes the environment that the parent sends as soon as it knows it, and shuts
    this process down when the parent ends, however that ends.
    """
    received = b""
    while not received.endswith(b"\n"):
        piece = os.read(0, PIPE_BYTES)
        if not piece:
            sys.exit(0)
        received += piece
    set_environment(msgspec.json.decode(received, type=dict[str, str]))

    def wait() -> None:
        # The parent holds the other end of our stdin and writes no more, so read() returns when the parent ends.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


class Supervised:
    """A child process that is restarted when it ends, until :meth:`stop`. It also ends with this process.

    Args:
        stack: Its stack, which the child awaits while it loads.
        identity: Its environment has the addresses and keys of this identity, and no others.
        gateway_port: The port of the gateway on this machine, which tasks of a worker must not reach.
        inherited: Descriptors that the child gets too, under the same numbers.
    """

    def __init__(
        self,
        title: str,
        arguments: Sequence[str],
        stack: StackAccess | asyncio.Future[StackAccess],
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
            # In its own session: we handle Ctrl-C and stop our children in order.
            self._process = await asyncio.create_subprocess_exec(
                *self._arguments,
                env=inherited_environment(),
                stdin=asyncio.subprocess.PIPE,
                start_new_session=True,
                pass_fds=self._inherited,
            )
            await self._tell(self._process)
            code = await self._process.wait()
            if not self._stopping:
                log.warning("%s exited with code %s: restarting", self.title, code)
                await asyncio.sleep(RESTART_S)

    async def _tell(self, process: asyncio.subprocess.Process) -> None:
        """Sends the child its environment."""
        stack = self._stack if isinstance(self._stack, StackAccess) else await asyncio.shield(self._stack)
        environment = self._environment(stack)
        environment |= self._egress(stack, environment)
        if stack.settings.traces is not None:
            environment |= stack.settings.traces.variables()
        environment[STATUS_VARIABLE] = ""  # several children cannot have one address
        assert process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended already
            process.stdin.write(msgspec.json.encode(environment) + b"\n")
            await process.stdin.drain()

    def _environment(self, stack: StackAccess) -> dict[str, str]:
        endpoint = stack.endpoint_of(self._identity)
        return identity_environment(
            nats_url=endpoint.nats_url,
            nats_nkey=endpoint.nats_nkey,
            postgres_dsn=endpoint.postgres_dsn,
            credentials=endpoint.credentials,
            credential_keys=endpoint.credential_keys,
            server_keys=endpoint.server_keys,
            access_keys=endpoint.access_keys,
        )

    def _egress(self, stack: StackAccess, told: Mapping[str, str]) -> dict[str, str]:
        """What its tasks may connect to: the child knows neither that its servers are embedded nor the gateway."""
        found, given = {}, {**inherited_environment(), **told}
        if stack.embedded is not None and not given.get(ALLOW_VARIABLE):
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
