"""Capabilities: signatures of the server key for a command, verified whenever a worker shows it (PROTOCOL §7
*Capabilities*); and signatures that identify the servers of an installation.
"""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.model.events import ChildCall
from noetl_stream.model.json import codec
from noetl_stream.model.messages import NamespaceShare, Report, ShownCommand, StepCommand, references_of
from noetl_stream.protocol.subjects import bundle_owner
from noetl_stream.sealing.keys import KeyRing
from noetl_stream.sealing.objects import DerivedKeys
from noetl_stream.sealing.signing import SEPARATOR, Signer

LEFT: Final = "left"


class Capabilities:
    """Issues commands with a capability and the keys of the objects they may read; pins playbooks that they may call.

    A capability is ``<pool>.<signature>``, over the command, its issue and the pool. It holds as long as the server key
    is known; whether the command is still live depends on the state.

    Args:
        by_address: True if objects may be outside NATS, so that workers ask for addresses.
    """

    def __init__(self, server_keys: KeyRing, access_keys: KeyRing, *, by_address: bool = False) -> None:
        self._signer = Signer(server_keys, "command")
        self._pins = Signer(server_keys, "call")
        self._servers = Signer(server_keys, "server")
        self.object_keys: Final = DerivedKeys(access_keys)
        self._by_address = by_address

    def encode(self, command: StepCommand, share: NamespaceShare) -> bytes:
        """Encodes a command for its worker, with its capability, its object keys and the share of its namespace."""
        parts = _parts(command, command.pool)
        capability = f"{command.pool}{SEPARATOR}{self._signer.sign(*parts)}"
        keys = {owner: self.object_keys.ring(owner).all for owner in owners_read(command)}
        given = {"capability": capability, "object_keys": keys, "by_address": self._by_address}
        return codec.encode(msgspec.structs.replace(command, **given, share=share))

    def pool_of(self, shown: Report | ShownCommand) -> str | None:
        """Returns the pool that this issue of the command was given to; ``None`` if the capability is for another."""
        pool, _, signature = shown.capability.partition(SEPARATOR)
        return pool if self._signer.holds(signature, *_parts(shown, pool)) else None

    def presence(self, server: str) -> bytes:
        """Returns the notice that this server is alive: its name and a signature."""
        return f"{server} {self._servers.sign(server)}".encode()

    def server_in(self, presence: bytes) -> str | None:
        """Returns the server that sent this presence; ``None`` if it is not one of this installation."""
        server, _, signature = presence.decode(errors="replace").rpartition(" ")
        return server if self._servers.holds(signature, server) else None

    def farewell(self, server: str) -> bytes:
        """Returns the notice that this server has released its leases and ends. Older servers ignore it."""
        return f"{server} {self._servers.sign(server, LEFT)}".encode()

    def server_left(self, farewell: bytes) -> str | None:
        """Returns the server that sent this farewell; ``None`` if it is not one of this installation."""
        server, _, signature = farewell.decode(errors="replace").rpartition(" ")
        return server if self._servers.holds(signature, server, LEFT) else None

    def pin(self, execution_id: str, digest: str, path: str) -> str:
        """Signs that the execution may call this playbook."""
        return self._pins.sign(execution_id, digest, path)

    def is_pinned(self, execution_id: str, call: ChildCall) -> bool:
        """Whether a server has resolved the playbook of ``call`` for this execution."""
        return self._pins.holds(call.pin, execution_id, call.digest, call.path)


def owners_read(command: StepCommand) -> dict[str, None]:
    """The executions and bundles whose objects a command reads, in order."""
    owners = {command.execution_id: None}
    for reference in references_of(command):
        owners[reference.execution_id] = None
    if command.bundle:
        owners[bundle_owner(command.bundle)] = None
    return owners


def _parts(command: StepCommand | Report | ShownCommand, pool: str) -> tuple[str, ...]:
    return (command.execution_id, command.step_run_id, command.command_id, str(command.issue), pool)
