"""All checks of a running system."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping

from noetl_stream.errors import NoetlError
from noetl_stream.operations.doctor import role_checks as roles
from noetl_stream.operations.doctor import stores, work
from noetl_stream.operations.doctor.finding import Finding
from noetl_stream.operations.doctor.readings import DoctorPorts, Readings, begin
from noetl_stream.operations.doctor.room import stored
from noetl_stream.ports.operations.diagnosis import CheckDocument, StoredDocument


class DirectDiagnosis:
    """:class:`~noetl_stream.ports.operations.diagnosis.Diagnosis`, directly on the stores."""

    def __init__(self, ports: DoctorPorts) -> None:
        self._ports = ports

    async def storage(self) -> list[StoredDocument]:
        return await stored(self._ports)

    async def examine(self) -> list[CheckDocument]:
        read = begin(self._ports)
        try:
            checks = _checks(read, self._ports)
            return await asyncio.gather(*(_done(name, check) for name, check in checks.items()))
        finally:
            await read.close()


def _checks(read: Readings, ports: DoctorPorts) -> Mapping[str, Awaitable[Finding]]:
    """By name, in the order in which they are shown: what others need comes first."""
    on_demand = ports.on_demand
    return {
        "postgres": stores.postgres(read),
        "nats": stores.nats(read),
        "schema": stores.schema(read),
        "streams": stores.streams(read),
        "replicas": stores.replicas(read),
        "durability": stores.durability(read),
        "storage": stores.storage(read),
        "clocks": stores.clocks(read),
        "certificates": stores.certificates(read),
        "permissions": roles.permissions(read),
        "versions": roles.versions(read),
        "servers": _unless_on_demand(read, on_demand, roles.servers(read)),
        "partitions": _unless_on_demand(read, on_demand, roles.partitions(read)),
        "fold": _unless_on_demand(read, on_demand, roles.fold(read)),
        "pools": _unless_on_demand(read, on_demand, roles.pools(read)),
        "stuck": work.stuck(read),
        "quarantined": work.quarantined(read),
        "dead-letters": work.dead_letters(read),
        "triggers": work.triggers(read, ports.clock.now_ms()),
        "keys": work.keys(read, ports.keys),
        "tokens": work.tokens(read, ports.clock.now_ms()),
    }


async def _unless_on_demand(read: Readings, on_demand: bool, check: Awaitable[Finding]) -> Finding:
    """What fails without a server is skipped where the next command starts one."""
    found = await check
    if on_demand and found.verdict == "wrong" and not (await read.servers).value:
        return Finding("skipped", "no server runs here: the next command that needs one starts it")
    return found


async def _done(name: str, check: Awaitable[Finding]) -> CheckDocument:
    try:
        found = await check
    except NoetlError as error:
        found = Finding("skipped", error.message, error.hint or "")
    return CheckDocument(name, *found)
