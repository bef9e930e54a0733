"""Roles that start before their stores do."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from watched_role import Watched, watched

from cli_program import noetl, one_clear_line
from nats_process import NatsServer
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.adapters.postgres.schema.migrate import migrate
from noetl_stream.sealing.keys import new_key
from noetl_testkit.waiting import TIMEOUT_S
from postgres_pair import postgres_pair

pytestmark = [pytest.mark.xdist_group("own_stacks"), pytest.mark.verify]


def waits_for(role: Watched, store: str) -> None:
    """Waits until the role has said so, to people and to probes; it lives."""
    said = role.until(f"waiting: {store}")
    assert said["level"] == "warning"
    status, body = role.get("/readyz")
    assert status == 503 and "is starting: " in body and store in body
    assert role.get("/livez")[0] == 200


async def test_roles_wait_for_stores_that_start_after_them(tmp_path: Path) -> None:
    nats = NatsServer(tmp_path)
    with postgres_pair() as pair, ExitStack() as ending:
        await migrate(pair.primary.dsn())
        postgres = pair.standby
        pair.primary.end()
        postgres.end()
        settings = {"NOETL_NATS_URL": nats.url, "NOETL_POSTGRES_DSN": postgres.dsn()}
        settings |= {"NOETL_SERVER_KEY": new_key(), "NOETL_ACCESS_KEY": new_key()}
        server = ending.enter_context(watched("server", **settings))
        gateway = ending.enter_context(watched("gateway", "--port", "0", **settings))
        worker = ending.enter_context(watched("worker", NOETL_NATS_URL=nats.url))
        for role in (server, gateway, worker):
            waits_for(role, f"cannot reach NATS at {nats.url}: connection refused")

        ending.callback(nats.end)
        nats.start()
        connection = await NatsConnection.open(nats.url, name="test", connect_timeout_s=TIMEOUT_S)
        await ensure_streams(connection)
        await connection.close()
        address = f"Postgres at postgresql://postgres@{postgres.host}/postgres"
        for role in (server, gateway):
            waits_for(role, f"cannot reach {address}: connection refused")

        postgres.start("-c", "hot_standby=off")  # it recovers, and can not even be read
        for role in (server, gateway):
            waits_for(role, f"{address} refuses: it is starting up")
        postgres.end()
        postgres.start()
        waits_for(server, f"{address} refuses: it is read-only")

        postgres.promote()
        await server.is_ready()
        created = noetl("token", "create", "ops", "--role", "admin", **settings)
        assert created.returncode == 0, created.stderr
        await gateway.is_ready()
        await worker.is_ready()
        for role in (server, gateway, worker):
            role.stop()


async def test_a_server_does_not_wait_for_a_password_to_become_right(tmp_path: Path) -> None:
    nats = NatsServer(tmp_path)
    nats.start()
    try:
        with postgres_pair(synchronous=False) as pair:
            given = {"NOETL_NATS_URL": nats.url, "NOETL_SERVER_KEY": new_key(), "NOETL_ACCESS_KEY": new_key()}
            nowhere = noetl("server", NOETL_POSTGRES_DSN=pair.primary.dsn("nowhere"), **given)
            assert nowhere.returncode == 3
            assert "the database does not exist" in one_clear_line(nowhere)
    finally:
        nats.end()
