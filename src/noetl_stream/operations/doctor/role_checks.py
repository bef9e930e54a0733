"""Checks of servers and workers: who there is, and whether the work is shared among them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from noetl_stream import __version__
from noetl_stream.errors import page
from noetl_stream.operations.doctor.finding import Finding, counted, named, ok, warning, wrong
from noetl_stream.operations.doctor.readings import ROLE, Readings

MUCH_BEHIND: Final = 10_000
"""More inputs than this that are not folded yet are a backlog."""


async def permissions(read: Readings) -> Finding:
    """The user in Postgres may do what its role needs, and no more."""
    facts, excess = (await read.database).value, await read.excess
    if excess:
        return warning(f"the Postgres user {facts.user!r} {'; '.join(excess)}", f"use a member of the role {ROLE}")
    return ok(f"the Postgres user {facts.user!r} may do what its role needs, and no more")


async def versions(read: Readings) -> Finding:
    """Servers, workers and this program are of one version."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for server in await read.known:
        found[server.version]["server"] += 1
    for worker in (await read.workers).value:
        found[worker.version]["worker"] += 1
    found[__version__]["this program"] += 1
    if len(found) == 1:
        return ok(f"all are {__version__}")
    who = [f"{version}: {_counts(roles)}" for version, roles in sorted(found.items())]
    return warning(f"several versions run: {'; '.join(who)}", f"end the upgrade: {page('upgrade')}")


def _counts(roles: Mapping[str, int]) -> str:
    return ", ".join(role if role == "this program" else counted(number, role) for role, number in roles.items())


async def servers(read: Readings) -> Finding:
    """At least one server answers, and each that has leases does."""
    answering = {use.process for use in (await read.servers).value}
    silent = sorted(server.name for server in await read.known if server.name not in answering)
    if not answering:
        return wrong("no server answers", "noetl-stream server")
    if silent:
        return warning(
            f"{counted(silent, 'server')} with a lease did not answer: {named(silent)}", "look again; then at its log"
        )
    return ok(f"{counted(answering, 'server')}: {named(sorted(answering))}")


async def partitions(read: Readings) -> Finding:
    """Each partition has a server, and the servers have equal shares."""
    views = await read.partitions
    free = [view.id for view in views if not view.live]
    if free:
        return wrong(
            f"{counted(free, 'partition')} of {len(views)} without a server: {named(free)}",
            "noetl-stream server; one that runs takes them over as soon as their leases have expired",
        )
    shares = Counter(view.owner for view in views)
    idle = [server.name for server in await read.known if server.name not in shares]
    most, least = max(shares.values()), 0 if idle else min(shares.values())
    if most - least > max(1, -(-len(views) // (len(shares) + len(idle))) // 2):
        return warning(
            f"{counted(views, 'partition')} are shared unequally: {most} at the most, {least} at the least",
            "look again in a few seconds: servers that have just begun or ended are given their share then",
        )
    return ok(f"{counted(views, 'partition')} on {counted(shares, 'server')}")


async def fold(read: Readings) -> Finding:
    """What is reported is folded."""
    behind, stands = await read.folding
    total = sum(behind.values())
    if stands:
        return wrong(
            f"nothing is folded of {counted(stands, 'partition')} with {counted(total, 'input')}: {named(stands)}",
            "see the log of its server: `noetl-stream partition list` names it",
        )
    if total > MUCH_BEHIND:
        return warning(
            f"{total} inputs are not folded yet", f"add a server, if this does not pass: {page('how-to/scale')}"
        )
    return ok(f"{counted(total, 'input')} not folded yet" if total else "all inputs are folded")


async def pools(read: Readings) -> Finding:
    """Where commands wait, there are workers to take them."""
    queued, workers = await read.pools, (await read.workers).value
    there = Counter(worker.pool for worker in workers)
    taking = Counter(worker.pool for worker in workers if not worker.draining)
    unserved = [pool for pool in queued if pool.queued and not there[pool.pool]]
    if unserved:
        waits = ", ".join(f"{pool.queued} in {pool.pool}" for pool in unserved)
        return wrong(
            f"commands wait in {counted(unserved, 'pool')} without a worker: {waits}",
            "; ".join(f"noetl-stream worker --pool {pool.pool}" for pool in unserved),
        )
    draining = [pool.pool for pool in queued if pool.queued and not taking[pool.pool]]
    if draining:
        return warning(
            f"commands wait where all workers drain: {named(draining)}",
            "; ".join(f"noetl-stream worker --pool {pool}" for pool in draining),
        )
    waiting = sum(pool.queued for pool in queued)
    return ok(f"{counted(workers, 'worker')} in {counted(queued, 'pool')}; {counted(waiting, 'command')} waiting")
