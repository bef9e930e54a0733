"""The doctor: all checks of a running system, and its use of space."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

from noetl_stream.concurrency import closing
from noetl_stream.errors import NoetlError, page
from noetl_stream.operations.doctor import checks
from noetl_stream.operations.doctor.findings import Finding, counted, ok, remedy_of, warning
from noetl_stream.operations.doctor.readings import STREAMS, TOO_LONG, DoctorPorts, Readings, reading
from noetl_stream.ports.operations.cluster import CheckDocument, StoredDocument
from noetl_stream.ports.self_reports import NatsFacts, NatsStorage
from noetl_stream.protocol.subjects import EVENTS, RESULTS

LONG_SYNC_S: Final = 10.0
"""A longer ``sync_interval`` loses more than it saves: see nats.conf."""

SAFE_PEERS: Final = (2, 12, 3)
"""The version from which on a peer that is removed from a cluster takes no acknowledged message with it.

https://github.com/nats-io/nats-server/issues/7545
"""


async def power_loss(read: Readings) -> Finding:
    """Little that NATS has acknowledged is not on a disk yet."""
    facts, found = await read.nats, [timed.value for timed in await read.streams]
    risks = _risks(facts, copies=max(stream.replicas for stream in found))
    risks += [
        (f"{stream.name} acknowledges messages before it writes them", f"set its persist_mode to default: {_GUIDE}")
        for stream in found
        if stream.acknowledges_early
    ]
    says = _loss(facts.sync_s, await read.unsynced)
    if not risks:
        return ok(says)
    return warning("; ".join([says, *(risk for risk, _ in risks)]), "; ".join(mend for _, mend in risks))


_GUIDE: Final = page("run-on-clusters")


def _loss(sync_s: float | None, unsynced: int) -> str:
    if sync_s is None:
        return "nobody has told how much NATS would lose if the power went now: by default, the last 2 minutes"
    if sync_s == 0:
        return "if the power went now, NATS would lose nothing: it syncs every message"
    return (
        f"if the power went now, NATS could lose its last {sync_s:g} s, with {counted(unsynced, 'message')} of "
        f"{EVENTS}: steps would run again, and nothing that was accepted is lost"
    )


def _risks(facts: NatsFacts, copies: int) -> list[tuple[str, str]]:
    """Returns the conditions that make a loss more likely or larger, each with its remedy."""
    risks = []
    if facts.sync_s is None:
        risks.append(("its sync_interval is unknown", "set NOETL_NATS_MONITOR, or NOETL_NATS_SYNC_INTERVAL"))
    elif facts.sync_s > LONG_SYNC_S:
        risks.append(("that is long", f'set sync_interval: "{LONG_SYNC_S:g}s" in the jetstream block of its file'))
    if copies > 1 and facts.keeps_copies_apart is False:
        risks.append(("all copies may be in one zone", f"give jetstream a unique_tag: {_GUIDE}"))
    if facts.cluster and _version(facts.version) < SAFE_PEERS:
        risks.append(("removing a peer may lose messages in this version", "upgrade nats-server to 2.12.3 or newer"))
    return risks


def _version(written: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", written)[:3])


Check = Callable[[Readings], Awaitable[Finding]]

STORES: Final = {"postgres": "Postgres at ", "nats": "NATS at "}
"""The checks of the stores themselves, with their names in errors: other checks are skipped for a store's fault."""

CHECKS: Final[tuple[Check, ...]] = (
    *(checks.postgres, checks.nats, checks.schema, checks.streams, checks.replicas, checks.durability, power_loss),
    *(checks.storage, checks.objects, checks.clocks, checks.certificates, checks.permissions, checks.versions),
    *(checks.servers, checks.grants, checks.namespaces, checks.partitions, checks.fold, checks.confinement),
    *(checks.results, checks.lineage, checks.pools, checks.placement, checks.stuck, checks.quarantined),
    *(checks.dead_letters, checks.events, checks.triggers, checks.keys, checks.tokens),
)
"""The checks in the order in which they are shown: those that others depend on come first."""

SERVED: Final = (
    *(checks.servers, checks.grants, checks.namespaces, checks.partitions, checks.fold, checks.pools),
    checks.placement,
)
"""The checks that fail without a server, which does not matter where the next command starts one."""


class DirectDiagnosis:
    """:class:`~noetl_stream.ports.operations.cluster.Diagnosis`, directly on the stores."""

    def __init__(self, ports: DoctorPorts) -> None:
        self._ports = ports

    async def storage(self) -> list[StoredDocument]:
        streams, account, tables, database = await asyncio.gather(
            reading("the streams", asyncio.gather(*(self._ports.nats.stream(name) for name in STREAMS))),
            reading("the storage of NATS", self._ports.nats.storage()),
            reading("the tables", self._ports.database.tables()),
            reading("Postgres", self._ports.database.facts()),
        )
        in_nats = [
            StoredDocument(
                "objects" if one.name == RESULTS else "stream", one.name, one.size_bytes, one.max_bytes, one.messages
            )
            for one in streams
            if one.exists
        ]
        in_postgres = [StoredDocument("table", one.name, one.size_bytes, None, one.rows) for one in tables]
        return [
            StoredDocument("account", "NATS", account.size_bytes, _bound_of(account), None),
            *_largest_first(in_nats),
            StoredDocument("database", "Postgres", database.size_bytes, self._ports.postgres_max_bytes, None),
            *_largest_first(in_postgres),
        ]

    async def examine(self) -> list[CheckDocument]:
        async with closing(Readings(self._ports)) as read:
            return roots_said_once(await asyncio.gather(*(_done(check, read) for check in CHECKS)))


def _bound_of(account: NatsStorage) -> int | None:
    """Returns the bound of the account, or else of the smallest nats-server."""
    if account.max_bytes is not None:
        return account.max_bytes
    return min((one.max_bytes for one in account.servers if one.max_bytes is not None), default=None)


async def _done(check: Check, read: Readings) -> CheckDocument:
    try:
        found = await check(read)
        is_unneeded = read.ports.on_demand and check in SERVED and found.verdict in ("wrong", "warning")
        if is_unneeded and not (await read.servers).value:
            found = Finding("skipped", "no server runs here: the next command that needs one starts it")
    except NoetlError as error:
        found = Finding("skipped", error.message, remedy_of(error.message) or error.hint or "")
    return CheckDocument(check.__name__.replace("_", "-"), *found)


def roots_said_once(found: list[CheckDocument]) -> list[CheckDocument]:
    """Replaces the fault in skipped checks by the name of the faulty store."""
    roots = [one for one in found if one.check in STORES and one.verdict == "wrong"]
    return [next((_needing(root, one) for root in roots if _needs(root, one)), one) for one in found]


def _needs(root: CheckDocument, other: CheckDocument) -> bool:
    """Whether a check was skipped for a store's fault: it has the same error, one of the same store, or a timeout."""
    if other.verdict != "skipped":
        return False
    return root.says.endswith(other.says) or STORES[root.check] in other.says or other.says.endswith(TOO_LONG)


def _needing(root: CheckDocument, other: CheckDocument) -> CheckDocument:
    return CheckDocument(other.check, "skipped", f"it needs `{root.check}`, which is wrong")


def _largest_first(found: list[StoredDocument]) -> list[StoredDocument]:
    return sorted(found, key=lambda one: -one.bytes)
