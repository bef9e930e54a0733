"""An operator's work on the stores of a whole system: repair, comparison, backup, retention, diagnosis, repartition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.concurrency import Deferred, closing
from noetl_stream.errors import Conflict, UsageError
from noetl_stream.protocol.subjects import COMMANDS, EVENTS
from noetl_stream.storage.object_places import PlacedBlobs
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.operations import credential_keys
from noetl_stream.wiring.role_assembly import make_retention, make_server
from noetl_stream.wiring.stores import COMMAND_WAIT_S, connect, connect_to_nats, open_objects, required_dsn

if TYPE_CHECKING:  # each command imports what it uses
    from noetl_stream.backup.move import MovedObjects
    from noetl_stream.backup.reader import BackupReader
    from noetl_stream.backup.restore import RestoredBackup
    from noetl_stream.ports.files import Files
    from noetl_stream.ports.operations.cluster import CheckDocument
    from noetl_stream.ports.stores.cursors import Repair
    from noetl_stream.sealing.file_keys import FileKeys
    from noetl_stream.server.rebuild import Rebuilt
    from noetl_stream.server.upkeep.expiry import RetentionPlan
    from noetl_stream.wiring.stores import Connected


async def reconcile_stream(endpoint: Endpoint) -> list[Repair]:
    """Repairs the cursors of partitions after EVENTS has lost messages; returns the repairs."""
    from noetl_stream.server.journal_records import reconcile_cursors

    async with closing(await connect(endpoint, name="noetl-reconcile", nats_wait_s=COMMAND_WAIT_S)) as connected:
        await connected.store.verify()
        await connected.log.verify()
        return await reconcile_cursors(connected.log, connected.store.cursors)


async def rebuild_database(endpoint: Endpoint) -> Rebuilt:
    """Fills an empty Postgres from EVENTS; returns the restored counts. ``endpoint`` is a server's."""
    from noetl_stream.server.rebuild import rebuild

    async with closing(await connect(endpoint, name="noetl-rebuild", nats_wait_s=COMMAND_WAIT_S)) as connected:
        return await rebuild(make_server(connected, endpoint))


async def compare_stores(endpoint: Endpoint) -> list[str]:
    """Returns the disagreements between Postgres and EVENTS, a line each."""
    from noetl_stream.server.journal_records import disagreements

    async with closing(await connect(endpoint, name="noetl-verify", nats_wait_s=COMMAND_WAIT_S)) as connected:
        await connected.store.verify()
        await connected.log.verify()
        return await disagreements(connected.log, connected.store, connected.store.cursors)


async def create_backup(
    endpoint: Endpoint, place: Files, name: str | None, keys: FileKeys, made_by: str = ""
) -> BackupReader:
    """Backs the database and its objects up into a folder below ``place``, signed and encrypted with these keys."""
    from noetl_stream.adapters.postgres.backup import PostgresBackup
    from noetl_stream.adapters.postgres.connections.database import shown_address
    from noetl_stream.backup.create import BackupOrigin
    from noetl_stream.backup.create import create_backup as create

    dsn = required_dsn(endpoint)
    async with closing(await connect_to_nats(endpoint, name="noetl-backup", nats_wait_s=COMMAND_WAIT_S)) as ports:
        origin = BackupOrigin(made_by, shown_address(dsn))
        database = PostgresBackup(dsn)
        objects = open_objects(endpoint, ports.blobs)
        return await create(database, objects, ports.clock, place, keys=keys, origin=origin, name=name)


async def restore_backup(endpoint: Endpoint, backup: BackupReader) -> RestoredBackup:
    """Restores a backup into an empty database and new streams."""
    from noetl_stream.adapters.nats.streams import verify_empty
    from noetl_stream.adapters.postgres.backup import PostgresBackup
    from noetl_stream.backup.restore import restore_backup as restore

    dsn = required_dsn(endpoint)
    async with closing(await connect_to_nats(endpoint, name="noetl-restore", nats_wait_s=COMMAND_WAIT_S)) as ports:
        await verify_empty(ports.nats, (EVENTS, COMMANDS))
        await ports.blobs.verify()
        return await restore(backup, PostgresBackup(dsn), open_objects(endpoint, ports.blobs))


async def restore_objects(endpoint: Endpoint, backup: BackupReader) -> int:
    """Restores only the objects of a backup; returns their number."""
    from noetl_stream.backup.restore import restore_objects as restore

    async with closing(await connect_to_nats(endpoint, name="noetl-restore", nats_wait_s=COMMAND_WAIT_S)) as ports:
        await ports.blobs.verify()
        return await restore(backup, open_objects(endpoint, ports.blobs))


async def move_objects(endpoint: Endpoint) -> MovedObjects:
    """Moves all objects of the database to the first place. Servers and workers may run meanwhile.

    Raises:
        UsageError: only one place is configured.
    """
    from noetl_stream.adapters.postgres.backup import PostgresBackup
    from noetl_stream.backup.move import move

    dsn = required_dsn(endpoint)
    async with closing(await connect_to_nats(endpoint, name="noetl-move", nats_wait_s=COMMAND_WAIT_S)) as ports:
        objects = open_objects(endpoint, ports.blobs)
        if not isinstance(objects, PlacedBlobs):
            hint = "set it to the places, the one to move to first: NOETL_OBJECTS=s3://BUCKET/PREFIX,nats"
            raise UsageError("NOETL_OBJECTS names no place other than NATS", hint=hint)
        await ports.blobs.verify()
        await objects.verify()
        return await move(PostgresBackup(dsn), *objects.places)


