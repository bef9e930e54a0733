"""A NATS cluster whose servers have network namespaces of their own, so that one can be cut off from the others.

Each has two links: one to the machine, for clients, and one to a bridge between the servers, for the cluster. The link
to the bridge is what is cut: clients still reach a server that the others have lost. It needs root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from nats_process import SIZE, NatsCluster

CLUSTER_PORT = 6222


def can_make_namespaces() -> bool:
    """Whether this process may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"noetl-try-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if made:
        _ip("netns", "delete", name)
    return made


class DividedCluster(NatsCluster):
    """Three nats-servers that can be cut off from one another."""

    def __init__(self, folder: Path) -> None:
        own = f"noetl-{os.getpid()}"
        self._hub = f"{own}-hub"
        self._spaces = {f"n{number}": f"{own}-{number}" for number in range(1, SIZE + 1)}
        net = f"10.215.{os.getpid() % 256}"
        self._addresses = {name: f"10.216.{os.getpid() % 256}.{number}" for number, name in enumerate(self._spaces, 1)}
        self._make(net)
        super().__init__(folder, cluster=[f"{address}:{CLUSTER_PORT}" for address in self._addresses.values()])
        for number, (name, server) in enumerate(self.servers.items(), 1):
            server.address = f"{net}.{4 * number + 2}"
            server.within = ("ip", "netns", "exec", self._spaces[name])

    def cut_off(self, name: str) -> None:
        """Takes its link to the other servers away; what is on the way is lost."""
        _ip("-n", self._spaces[name], "link", "set", "cluster", "down")

    def join(self, name: str) -> None:
        _ip("-n", self._spaces[name], "link", "set", "cluster", "up")

    def end(self) -> None:
        super().end()
        for space in (*self._spaces.values(), self._hub):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", space)

    def _make(self, net: str) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for number, (name, space) in enumerate(self._spaces.items(), 1):
            outside = f"nt{os.getpid()}-{number}"
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("link", "add", outside, "type", "veth", "peer", "name", "clients", "netns", space)
            _ip("address", "add", f"{net}.{4 * number + 1}/30", "dev", outside)
            _ip("link", "set", outside, "up")
            _ip("-n", space, "address", "add", f"{net}.{4 * number + 2}/30", "dev", "clients")
            _ip("-n", space, "link", "set", "clients", "up")
            _ip("-n", space, "link", "add", "cluster", "type", "veth", "peer", "name", name, "netns", self._hub)
            _ip("-n", space, "address", "add", f"{self._addresses[name]}/24", "dev", "cluster")
            _ip("-n", space, "link", "set", "cluster", "up")
            _ip("-n", self._hub, "link", "set", name, "master", "bridge", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
