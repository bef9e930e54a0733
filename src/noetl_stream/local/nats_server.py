"""The embedded NATS server: JetStream on disk, loopback only, with a user for each identity."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets as randomness
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from noetl_stream.local.binaries import NATS_WHEEL, find_nats_server
from noetl_stream.local.home import Home, write_private
from noetl_stream.local.processes import (
    CLEAN_ENVIRONMENT,
    LOOPBACK,
    POLL_S,
    ProcessIdentity,
    Running,
    command_of,
    is_alive,
    launch,
    read_pid,
    send,
)
from noetl_stream.local.secrets import Secrets, public_nkey
from noetl_stream.local.server_process import StopSignal
from noetl_stream.local.startup_errors import explain_output, read_tail
from noetl_stream.protocol.nats_accounts import CORE_ACCOUNT, UNNAMED_ACCOUNT, nats_accounts
from noetl_stream.protocol.nats_permissions import PUBLISHER

MAX_PAYLOAD = "8MB"
MAX_PENDING = "128MB"
ANSWER_WAIT_S = 1.0
GREETING_BYTES = 8192
RELOAD_WAIT_S = 15.0
RELOADED = "Reloaded server configuration"
SYNC_S: Final = 10.0
"""The ``sync_interval``. NATS's default of two minutes is no faster (measured in nats.conf)."""

FEW_CORES: Final = 2
"""The number of cores up to which NATS uses one and leaves the rest to servers and workers: its threads would wake each
other for nothing, at a tenth of its CPU, and delay the others.
"""

RELOADS = 2
"""The number of reloads of the configuration: nats-server 2.15 ignores the imports of a new account the first time."""

CONFIGURATION = """\
# Written by noetl-stream on each start of the embedded NATS: changes here are lost. Made from {origin}.
# Address and port are on the command line.
# Streams that triggers may read: {streams}
server_name: "{server_name}"
max_payload: {max_payload}
max_pending: {max_pending}

{accounts}
jetstream {{
  store_dir: "{store}"
  # Messages are acknowledged before they are synced to disk: a killed server loses nothing, a power failure at most the
  # last ten seconds of EVENTS and COMMANDS. What was acknowledged to a user is in Postgres and is not affected; pending
  # commands are issued again, so some steps may run twice. `always` would close this window.
  sync_interval: "{sync_s:.0f}s"
}}
"""

_STREAMS: Final = re.compile(r"^# Streams that triggers may read: (.*)$", re.MULTILINE)
_SERVER_NAME: Final = re.compile(r'^server_name: "([^"]*)"$', re.MULTILINE)