async def plan_retention(endpoint: Endpoint) -> list[RetentionPlan]:
    """Returns the executions that the rules of retention do not keep, by rule, without changes. For a server's
    endpoint.
    """
    async with closing(await connect(endpoint, name="noetl-retention", nats_wait_s=COMMAND_WAIT_S)) as connected:
        await connected.store.verify()
        return await make_retention(connected, endpoint).plan()


async def apply_retention(endpoint: Endpoint) -> int:
    """Archives and deletes executions that the rules do not keep; returns their number. See :func:`plan_retention`."""
    async with closing(await connect(endpoint, name="noetl-retention", nats_wait_s=COMMAND_WAIT_S)) as connected:
        await connected.store.verify()
        return await make_retention(connected, endpoint).delete_old()


async def diagnose(endpoint: Endpoint, *, on_demand: bool) -> list[CheckDocument]:
    """Runs all checks of a system, any part of which may be away.

    Args:
        on_demand: Whether commands start a server there when they need one.
    """
    from noetl_stream.operations.doctor.doctor import DirectDiagnosis
    from noetl_stream.operations.doctor.readings import DoctorPorts

    name, dsn = "noetl-doctor", required_dsn(endpoint)
    nats = Deferred(lambda: connect_to_nats(endpoint, name=name, nats_wait_s=COMMAND_WAIT_S))
    store = Deferred(lambda: PostgresStore.open(dsn, name=name))
    blobs = open_objects(endpoint, nats.part("blobs"))
    ports = DoctorPorts(
        database=store.part("diagnosis"),
        nats=nats.part("diagnosis"),
        store=store.whole(),
        log=nats.part("log"),
        queue=nats.part("queue"),
        bus=nats.part("bus"),
        dead_letters=store.part("dead_letters"),
        tokens=store.part("tokens"),
        credentials=store.part("credentials"),
        clock=SystemClock(),
        keys=credential_keys(endpoint),
        on_demand=on_demand,
        postgres_max_bytes=endpoint.postgres_max_bytes,
        places=blobs if isinstance(blobs, PlacedBlobs) else None,
    )
    try:
        return await DirectDiagnosis(ports).examine()
    finally:
        await nats.close()
        await store.close()


async def repartition(endpoint: Endpoint, count: int) -> int | None:
    """Gives both stores ``count`` partitions. A repeated call finishes what a crash interrupted.

    Everything in EVENTS is folded: its messages are removed, and servers publish the records of living executions
    again.

    Returns:
        The number of moved executions; ``None`` if there was nothing to do.

    Raises:
        Conflict: servers live, commands wait, or a message is not folded.
        NotReady, Unreachable: a store is not set up, or away.
    """
    from noetl_stream.adapters.nats.streams import partitions_of, set_partitions
    from noetl_stream.adapters.postgres.schema.migrate import repartition as move

    async with closing(await connect(endpoint, name="noetl-repartition", nats_wait_s=COMMAND_WAIT_S)) as connected:
        store, log = connected.store, connected.log
        of_events, of_postgres = await partitions_of(connected.nats), await store.cursors.partition_count()
        if count == of_events == of_postgres:
            return None
        if of_postgres == count:
            moved = 0
        elif of_events == count:
            await _require_empty(store)
            moved = await move(required_dsn(endpoint), count, last_seq=0)
        else:
            await _require_rest(connected)
            moved = await move(required_dsn(endpoint), count, last_seq=await log.last_sequence())
        if of_events != count:
            await log.trim(await store.cursors.floor())
            await set_partitions(connected.nats, count)
        return moved


async def _require_empty(store: PostgresStore) -> None:
    """Raises unless the database is empty and EVENTS has its partitions, for a rebuild."""
    if newest := await store.newest_execution():
        message = f"EVENTS has that many partitions already, and Postgres, which has not, holds execution {newest}"
        raise Conflict(message, hint="one of them is not of this system: look at NOETL_NATS_URL and NOETL_POSTGRES_DSN")


async def require_no_server(store: PostgresStore) -> None:
    """Raises :class:`~noetl_stream.errors.Conflict` while servers live."""
    if living := [server.name for server in await store.diagnosis.live_servers()]:
        hint = "stop them and repeat; one that was killed counts for a while"
        raise Conflict(f"servers live: {', '.join(living)}", hint=hint)


async def _require_rest(connected: Connected) -> None:
    """Raises :class:`~noetl_stream.errors.Conflict` unless all messages are folded, published and acknowledged."""
    store, hint = connected.store, "start the servers and workers, let them finish, stop the gateways and then these"
    await require_no_server(store)
    if commands := await connected.queue.present():
        raise Conflict(f"{len(commands)} commands wait or run", hint=hint)
    behind = await connected.log.beyond({view.id: view.last_seq for view in await store.read_partitions()})
    if inputs := sum(behind.values()):
        raise Conflict(f"{inputs} messages are not folded", hint=hint)
