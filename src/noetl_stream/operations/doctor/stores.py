"""Checks of Postgres and NATS: whether they answer, are set up, have room, and agree on the time."""

from __future__ import annotations

from typing import Any, Final

from noetl_stream.errors import NoetlError, NotReady
from noetl_stream.operations.doctor.finding import Finding, counted, named, ok, size, warning, wrong
from noetl_stream.operations.doctor.readings import Readings, Timed

ENSURE: Final = "noetl-stream stream ensure"
NEARLY_FULL: Final = 0.8
FULL: Final = 0.95
"""Parts of a bound from which room is scarce, and wrong."""

CLOCK_WARNING_MS: Final = 1_000
CLOCK_WRONG_MS: Final = 30_000
"""Clocks that differ by more: timers, which run by Postgres' clock from times that NATS sets, end wrong by as much."""

DAY_MS: Final = 24 * 3_600_000
SOON_DAYS: Final = 14
"""What ends within this many days ends soon."""


async def postgres(read: Readings) -> Finding:
    """Answers, and has connections left."""
    try:
        facts = (await read.database).value
    except NoetlError as error:
        return wrong(error.message, error.hint or "start Postgres, and check NOETL_POSTGRES_DSN")
    used = f"{facts.connections} of {facts.max_connections} connections"
    if facts.connections >= NEARLY_FULL * facts.max_connections:
        return warning(f"{used} of Postgres are in use", "raise max_connections of Postgres")
    return ok(f"version {facts.version} answers {facts.user!r}; {used}, {size(facts.size_bytes)}")


async def nats(read: Readings) -> Finding:
    """Answers."""
    try:
        facts = await read.nats
    except NoetlError as error:
        return wrong(error.message, error.hint or "start nats-server, and check NOETL_NATS_URL")
    identity = f"the identity {facts.user!r}" if facts.user else "a user without an identity"
    where = f", cluster {facts.cluster}" if facts.cluster else ""
    return ok(f"version {facts.version}{where} answers {identity}")


async def schema(read: Readings) -> Finding:
    """The migrations are applied, and the number of partitions is right."""
    try:
        await read.schema
    except NotReady as error:
        return wrong(error.message, error.hint or "noetl-stream database migrate")
    return ok("the schema is the one that this version needs")


async def streams(read: Readings) -> Finding:
    """All streams exist, with the settings that this version needs."""
    found = [timed.value for timed in await read.streams]
    missing = [stream.name for stream in found if not stream.exists]
    if missing:
        return wrong(f"{counted(missing, 'stream')} missing: {', '.join(missing)}", ENSURE)
    differing = [f"{stream.name} ({', '.join(stream.differs)})" for stream in found if stream.differs]
    if differing:
        return wrong(f"settings differ from what this version needs: {'; '.join(differing)}", ENSURE)
    return ok("; ".join(f"{stream.name} {size(stream.size_bytes)}" for stream in found))


async def replicas(read: Readings) -> Finding:
    """Every copy of a stream is there; in a cluster there is more than one."""
    found = [timed.value for timed in await read.streams if timed.value.exists]
    away = [f"{stream.name} on {', '.join(stream.away)}" for stream in found if stream.away]
    if away:
        return wrong(f"copies are away or behind: {'; '.join(away)}", "start these nats-servers, or see their logs")
    single = [stream.name for stream in found if stream.replicas == 1]
    if single and (await read.nats).cluster:
        return warning(
            f"one copy only of {', '.join(single)}: the loss of one nats-server stops all", f"{ENSURE} --replicas 3"
        )
    return ok("copies: " + ", ".join(f"{stream.name} {stream.replicas}" for stream in found))


async def durability(read: Readings) -> Finding:
    """Postgres keeps what it has committed, also through a failover."""
    (facts, _, _), warnings = await read.database, await read.warnings
    if facts.waits_for and not facts.standbys:
        return wrong(
            f"commits wait for a standby ({facts.waits_for}), and none is connected",
            "start the standby, or take it out of synchronous_standby_names",
        )
    if facts.waits_for and facts.synchronous == 0:
        return wrong(
            f"commits wait for a standby, and none of {facts.standbys} is synchronous",
            f"name a standby that is connected in synchronous_standby_names, which is {facts.waits_for}",
        )
    if warnings:
        return warning("; ".join(warnings), "change these settings of Postgres")
    waits = f"commits wait for {facts.waits_for}" if facts.waits_for else "commits are on disk; there is no standby"
    hidden = "; this user may not see its state" if facts.waits_for and facts.synchronous is None else ""
    return ok(waits + hidden)


async def storage(read: Readings) -> Finding:
    """There is room in the streams, and in the account."""
    used = [(one.value.name, one.value.size_bytes, one.value.max_bytes) for one in await read.streams]
    account = await read.storage
    used.append(("all streams", account.size_bytes, account.max_bytes))
    # LOGS drops its oldest lines when it is full, as it should.
    bounded = [(name, now / most) for name, now, most in used if most and name != "LOGS"]
    scarce = [f"{name} {part:.0%}" for name, part in bounded if part >= NEARLY_FULL]
    if scarce:
        verdict = wrong if any(part >= FULL for _, part in bounded) else warning
        return verdict(f"little room is left in NATS: {', '.join(scarce)}", "raise the bound, or shorten the retention")
    bound = f"of {size(account.max_bytes)}" if account.max_bytes is not None else "and the account has no bound"
    return ok(f"the streams take {size(account.size_bytes)} {bound}; the disks themselves are not seen from here")


async def clocks(read: Readings) -> Finding:
    """Postgres, NATS, servers and workers have the time of this process."""
    database, found = await read.database, await read.streams
    servers, workers = await read.servers, await read.workers
    apart = {"Postgres": _apart_ms(database, database.value.now_ms)}
    for stream in found:
        if stream.value.now_ms is not None:
            apart["NATS"] = _apart_ms(stream, stream.value.now_ms)
    apart |= {one.process: _apart_ms(servers, one.at_ms) for one in servers.value if one.at_ms}
    apart |= {one.name: _apart_ms(workers, one.at_ms) for one in workers.value if one.at_ms}
    most = max(map(abs, apart.values()))
    if most < CLOCK_WARNING_MS:
        return ok(f"{counted(apart, 'clock')} differ from this one by {most} ms at the most")
    off = [f"{who} {ms / 1000:+.1f} s" for who, ms in apart.items() if abs(ms) >= CLOCK_WARNING_MS]
    verdict = wrong if most >= CLOCK_WRONG_MS else warning
    return verdict(f"clocks differ from this one: {named(off)}", "synchronise the clocks of all machines by NTP")


def _apart_ms(timed: Timed[Any], clock_ms: int) -> int:
    """How far a clock is from this process's, beyond what the time of asking leaves open."""
    return min(clock_ms - timed.from_ms, 0) + max(clock_ms - timed.to_ms, 0)


async def certificates(read: Readings) -> Finding:
    """The certificates that Postgres and NATS show do not end soon."""
    database, now_ms = (await read.database).value, (await read.database).to_ms
    shown = {"Postgres": database.certificate_ends_ms, "NATS": (await read.nats).certificate_ends_ms}
    days = {who: (ends_ms - now_ms) // DAY_MS for who, ends_ms in shown.items() if ends_ms is not None}
    if not days:
        return Finding("skipped", "neither Postgres nor NATS is reached over TLS from here")
    says = "; ".join(f"the certificate of {who} ends in {counted(left, 'day')}" for who, left in days.items())
    soon = [who for who, left in days.items() if left < SOON_DAYS]
    return warning(says, f"renew the certificate of {' and '.join(soon)}") if soon else ok(says)
