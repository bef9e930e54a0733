"""The checks of a running system: its stores, its processes, and its work. A docstring states what must hold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from noetl_stream import __version__
from noetl_stream.durations import duration_text
from noetl_stream.errors import NoetlError, NotReady, page
from noetl_stream.operations.doctor import readings
from noetl_stream.operations.doctor.findings import (
    NAMED,
    Finding,
    counted,
    explained,
    named,
    ok,
    remedy_of,
    size,
    warning,
    wrong,
)
from noetl_stream.ports.self_reports import StoreUse
from noetl_stream.ports.stores.dead_letters import ALL_EVENTS, LetterBounds
from noetl_stream.ports.streams.command_queue import UNREADABLE_MENDED
from noetl_stream.settings.retention_periods import STORED_VARIABLE
from noetl_stream.settings.servers import POOL_LABELS_VARIABLE

ENSURE: Final = "noetl-stream stream ensure"
NEARLY_FULL: Final = 0.8
FULL: Final = 0.95
"""The parts of a bound above which room is scarce, and exhausted."""

SOON_FULL_S: Final = 4 * 3_600.0
"""The time until a growing store is full that counts as little room."""

CLOCK_WARNING_MS: Final = 1_000
CLOCK_WRONG_MS: Final = 30_000
"""The largest difference of clocks: timers, which run by Postgres' clock from times that NATS sets, are off by as much.
"""

DAY_MS: Final = 24 * 3_600_000
SOON_DAYS: Final = 14
"""The days before its end in which something counts as ending soon."""


async def postgres(read: readings.Readings) -> Finding:
    """Answers, and has connections and room left."""
    try:
        facts = (await read.database).value
    except NoetlError as error:
        return explained(error)
    used = f"{facts.connections} of {facts.max_connections} connections"
    if facts.connections >= NEARLY_FULL * facts.max_connections:
        return warning(f"{used} of Postgres are in use", "raise max_connections of Postgres")
    if scarce := _scarce([readings.postgres_use(facts, read.ports.postgres_max_bytes)], read.watched):
        return scarce
    return ok(f"version {facts.version} answers {facts.user!r}; {used}, {size(facts.size_bytes)}")


async def nats(read: readings.Readings) -> Finding:
    """Answers."""
    try:
        facts = await read.nats
    except NoetlError as error:
        return explained(error)
    identity = f"the identity {facts.user!r}" if facts.user else "a user without an identity"
    where = f", cluster {facts.cluster}" if facts.cluster else ""
    return ok(f"version {facts.version}{where} answers {identity}")


async def schema(read: readings.Readings) -> Finding:
    """The migrations are applied, and the number of partitions is right."""
    try:
        await read.schema
    except NotReady as error:
        return explained(error)
    if newer := await read.newer:
        says = f"the schema is newer than this version: {named(newer)} came later"
        return warning(says, f"pip install --upgrade noetl-stream, or end the upgrade: {page('upgrade')}")
    return ok("the schema is the one that this version needs")


async def streams(read: readings.Readings) -> Finding:
    """All streams exist, with the settings that this version needs."""
    found = [timed.value for timed in await read.streams]
    missing = [stream.name for stream in found if not stream.exists]
    if missing:
        return wrong(f"{counted(missing, 'stream')} missing: {', '.join(missing)}", ENSURE)
    differing = [f"{stream.name} ({', '.join(stream.differs)})" for stream in found if stream.differs]
    if differing:
        return wrong(f"settings differ from what this version needs: {'; '.join(differing)}", ENSURE)
    return ok("; ".join(f"{stream.name} {size(stream.size_bytes)}" for stream in found))


async def replicas(read: readings.Readings) -> Finding:
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


async def durability(read: readings.Readings) -> Finding:
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


async def storage(read: readings.Readings) -> Finding:
    """There is room in the streams, the account and the nats-servers, and there will be in the next hours."""
    account = await read.storage
    if account.failures:
        return wrong("; ".join(account.failures), remedy_of(account.failures[0]))
    uses = readings.nats_uses((one.value for one in await read.streams), account)
    if scarce := _scarce(uses, read.watched):
        return scarce
    bound = f"of {size(account.max_bytes)}" if account.max_bytes is not None else "and the account has no bound"
    disks = "" if account.servers else "; the disks themselves are not seen from here"
    return ok(f"the streams take {size(account.size_bytes)} {bound}{disks}")


def _scarce(uses: Sequence[StoreUse], watched: Sequence[StoreUse]) -> Finding | None:
    """Returns the finding that one of these stores is nearly full, or soon will be; ``None`` if none is."""
    ends_s = {one.name: one.full_in_s for one in watched}
    bounded = [(one.name, one.bytes / one.max_bytes, ends_s.get(one.name)) for one in uses if one.max_bytes]
    scarce = [one for one in bounded if one[1] >= NEARLY_FULL or (one[2] is not None and one[2] < SOON_FULL_S)]
    if not scarce:
        return None
    says = [
        f"{name} {part:.0%}{'' if left_s is None else f', full in {duration_text(left_s)}'}"
        for name, part, left_s in scarce
    ]
    verdict = wrong if any(part >= FULL for _, part, _ in scarce) else warning
    mend = "raise the bound, or shorten the retention; this shows what takes the room: noetl-stream storage"
    return verdict(f"little room is left: {'; '.join(says)}", mend)


async def objects(read: readings.Readings) -> Finding:
    """Objects can be written, read and deleted in all their places."""
    try:
        places = await read.places
    except NoetlError as error:
        return explained(error)
    if places:
        return ok(f"can be written, read and deleted in {places}")
    await read.nats
    return ok("are in NATS alone")


async def namespaces(read: readings.Readings) -> Finding:
    """Every namespace may store more in the object store."""
    uses = [use for use in (await read.servers).value if use.max_stored_bytes]
    if not uses:
        return ok("namespaces have no bound in the object store")
    most = min(use.max_stored_bytes for use in uses)
    stored = {name: held for use in uses for name, held in use.stored.items()}
    if stored:
        shares = [f"{name} {held / most:.0%}" for name, held in sorted(stored.items(), key=lambda one: -one[1])]
        verdict = wrong if max(stored.values()) >= FULL * most else warning
        return verdict(
            f"little room is left in the object store for {counted(stored, 'namespace')}: {named(shares)}",
            f"delete executions, shorten the retention, or raise {STORED_VARIABLE}, which is {size(most)}",
        )
    return ok(f"no namespace has {NEARLY_FULL:.0%} of the {size(most)} that it may have in the object store")


async def clocks(read: readings.Readings) -> Finding:
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


def _apart_ms(timed: readings.Timed[Any], clock_ms: int) -> int:
    """The difference between a clock and this process's, beyond the uncertainty from the duration of the request."""
    return min(clock_ms - timed.from_ms, 0) + max(clock_ms - timed.to_ms, 0)


