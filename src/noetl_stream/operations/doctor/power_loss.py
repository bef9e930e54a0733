"""The check of the loss in NATS from a power failure now."""

from __future__ import annotations

import re
from typing import Final

from noetl_stream.errors import page
from noetl_stream.operations.doctor.findings import Finding, counted, ok, warning
from noetl_stream.operations.doctor.readings import Readings
from noetl_stream.ports.self_reports import NatsFacts
from noetl_stream.protocol.subjects import EVENTS

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
