"""Whole stacks of real processes, for journeys that kill some of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import psutil
import pytest

from homes import copy_home, folder_for_home
from noetl_stream.local.processes import choose_port
from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.ports.operations import Operations
from noetl_stream.protocol.nats_permissions import GATEWAY
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.operations import DirectOperations
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import connect

ROOT = Path(__file__).resolve().parents[2]
NOETL = (sys.executable, "-m", "noetl_stream")


@dataclass
class LiveStack:
    """A `dev` process and everything it runs."""

    home: Path
    process: subprocess.Popen[str]
    embedded: EmbeddedStack

    @property
    def endpoint(self) -> Endpoint:
        """What the command line holds."""
        return embedded_endpoint(self.embedded, Settings(), GATEWAY)

    def roles(self, role: str) -> list[int]:
        """Pids of the living `server` or `worker` processes."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            try:
                arguments = child.cmdline()
            except psutil.NoSuchProcess:
                continue
            if "noetl_stream" in arguments and role in arguments:
                found.append(child.pid)
        return found

    def kill(self, victim: str) -> None:
        """``kill -9`` of one process: a role by name, or an embedded server."""
        pid = self.roles(victim)[0] if victim in ("server", "worker") else self.embedded.pids()[victim]
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def start_stack(used_home: Path) -> Iterator[Callable[[int, int], LiveStack]]:
    """Starts `dev` with this many servers and workers, in a new home."""
    with ExitStack() as ending:

        def start(servers: int, workers: int) -> LiveStack:
            home = copy_home(used_home, ending.enter_context(folder_for_home("journey")) / "home")
            command = [*NOETL, "dev", "--home", str(home), "--servers", str(servers), "--workers", str(workers)]
            command += ["--gateway-port", str(choose_port())]  # one that no other stack takes at the same moment
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            ending.callback(process.wait, 60)
            ending.callback(process.terminate)
            assert process.stdout is not None
            assert "is running" in process.stdout.readline()
            embedded = EmbeddedStack.join(home)
            ending.callback(embedded.leave)
            return LiveStack(home, process, embedded)

        yield start


@pytest.fixture
async def operations(shared_home: Path) -> AsyncIterator[Operations]:
    """What the command line asks of the stack that tests share."""
    with EmbeddedStack.join(shared_home) as embedded:
        endpoint = embedded_endpoint(embedded, Settings(), GATEWAY)
        connected = await connect(endpoint, name="journey")
        try:
            yield cast(Operations, DirectOperations(connected, endpoint))
        finally:
            await connected.close()
