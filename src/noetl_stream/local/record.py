"""``stack.json``: what runs where, for people and for the next start. It holds no passwords.

It is a memory, not the truth: whether a server runs is asked of the system. A record that is lost or damaged costs the
old port numbers and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from noetl_stream import __version__
from noetl_stream.local.home import Home, write_private

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """One server. ``pid`` is ``None`` while it is stopped; ``url`` is for people and without user and password."""

    version: str
    port: int
    pid: int | None
    url: str


def read_ports(home: Home) -> dict[str, int]:
    """The port each server had last, by server name."""
    try:
        servers = json.loads(home.record.read_text(encoding="utf-8"))["servers"]
        return {name: int(server["port"]) for name, server in servers.items()}
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_record(home: Home, servers: dict[str, ServerRecord]) -> None:
    record: dict[str, Any] = {
        "format": FORMAT,
        "noetl_stream": __version__,
        "servers": {name: asdict(server) for name, server in servers.items()},
    }
    write_private(home.record, json.dumps(record, indent=2) + "\n")
