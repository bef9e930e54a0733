"""``noetl-stream pool|limit|partition|dead-letter|database|storage|stream|doctor``: the processes that run executions,
their limits, their stores, and the diagnosis of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option, home_option, limit_option
from noetl_stream.cli.base.output import columns_of, print_documents, say
from noetl_stream.cli.base.process import principal, run_on_stack, settings_for
from noetl_stream.cli.base.session import Target, does, gateway_of, lists, shows, target_options, with_session
from noetl_stream.model.ids import MOST_PARTITIONS
from noetl_stream.ports.operations.cluster import CheckDocument, LimitDocument, LimitWithSlotsDocument
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_stream.protocol.subjects import COMMANDS, EVENTS, LOGS, RESULTS
from noetl_stream.settings.servers import MAX_REPLICAS, PLACEMENT_VARIABLE, REPLICAS_VARIABLE, Spread, read_tags

if TYPE_CHECKING:  # a gateway needs no store: do not wait for its libraries
    from noetl_stream.wiring.endpoint import Endpoint


POOL_COLUMNS: Final = columns_of(
    *("pool", "workers", "slots", "busy", "queued", "running", "again", "oldest"),
    queued_at=lambda pool: ", ".join(f"{priority}: {count}" for priority, count in pool.by_priority.items()),
    labels=lambda pool: " ".join(f"{name}={value}" for name, value in pool.labels.items()),
)


@click.group()
def pool() -> None:
    """Inspect worker pools."""


@pool.command("list")
@lists("cluster.pools", POOL_COLUMNS, "pool")
def list_pools() -> None:
    """List the pools with their workers, slots and commands.

    AGAIN counts commands that were delivered before; OLDEST is since when the longest queued one waits. A pool with
    queued commands and no workers is listed, too. QUEUED_AT says at which priorities they wait. LABELS are
    those that the operator has given the pool, by which steps are placed.
    """


@click.group()
def limit() -> None:
    """Inspect limits by key: how many executions or steps hold a key, and who waits for it."""


def _rate(found: LimitDocument) -> str:
    rate = found.rate
    return "" if rate is None else f"{rate.per_s:g}/s" + (f", bursts of {rate.burst}" if rate.burst > 1 else "")


def _of_namespace(found: LimitDocument) -> str:
    return f"{found.key} of namespace {found.namespace}" if found.namespace else f"{found.key}, which namespaces share"


def _print_limit(found: LimitWithSlotsDocument) -> None:
    most = "" if found.concurrency is None else f" of {found.concurrency}"
    rate = f", {_rate(found)}" if found.rate is not None else ""
    by = found.set_by or "another playbook"
    say(f"{_of_namespace(found)}: {found.held}{most} held, {found.queued} waiting{rate} (as {by} says)")
    if found.replaced:
        say(found.replaced)
    if found.catching_up:
        say("gives out nothing until Postgres has caught up with EVENTS: `noetl-stream database verify` says where")
    for what, slots in (("holds", found.holders), ("waits", found.waiting)):
        for slot in slots:
            where = f"{slot.path}, step {slot.step}" if slot.step else slot.path
            where += f", task {slot.task}" if slot.task else ""
            say(f"{what}  {slot.execution_id}  {where}  since {slot.since}")
    hidden = found.held + found.queued - len(found.holders) - len(found.waiting)
    if hidden > 0:
        say(f"and {hidden} more")


@limit.command("list")
@limit_option("keys", 100)
@lists("cluster.limits", columns_of("key", "namespace", "held", "queued", "concurrency", "set_by", rate=_rate), "key")
def list_limits() -> None:
    """List the keys in use, by key and namespace. Namespaces share a key that has none.

    A key that nobody holds or waits for leaves the list after a minute.
    """


@limit.command("get")
@click.argument("key")
@click.option("--namespace", metavar="PATH", help="That of the key, if several have one. Empty: namespaces share it.")
@shows("cluster.limit", "key", _print_limit, "table")
def get_limit() -> None:
    """Show a key with those who have held it longest, and the first who wait, in order."""


@click.group()
def partition() -> None:
    """Inspect the partitions that servers share."""


@partition.command("list")
@lists("cluster.partitions", columns_of("partition", "owner", "epoch", "live", "folded", "behind"), "partition")
def list_partitions() -> None:
    """List the partitions with the server that folds each, and how many messages it is behind."""


letter_ids = click.argument("letter_ids", nargs=-1, required=True, metavar="ID...")


@click.group("dead-letter")
def dead_letter() -> None:
    """Inspect messages and commands that could not be delivered; requeue or discard them."""


@dead_letter.command("list")
@limit_option("dead letters", 100)
@lists("cluster.dead_letters", columns_of("id", "at", "source", "execution_id", "size", "reason"), "id")
def list_letters() -> None:
    """List the unresolved dead letters, newest first."""


@dead_letter.command()
@click.argument("letter_id", metavar="ID")
@shows("cluster.dead_letter", "id", form="table")
def show() -> None:
    """Show a dead letter and its body."""


@dead_letter.command()
@letter_ids
@does("cluster.requeue", "requeued", publishes=True)
def requeue() -> None:
    """Send dead letters to their origin again. Stops at the first that cannot be sent."""


@dead_letter.command()
@letter_ids
@does("cluster.discard", "discarded")
def discard() -> None:
    """Discard dead letters and their bodies for good. Stops at the first that cannot be discarded."""


@click.group()
def database() -> None:
    """Prepare and check the Postgres database."""


@database.command()
@click.option("--roles", is_flag=True, help="Create the roles noetl_server, noetl_gateway and noetl_reader first.")
@home_option
def migrate(roles: bool, home: Path | None) -> None:
    """Create or upgrade the schema `noetl`, and give the roles of servers, gateways and readers their grants.

    Safe to repeat. `run` and `dev` do this for the embedded Postgres. For your own, you choose when. --roles needs a
    user that may create roles.
    """
    from noetl_stream.wiring.stores import migrate_schema

    applied = run_on_stack(settings_for(home), ADMIN, partial(migrate_schema, roles=roles))
    for name in applied:
        say(f"applied {name}")
    if not applied:
        say("the schema is up to date")


@database.command()
@home_option
@click.pass_context
def verify(ctx: click.Context, home: Path | None) -> None:
    """Compare what Postgres has committed with what EVENTS holds. Exits with 1 if they disagree.

    It names partitions whose Postgres is behind EVENTS, messages that were folded and are lost, and executions that
    wait for nothing. Servers may run meanwhile.
    """
    from noetl_stream.hosting.maintenance import compare_stores

    found = run_on_stack(settings_for(home), ADMIN, compare_stores)
    for line in found:
        say(line)
    if found:
        ctx.exit(ExitCode.FAILED)
    say("Postgres and EVENTS agree")


@database.command()
@click.argument("count", type=click.IntRange(1, MOST_PARTITIONS))
@home_option
def repartition(count: int, home: Path | None) -> None:
    """Change the number of partitions, which bounds the number of servers. Stop all processes first.

    Nothing may wait in a pool or be unfolded; executions may wait for anything else. EVENTS begins anew. Afterwards,
    set NOETL_PARTITIONS to COUNT for every process.
    """
    from noetl_stream.hosting.maintenance import repartition as change

    moved = run_on_stack(settings_for(home), ADMIN, partial(change, count=count))
    if moved is None:
        say(f"the stores have {count} partitions")
    else:
        say(f"moved {moved} executions to {count} partitions: set NOETL_PARTITIONS={count} for every process")


@database.command()
@home_option
def rebuild(home: Path | None) -> None:
    """Fill an empty Postgres from EVENTS. Migrate it first, and stop the servers.

    Restores executions with their journals, rows, timers, messages to each other and accepted requests. Run it with the
    settings of a server. What EVENTS does not hold is lost: catalog, credentials, grants, tokens, audit, dead
    letters. So are schedules and triggers: they are listed, to be registered again.
    """
    from noetl_stream.hosting.maintenance import rebuild_database

    restored = run_on_stack(settings_for(home), SERVER, rebuild_database)
    say(f"restored {restored.executions} executions with {restored.entries} journal entries")
    if restored.starters:
        say("schedules and triggers are not restored; register again, after the playbooks that they start:")
        for one in restored.starters:
            say(f"  {one}")


@click.command()
@lists("diagnosis.storage", columns_of("store", "name", "bytes", "max_bytes", "items"), "name", publishes=True)
def storage() -> None:
    """Show what streams and tables take on disk, the largest first.

    ITEMS are the messages of a stream; the rows of a table as Postgres estimates them.
    """


ENGINE_STREAMS: Final = (EVENTS, COMMANDS, RESULTS, LOGS)


@click.group()
def stream() -> None:
    """Prepare and repair the JetStream streams."""


@stream.command()
@click.option(
    "--replicas", type=click.IntRange(1, MAX_REPLICAS), help=f"Copies in a cluster, instead of {REPLICAS_VARIABLE}."
)
@click.option(
    "--placement-tags",
    metavar="TAG,...",
    help=f"Keep the copies on nats-servers with these server_tags, instead of {PLACEMENT_VARIABLE}.",
)
@home_option
def ensure(replicas: int | None, placement_tags: str | None, home: Path | None) -> None:
    """Create or update the streams EVENTS, COMMANDS and LOGS and the object store. Never deletes a stream.

    `run` and `dev` do this for the embedded NATS. For your own, you choose when. Servers may run meanwhile. Copies are
    added, and moved where the tags are; none is taken away.
    """
    from noetl_stream.wiring.stores import ensure_all_streams

    named = "--placement-tags"
    tags = None if placement_tags is None else read_tags(named, {named: placement_tags})

    async def work(admin: Endpoint) -> list[str]:
        spread = Spread(replicas or admin.spread.replicas, admin.spread.tags if tags is None else tags)
        return await ensure_all_streams(replace(admin, spread=spread))

    done = run_on_stack(settings_for(home), ADMIN, work)
    for line in done:
        say(line)
    if not done:
        say("the streams are up to date")


@stream.command("list")
@form_option()
@home_option
def list_all_streams(output: str, home: Path | None) -> None:
    """List the streams, and in a NATS cluster where their copies are.

    CURRENT names the nats-servers whose copies have everything besides the leader's, BEHIND those that do not.
    """
    from noetl_stream.wiring.stores import list_streams

    found = run_on_stack(settings_for(home), ADMIN, list_streams)
    columns = columns_of(
        *("stream", "messages", "bytes", "replicas", "leader"),
        current=lambda one: ", ".join(one.current),
        behind=lambda one: ", ".join(one.behind),
        tags=lambda one: ", ".join(one.tags),
    )
    print_documents(found, output, columns, "stream")


@stream.command()
@click.argument("name", type=click.Choice(ENGINE_STREAMS))
@click.option("--yes-lose", "consent", metavar="WHAT", help="What you agree to lose. Without it, you are told.")
@click.option("--reason", default="", help="Why, for the audit.")
@home_option
def delete(name: str, consent: str | None, reason: str, home: Path | None) -> None:
    """Delete a stream with all it holds. Stop the servers first.

    They may run only if the stream has lost its leader. `stream ensure` makes it again, and servers publish what
    Postgres holds. It is an entry of the audit, `deleteStream`, where Postgres has a schema.

    Run it with the settings of `stream ensure`: no other NATS identity than `admin` may.
    """
    from noetl_stream.hosting.stream_deletion import delete_after_consent

    work = partial(delete_after_consent, stream=name, consent=consent, by=principal(), reason=reason)
    done = run_on_stack(settings_for(home), ADMIN, work)
    say(f"deleted {name}: {done.lost}")
    if not done.is_recorded:
        say("no audit has it: Postgres has no schema", err=True)


@stream.command()
@home_option
def reconcile(home: Path | None) -> None:
    """Take EVENTS as it is for the stream of this Postgres. Stop the servers first.

    Servers repair a stream that has lost messages or was made anew by themselves, and stop only if it holds records of
    executions that they do not know. This repairs it all the same: partitions whose last folded message is gone are
    read again from the newest one that is sure to be folded.
    """
    from noetl_stream.hosting.maintenance import reconcile_stream

    repairs = run_on_stack(settings_for(home), ADMIN, reconcile_stream)
    for one in repairs:
        say(f"partition {one.partition}: reads on from sequence {one.last_seq}, was {one.folded}")
    if not repairs:
        say("EVENTS holds all that was folded")


@click.command()
@form_option("text")
@target_options
@click.pass_context
def doctor(ctx: click.Context, output: str, target: Target) -> None:
    """Look for what is wrong with a running system, and say what mends it.

    Each check is ok, a warning, wrong, or skipped, which says why nobody could look. Exits with 1 if something is
    wrong. Changes nothing.
    """
    checks = _examine(target)
    if output == "text":
        _print_checks(checks)
    else:
        print_documents(checks, output, {}, "check")
    if any(check.verdict == "wrong" for check in checks):
        ctx.exit(ExitCode.FAILED)


def _print_checks(checks: Sequence[CheckDocument]) -> None:
    """Prints the checks; those skipped for the same reason share a line."""
    skipped: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        if check.verdict == "skipped":
            skipped.setdefault((check.says, check.mend), []).append(check.check)
        else:
            _print_finding(f"{check.verdict:8} {check.check:13} {check.says}", check.mend)
    for (says, mend), names in skipped.items():
        _print_finding(f"skipped  {', '.join(names)}: {says}", mend)


def _print_finding(line: str, mend: str) -> None:
    say(line)
    if mend:
        say(f"{'':22} → {mend}")


def _examine(target: Target) -> list[CheckDocument]:
    settings = settings_for(target.home)
    if gateway_of(target, settings) is not None:
        return with_session(target, lambda session: session.operations.diagnosis.examine())
    from noetl_stream.hosting.maintenance import diagnose

    on_demand = settings.nats_url is None
    return run_on_stack(settings, GATEWAY, partial(diagnose, on_demand=on_demand), prepares=True)