class NatsServer:
    """The NATS server of one home. It writes its own pid file.

    Args:
        streams: The streams that triggers may read; none: unchanged.
    """

    name = "nats"
    title = "NATS"
    wheel = NATS_WHEEL
    stop_signals: Sequence[StopSignal] = (StopSignal(signal.SIGTERM, 15.0), StopSignal(signal.SIGKILL, 5.0))

    def __init__(self, home: Home, streams: Sequence[str] = ()) -> None:
        self._streams = tuple(streams)
        self.home = home.root
        self.folder = home.nats
        self.log = home.nats / "nats.log"
        self.identity = ProcessIdentity("nats-server", str(home.nats / "nats.conf"))
        self._configuration = home.nats / "nats.conf"
        self._publisher = home.nats / "publisher.nk"
        self._store = home.nats / "store"
        self._pid_file = home.nats / "nats.pid"

    def find(self) -> Running | None:
        pid = read_pid(self._pid_file)
        command = command_of(pid, self.identity) if pid is not None else None
        if pid is None or command is None:
            return None
        return Running(pid=pid, port=int(command[command.index("-p") + 1]))

    def prepare(self, secrets: Secrets, keep_open: int) -> None:
        self._write(secrets, f"noetl-{randomness.token_hex(8)}")
        self._pid_file.unlink(missing_ok=True)
        self._move_streams()

    def _move_streams(self) -> None:
        """Moves the streams of version 0.2, which had no accounts, into the servers' account."""
        unnamed, ours = (self._store / "jetstream" / account for account in (UNNAMED_ACCOUNT, CORE_ACCOUNT))
        if unnamed.exists() and not ours.exists():
            unnamed.rename(ours)

    def update(self, secrets: Secrets, running: Running) -> None:
        """Reloads the users of a running server; connections of the others stay.

        Raises:
            LocalStackError: The server does not accept the configuration.
        """
        present = self._configuration.read_text(encoding="utf-8")
        known = _STREAMS.search(present)
        self._streams = self._streams or (tuple(known[1].split()) if known else ())
        if f"Made from {self._origin(secrets)}." in present:
            return
        self._write(secrets, self._server_name())
        for _ in range(RELOADS):
            self._reload(running)

    def _reload(self, running: Running) -> None:
        from_byte = self.log.stat().st_size
        send(running.pid, signal.SIGHUP)
        deadline = time.monotonic() + RELOAD_WAIT_S
        while RELOADED not in (output := read_tail(self.log, from_byte)):
            if time.monotonic() > deadline or not is_alive(running.pid):
                raise explain_output("NATS did not accept its new users", output, self.home, self.log)
            time.sleep(POLL_S)

    def launch(self, port: int, keep_open: int) -> Running:
        command = [str(find_nats_server()), "-c", str(self._configuration), "-a", LOOPBACK, "-p", str(port)]
        command += ["-P", str(self._pid_file)]
        variables = CLEAN_ENVIRONMENT | go_variables(os.cpu_count() or 1)
        return Running(pid=launch(command, self.log, keep_open, variables=variables), port=port)

    def is_ready(self, running: Running) -> bool:
        """Returns whether the server greets clients, which it does only once JetStream has recovered its streams.

        It is recognized by its name, generated at each start: another home may have chosen the same port at the same
        moment.
        """
        greeting = _greeting(running.port)
        if greeting is None or not greeting.get("jetstream"):
            return False
        return bool(greeting.get("server_name") == self._server_name())

    def _server_name(self) -> str:
        """Returns the name that the server was started with. NATS accepts no other while it runs."""
        found = _SERVER_NAME.search(self._configuration.read_text(encoding="utf-8"))
        return found[1] if found else ""

    def kill_leftovers(self) -> None:
        """Does nothing: NATS has no child processes."""

    def url(self, port: int) -> str:
        return f"nats://{LOOPBACK}:{port}"

    def _origin(self, secrets: Secrets) -> str:
        """Returns a digest of the inputs of the configuration; unlike the users' public keys it is cheap."""
        made_from = f"{CONFIGURATION}{self._store}{nats_accounts(secrets.seeds, self._streams)}"
        return hashlib.sha256(made_from.encode()).hexdigest()

    def _write(self, secrets: Secrets, server_name: str) -> None:
        if PUBLISHER in secrets.seeds:
            write_private(self._publisher, secrets.seeds[PUBLISHER] + "\n")
        write_private(self._configuration, self._configuration_text(secrets, server_name))

    def _configuration_text(self, secrets: Secrets, server_name: str) -> str:
        keys = {identity: public_nkey(seed) for identity, seed in secrets.seeds.items()}
        return CONFIGURATION.format(
            origin=self._origin(secrets),
            server_name=server_name,
            max_payload=MAX_PAYLOAD,
            max_pending=MAX_PENDING,
            streams=" ".join(self._streams),
            accounts=nats_accounts(keys, self._streams),
            store=str(self._store).replace("\\", "\\\\").replace('"', '\\"'),
            sync_s=SYNC_S,
        )


def go_variables(cores: int) -> dict[str, str]:
    """Returns the environment of NATS on this many cores: the number that Go uses at once, by default all."""
    return {"GOMAXPROCS": "1"} if cores <= FEW_CORES else {}


def _greeting(port: int) -> dict[str, Any] | None:
    """Returns the ``INFO`` that a NATS server on ``port`` sends first; ``None`` if no NATS server answers."""
    try:
        with socket.socket() as connection:
            connection.settimeout(ANSWER_WAIT_S)
            connection.connect((LOOPBACK, port))
            received = b""
            while b"\r\n" not in received and len(received) < GREETING_BYTES:
                chunk = connection.recv(GREETING_BYTES)
                if not chunk:
                    return None
                received += chunk
    except OSError:
        return None
    verb, _, body = received.partition(b"\r\n")[0].partition(b" ")
    try:
        greeting = json.loads(body) if verb == b"INFO" else None
    except ValueError:
        return None
    return greeting if isinstance(greeting, dict) else None
