"""A stack whose roles are replaced one after the other while clients use it.

NATS and Postgres are one pair of servers; each role is a process of some release, with what a role of that kind holds.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from noetl_stream.local.stack import StackAddress
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER, worker_identity
from noetl_stream.wiring.stack import POSTGRES_USER

Program = tuple[str, ...]

STOPPED_WITHIN_S = 60.0


@dataclass
class Role:
    """A process of one release. ``name`` is unique; its log is a file of that name."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """Ends it in order, as whatever keeps processes alive would."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOPPED_WITHIN_S) == 0, self.log.read_text()


@dataclass
class RollingStack:
    """
    Attributes:
        listening: The socket that all gateways accept from: that of a proxy, as it were.
        folder: Has the log of each role.
    """

    address: StackAddress
    folder: Path
    listening: socket.socket
    roles: list[Role] = field(default_factory=list)
    _started: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def run(self, program: Program, *words: str, identity: str = ADMIN) -> str:
        """Runs a command to its end. Returns its output."""
        done = subprocess.run(
            [*program, *words], env=self._environment(identity), cwd=self.folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def prepare(self, program: Program) -> None:
        """Brings the stores to a release."""
        self.run(program, "database", "migrate")
        self.run(program, "stream", "ensure")

    def start(self, program: Program, kind: str) -> Role:
        """Starts a ``server``, ``worker`` or ``gateway``."""
        identity = {"server": SERVER, "gateway": GATEWAY, "worker": worker_identity("default")}[kind]
        given = ["--socket", str(self.listening.fileno())] if kind == "gateway" else []
        self._started += 1
        name = f"{self._started:02}-{kind}"
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            process = self._process([*program, kind, *given], self._environment(identity), output)
        self.roles.append(Role(name, process, log))
        return self.roles[-1]

    def replace(self, old: Role, program: Program) -> Role:
        """Starts another of the kind, and stops the old one."""
        new = self.start(program, old.name.partition("-")[2])
        old.stop()
        self.roles.remove(old)
        return new

    def close(self) -> None:
        """Kills what is left."""
        for role in self.roles:
            role.process.kill()
            role.process.wait()

    def logs(self) -> Mapping[str, str]:
        """What each role has said, ended ones included."""
        return {log.stem: log.read_text() for log in sorted(self.folder.glob("*.log"))}

    def _process(self, command: list[str], environment: dict[str, str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        passed = [self.listening.fileno()]
        return subprocess.Popen(
            command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stderr=output, stdout=output,
            pass_fds=passed,
        )  # fmt: skip

    def _environment(self, identity: str) -> dict[str, str]:
        keys = self.address.keys
        held = {"NOETL_NATS_URL": self.address.nats_url, "NOETL_NATS_NKEY": self.address.seeds[identity]}
        if identity in POSTGRES_USER:
            held["NOETL_POSTGRES_DSN"] = self.address.dsns[POSTGRES_USER[identity]]
        if identity in (SERVER, GATEWAY):
            held |= {"NOETL_ACCESS_KEY": keys.access, "NOETL_CREDENTIAL_KEY": keys.credential}
        if identity == SERVER:
            held["NOETL_SERVER_KEY"] = keys.server
        if identity == worker_identity("default"):
            held["NOETL_EGRESS_ALLOW"] = "127.0.0.0/8"
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, **held, "HOME": str(self.folder)}