async def certificates(read: readings.Readings) -> Finding:
    """The certificates that Postgres and NATS show do not end soon."""
    database, now_ms = (await read.database).value, (await read.database).to_ms
    shown = {"Postgres": database.certificate_ends_ms, "NATS": (await read.nats).certificate_ends_ms}
    days = {who: (ends_ms - now_ms) // DAY_MS for who, ends_ms in shown.items() if ends_ms is not None}
    if not days:
        return Finding("skipped", "neither Postgres nor NATS is reached over TLS from here")
    says = "; ".join(f"the certificate of {who} ends in {counted(left, 'day')}" for who, left in days.items())
    soon = [who for who, left in days.items() if left < SOON_DAYS]
    return warning(says, f"renew the certificate of {' and '.join(soon)}") if soon else ok(says)


MUCH_BEHIND: Final = 10_000
"""The number of unfolded inputs above which there is a backlog."""


async def permissions(read: readings.Readings) -> Finding:
    """The user in Postgres may do what its role needs, and no more."""
    facts, excess = (await read.database).value, await read.excess
    if excess:
        return warning(
            f"the Postgres user {facts.user!r} {'; '.join(excess)}", f"use a member of the role {readings.ROLE}"
        )
    return ok(f"the Postgres user {facts.user!r} may do what its role needs, and no more")


async def versions(read: readings.Readings) -> Finding:
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


async def servers(read: readings.Readings) -> Finding:
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


async def grants(read: readings.Readings) -> Finding:
    """Somebody has said what playbooks may use."""
    said = {use.grants for use in (await read.servers).value}
    if "file" in said and said != {"file"}:
        return warning(
            "some servers have a file of grants, and others do not",
            f"set NOETL_GRANTS for all servers and gateways, or for none: {page('access')}",
        )
    if "unset" in said:
        return warning(
            "nobody has said what playbooks may use: each may use every credential and call everything",
            f"`noetl-stream grant apply`, or NOETL_GRANTS_DEFAULT=own, or everything: {page('access')}",
        )
    if "everything" in said:
        return ok("every playbook may use every credential and call everything, as NOETL_GRANTS_DEFAULT says")
    return ok("playbooks may use what grants give them")


async def partitions(read: readings.Readings) -> Finding:
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


async def fold(read: readings.Readings) -> Finding:
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


async def confinement(read: readings.Readings) -> Finding:
    """Tasks have files, processes and memory of their own."""
    workers = (await read.workers).value
    weak = [f"{worker.name} ({worker.confinement})" for worker in workers if worker.confinement not in ("", "full")]
    if weak:
        return warning(
            f"tasks of {counted(weak, 'worker')} are not fully confined: {named(weak)}",
            f"`noetl-stream worker --isolation` there says why: {page('explanation/worker')}",
        )
    networks = sorted({worker.network for worker in workers} - {""})
    theirs = f"; their network: {', '.join(networks)}" if networks else ""
    return ok(f"tasks are fully confined{theirs}" if workers else "no worker is running")


async def results(read: readings.Readings) -> Finding:
    """What servers decide and workers have found is stored."""
    stuck = [(one.process, why) for one in (await read.servers).value for why in one.unstored]
    kept = [(one.name, run.waits_for) for one in (await read.workers).value for run in one.running if run.waits_for]
    if not stuck and not kept:
        return ok("all that servers decide and workers have found is stored")
    says = [f"{counted({name for name, _ in stuck}, 'server')} cannot store what is decided"] if stuck else []
    if kept:
        says.append(f"{counted(kept, 'result')} not stored, kept by {counted({name for name, _ in kept}, 'worker')}")
    why = (stuck or kept)[0][1]
    return wrong(f"{'; '.join(says)}: {why[:REASON_CHARS]}", remedy_of(why))


async def lineage(read: readings.Readings) -> Finding:
    """The receiver of lineage accepts events."""
    untold = [one.untold for one in (await read.servers).value if one.untold]
    if untold:
        return warning(
            f"lineage cannot be told: {untold[0][:REASON_CHARS]}",
            f"start the receiver, or mend NOETL_OPENLINEAGE_URL, within a day: {page('how-to/move-data')}",
        )
    return ok("no server fails to tell lineage")


async def pools(read: readings.Readings) -> Finding:
    """Where commands wait, there are workers to take them."""
    queued, workers = await read.pools, (await read.workers).value
    unreadable = [pool for pool in queued if pool.unreadable]
    if unreadable:
        return wrong(
            "; ".join(f"NATS gives out no commands of pool {pool.pool}: {pool.unreadable}" for pool in unreadable),
            UNREADABLE_MENDED,
        )
    if not workers and not any(pool.queued for pool in queued):
        return warning("no worker runs: executions will wait at their first task", "noetl-stream worker")
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
    unfit = [worker for worker in workers if worker.unfit]
    if unfit:
        fit = {worker.pool for worker in workers if not (worker.unfit or worker.draining)}
        unserved_pools = [pool.pool for pool in queued if pool.queued and pool.pool not in fit]
        found = "; ".join(f"worker {worker.name} takes no commands: {worker.unfit}" for worker in unfit)
        mend = "give it processes, memory, open files (ulimit -n) or space for TMPDIR: it tests itself again and again"
        return wrong(found, mend) if unserved_pools else warning(found, mend)
    waiting = sum(pool.queued for pool in queued)
    return ok(f"{counted(workers, 'worker')} in {counted(queued, 'pool')}; {counted(waiting, 'command')} waiting")


REASON_CHARS: Final = 300


async def stuck(read: readings.Readings) -> Finding:
    """Every execution that has not ended waits for something."""
    found, living = await read.stuck, sum((await read.living).values())
    if found:
        return wrong(
            f"{counted(found, 'execution', readings.COUNTED)} without anything to wait for: {named(found)}",
            f"noetl-stream execution why {found[0]}; then cancel it, and report a defect",
        )
    return ok(f"{counted(living, 'execution')} not ended, and each waits for something")


async def quarantined(read: readings.Readings) -> Finding:
    """No execution is set aside."""
    number = (await read.living).get("quarantined", 0)
    if number:
        return warning(
            f"{counted(number, 'execution')} set aside: `execution why` says what for",
            "noetl-stream execution list --status quarantined; then resume or cancel each",
        )
    return ok("no execution is set aside")


async def dead_letters(read: readings.Readings) -> Finding:
    """No message or command was given up, and none that was is dropped."""
    found = [letter for letter in await read.letters if letter.row.subject != ALL_EVENTS]
    held, most = await read.held_letters, LetterBounds()
    full = max(held.letters / most.letters, held.bytes / most.bytes)
    if full >= FULL:
        return wrong(
            f"{counted(held.letters, 'dead letter')} with {held.bytes} bytes: {min(full, 1):.0%} of what is kept; "
            "the oldest go",
            "noetl-stream dead-letter list; then end what sends them",
        )
    if found:
        return warning(
            f"{counted(found, 'message', readings.COUNTED)} could not be delivered",
            "noetl-stream dead-letter list; then requeue or discard each",
        )
    return ok("every message could be delivered")


async def events(read: readings.Readings) -> Finding:
    """EVENTS has lost no message, and Postgres agrees with it."""
    servers = (await read.servers).value
    found = [line for server in servers for line in server.disagreements]
    if found:
        return wrong(
            f"Postgres and EVENTS disagree: {found[0]}" + (f"; and {len(found) - 1} more" if found[1:] else ""),
            "noetl-stream database verify",
        )
    lost = [letter.row for letter in await read.letters if letter.row.subject == ALL_EVENTS]
    if lost:
        return warning(
            f"{lost[0].reason}" + (f"; and {counted(len(lost) - 1, 'other hole')}" if lost[1:] else ""),
            "look at the disks and the log of NATS; then noetl-stream dead-letter discard "
            + " ".join(row.id for row in lost[:NAMED]),
        )
    late = sum(server.late_records for server in servers)
    came = f"; late records of servers that had lost their partition, which do not count: {late}" if late else ""
    return ok(f"EVENTS has lost no message, and agrees with Postgres{came}")


async def triggers(read: readings.Readings) -> Finding:
    """Every trigger can read its stream, and does with its events what it says."""
    found = await read.triggers
    unread = [one for one in found if one.reading.trouble]
    if unread:
        return wrong(
            f"{counted(unread, 'trigger')} whose stream cannot be read: {named(one.path for one in unread)}; "
            f"{unread[0].path}: {unread[0].reading.trouble}",
            f"noetl-stream trigger get {unread[0].path}",
        )
    faulty = [one for one in found if one.faults.count and read.now_ms - one.faults.at_ms < DAY_MS]
    if faulty:
        first = faulty[0]
        return wrong(
            f"{counted(faulty, 'trigger')} with faults in the last day: "
            f"{named(f'{one.path} ({one.faults.count})' for one in faulty)}; "
            f"event {first.faults.number} of {first.path}: {first.faults.reason[:REASON_CHARS]}",
            f"noetl-stream trigger event {first.path} {first.faults.number}; then register it mended, and resend",
        )
    return ok(f"{counted(found, 'trigger', readings.MOST_TRIGGERS)}, without a fault in the last day")


async def keys(read: readings.Readings) -> Finding:
    """Every credential is encrypted with the current key."""
    stored, ring = await read.credentials, read.ports.keys
    if ring is None:
        if not stored:
            return ok("no credential is stored")
        return Finding("skipped", f"this process has no key of the {counted(stored, 'credential')}")
    unknown = [one.name for one in stored if ring.find(one.key_id) is None]
    if unknown:
        return wrong(
            f"the key of {counted(unknown, 'credential')} is not configured: {named(unknown)}",
            "add it to NOETL_CREDENTIAL_OLD_KEYS, then: noetl-stream credential rotate",
        )
    old = [one.name for one in stored if one.key_id != ring.current.id]
    if old:
        return warning(f"{counted(old, 'credential')} under an old key: {named(old)}", "noetl-stream credential rotate")
    return ok(f"{counted(stored, 'credential')} under the current key")


async def tokens(read: readings.Readings) -> Finding:
    """No API token ends soon."""
    held = [token for token in await read.tokens if token.holds(read.now_ms)]
    soon = [
        one.name for one in held if one.expires_ms is not None and one.expires_ms - read.now_ms < SOON_DAYS * DAY_MS
    ]
    if soon:
        return warning(
            f"within {SOON_DAYS} days end {counted(soon, 'token')}: {named(soon)}", "noetl-stream token create NAME"
        )
    return ok(f"{counted(held, 'token')}, and none ends within {SOON_DAYS} days")


async def placement(read: readings.Readings) -> Finding:
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
