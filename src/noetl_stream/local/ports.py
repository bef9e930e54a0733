"""Free loopback ports."""

from __future__ import annotations

import secrets
import socket

from noetl_stream.errors import LocalStackError

LOOPBACK = "127.0.0.1"

FIRST_PORT = 20_000
PORT_COUNT = 10_000
"""Below the range that systems take outgoing ports from: in that range, a client that keeps connecting to a server that
is down could be given the server's own port, and the server would not get it back."""

TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_port() -> int:
    """A port that is free now.

    Raises:
        LocalStackError: none of many tried was free.
    """
    for _ in range(TRIES):
        port = FIRST_PORT + secrets.randbelow(PORT_COUNT)
        if is_free(port):
            return port
    last = FIRST_PORT + PORT_COUNT - 1
    raise LocalStackError(f"no free port on {LOOPBACK} between {FIRST_PORT} and {last}", hint="end what listens there")
