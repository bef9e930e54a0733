"""Supervises child processes of this program, which end with it."""

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

from noetl_stream.local.background import Main, command_line, fork_command
from noetl_stream.local.nats_server import SYNC_S
from noetl_stream.settings.children import ENVIRONMENTS_VARIABLE
from noetl_stream.settings.egress import ALLOW_VARIABLE, DENY_VARIABLE
from noetl_stream.settings.monitoring import STATUS_VARIABLE
from noetl_stream.settings.servers import SYNC_VARIABLE
from noetl_stream.settings.sources.process_environment import (
    holds_engine_variables,
    identity_environment,
    inherited_environment,
    set_environment,
)
from noetl_stream.wiring.stack import StackAccess

log = logging.getLogger(__name__)

RESTART_S = 1.0
PIPE_BYTES: Final = 64 * 1024
STOP_S = 20.0
FOLLOWS_PARENT: Final = "--end-with-parent"


def end_with_parent() -> None:
    """Prepares a child of :class:`Supervised`: takes the environment, which the parent sends once it is known, and
    shuts this process down when the parent ends, for any reason.
    """
    received = b""
    while not received.endswith(b"\n"):
        piece = os.read(0, PIPE_BYTES)
        if not piece:
            sys.exit(0)
        received += piece
    set_environment(msgspec.json.decode(received, type=dict[str, str]))

    def wait() -> None:
        # The parent holds the other end of stdin and writes no more, so read() returns when the parent ends.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


class Forked:
    """A child of :class:`Supervised` that is a copy of this process, with the modules it has imported."""

    def __init__(self, pid: int, writing: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._writing = writing

    def tell(self, line: bytes) -> None:
        """Writes to the child's stdin, which it reads at once.

        Raises:
            BrokenPipeError: The child has ended.
        """
        while line:
            line = line[os.write(self._writing, line) :]

    async def wait(self) -> int:
        if self.returncode is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            process = os.pidfd_open(self.pid)
            loop.add_reader(process, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(process)
                os.close(process)
        return self._reap() if self.returncode is None else self.returncode  # another waiter may have been first

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _reap(self) -> int:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._writing)
        return self.returncode

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:  # else the pid may be another's
            os.kill(self.pid, number)


def fork(main: Main, *arguments: str) -> Forked | None:
    """Forks a child that calls ``main`` with the arguments of a command, like a new process of this program.

    Must be called before this process has an event loop, a connection or a key. ``None`` if the child would have
    variables of the engine that it must not have, or if it cannot be forked or waited for (pidfd, Linux 5.3).
    """
    if holds_engine_variables():
        return None
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return None
    reading, writing = os.pipe()
    pid = fork_command(main, (*arguments, FOLLOWS_PARENT), given=reading)
    os.close(reading)
    if pid is None:
        os.close(writing)
        return None
    return Forked(pid, writing)


class Supervised:
    """A child process that is restarted when it ends, until :meth:`stop`. It also ends with this process.

    Args:
        stack: The stack, which the child awaits while it loads.
        identity: The identity whose addresses and keys, and no others, are in the child's environment.
        gateway_port: The port of the gateway on this machine, which tasks of a worker must not reach.
        inherited: Descriptors that the child also gets, under the same numbers.
        forked: The child until it ends for the first time.
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
        forked: Forked | None = None,
    ) -> None:
        self.title = title
        self._arguments = command_line(*arguments, FOLLOWS_PARENT)
        self._identity = identity
        self._stack = stack
        self._gateway_port = gateway_port
        self._inherited = inherited
        self._forked = forked
        self._process: asyncio.subprocess.Process | Forked | None = None
        self._stopping = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    async def run(self) -> None:
        """Runs the child until stopped, each time with the current endpoint of the stack."""
        while not self._stopping:
            self._process = await self._start_child()
            await self._tell(self._process)
            code = await self._process.wait()
            if not self._stopping:
                log.warning("%s exited with code %s: restarting", self.title, code)
                await asyncio.sleep(RESTART_S)

    async def _start_child(self) -> asyncio.subprocess.Process | Forked:
        """Starts the child in its own session: we handle Ctrl-C and stop our children in order."""
        forked, self._forked = self._forked, None
        return forked or await asyncio.create_subprocess_exec(
            *self._arguments,
            env=inherited_environment(),
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=self._inherited,
        )

    async def _tell(self, process: asyncio.subprocess.Process | Forked) -> None:
        """Sends the child its environment."""
        stack = self._stack if isinstance(self._stack, StackAccess) else await asyncio.shield(self._stack)
        environment = self._environment(stack)
        environment |= self._of_tasks(stack, environment)
        if stack.embedded is not None:  # a gateway's doctor knows as much as that of the command line
            environment[SYNC_VARIABLE] = f"{SYNC_S:.0f}s"
        if stack.settings.traces is not None:
            environment |= stack.settings.traces.variables()
        environment[STATUS_VARIABLE] = ""  # several children cannot share an address
        line = msgspec.json.encode(environment) + b"\n"
        with contextlib.suppress(ConnectionError):  # it has ended already
            if isinstance(process, Forked):
                process.tell(line)
                return
            assert process.stdin is not None
            process.stdin.write(line)
            await process.stdin.drain()

    def _environment(self, stack: StackAccess) -> dict[str, str]:
        endpoint = stack.endpoint_of(self._identity)
        return identity_environment(
            nats_url=endpoint.nats_url,
            nats_nkey=endpoint.nats_nkey,
            nats_certificate=endpoint.nats_certificate,
            postgres_dsn=endpoint.postgres_dsn,
            credentials=endpoint.credentials,
            credential_keys=endpoint.credential_keys,
            server_keys=endpoint.server_keys,
            access_keys=endpoint.access_keys,
            archive_signing_key=endpoint.retention.archive_keys.signing_key,
            lineage_url="" if endpoint.lineage is None else endpoint.lineage.written,
        )

    def _of_tasks(self, stack: StackAccess, told: Mapping[str, str]) -> dict[str, str]:
        """Returns the environment of the child's tasks: without embedded servers and the gateway."""
        found, given = {}, {**inherited_environment(), **told}
        if stack.embedded is not None and not given.get(ALLOW_VARIABLE):
            found[ALLOW_VARIABLE] = "loopback"
        if stack.embedded is not None and not given.get(ENVIRONMENTS_VARIABLE):
            found[ENVIRONMENTS_VARIABLE] = stack.endpoint_of(self._identity).tools.python_environments.folder or "off"
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
