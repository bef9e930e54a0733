"""Free loopback ports."""

from __future__ import annotations

import secrets
import socket

from noetl_stream.errors import LocalStackError

LOOPBACK = "127.0.0.1"

FIRST_PORT = 20_000
PORT_COUNT = 10_000
"""Below the range of outgoing ports: in that range, a client that keeps connecting to a stopped server could be given
the server's port, which would block its restart."""

TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_port() -> int:
    """A free port.

    Raises:
        LocalStackError: No free port was found.
    """
    for _ in range(TRIES):
        port = FIRST_PORT + secrets.randbelow(PORT_COUNT)
        if is_free(port):
            return port
    last = FIRST_PORT + PORT_COUNT - 1
    raise LocalStackError(
        f"no free port on {LOOPBACK} between {FIRST_PORT} and {last}", hint="stop programs that listen there"
    )
