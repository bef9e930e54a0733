"""Whether servers place steps alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from noetl_stream.operations.doctor.findings import Finding, counted, named, ok, wrong
from noetl_stream.operations.doctor.readings import Readings
from noetl_stream.settings.servers import POOL_LABELS_VARIABLE


async def placement(read: Readings) -> Finding:
    """All servers have the same labels of pools, so that a step is placed alike by each of them."""
    given = [server.pool_labels for server in (await read.servers).value]
    pools = sorted({pool for labels in given for pool in labels})
    said = {pool: Counter(_shown(labels.get(pool, {})) for labels in given) for pool in pools}
    differing = [pool for pool in pools if len(said[pool]) > 1]
    if differing:
        first = differing[0]
        has = ", ".join(f"`{labels}` at {counted(number, 'server')}" for labels, number in said[first].items())
        return wrong(
            f"servers differ in the labels of {counted(differing, 'pool')}: {named(differing)}; {first} has {has}",
            f"set {POOL_LABELS_VARIABLE} alike for all servers, and restart them",
        )
    if not pools:
        return ok("no pool has labels")
    there = {worker.pool for worker in (await read.workers).value}
    away = [pool for pool in pools if pool not in there]
    without = f"; without a worker now: {named(away)}" if away else ""
    return ok(f"{counted(pools, 'pool')} with labels, alike at all servers{without}")


def _shown(labels: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(labels.items())) or "none"
