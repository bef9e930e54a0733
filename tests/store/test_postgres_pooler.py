"""Debian's PgBouncer between a process and Postgres: what goes through it, and what is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nats_process import free_port
from noetl_stream.adapters.postgres.store import PostgresStore
from noetl_stream.errors import NoetlError, NotReady
from noetl_stream.local.processes import postgres_user
from noetl_testkit.conformance.store_rows import taken
from noetl_testkit.waiting import TIMEOUT_S, until_it_is

PGBOUNCER = shutil.which("pgbouncer")

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed: apt-get install pgbouncer")


@pytest.fixture
def port(postgres_server: Any) -> Iterator[int]:
    """That of a PgBouncer that gives each client a connection of its own and leaves our settings out."""
    port, user = free_port(), postgres_user()
    with tempfile.TemporaryDirectory(prefix="noetl-pooler-", ignore_cleanup_errors=True) as folder:
        config = Path(folder) / "pgbouncer.ini"
        config.write_text(f"""
[databases]
* = host={postgres_server.socket_folder} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = session
ignore_startup_parameters = jit,lock_timeout,idle_in_transaction_session_timeout
""")
        owner: dict[str, Any] = {}
        if user is not None:
            os.chown(folder, user.uid, user.gid)
            owner = {"user": user.uid, "group": user.gid}
        assert PGBOUNCER is not None
        process = subprocess.Popen(
            [PGBOUNCER, str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, **owner
        )
        yield port
        process.terminate()
        process.wait(TIMEOUT_S)


async def test_a_reader_connects_through_a_pooler_and_a_server_refuses_it(dsn: str, port: int) -> None:
    database = dsn.split("/")[3].split("?")[0]
    opened: list[PostgresStore] = []

    async def answers() -> bool:
        try:
            opened.append(await PostgresStore.open(f"postgresql://postgres@127.0.0.1:{port}/{database}", name="test"))
        except NoetlError:
            return False
        return True

    await until_it_is(True, answers)
    (store,) = opened
    await store.verify()
    with pytest.raises(NotReady, match="a pooler is between"):
        await taken(store)
    await store.close()
