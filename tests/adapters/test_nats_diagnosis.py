"""What a real NATS says of itself and of the streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from effort import first_in_gate
from nats_process import NatsCluster, NatsServer, free_port
from noetl_stream.adapters.clock import SystemClock
from noetl_stream.adapters.nats.cluster_report import NatsOwnDiagnosis
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.adapters.nats.streams import ensure_streams, stream_info
from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.protocol.subjects import EVENTS, LOGS
from noetl_stream.settings.servers import NatsSync
from noetl_testkit.waiting import until_it_is
from own_certificate import write_certificate

DAY_MS = 24 * 3_600_000


async def test_streams_are_missing_differ_or_are_well(own_nats_connection: NatsConnection) -> None:
    says, clock = NatsOwnDiagnosis(own_nats_connection, NatsSync()), SystemClock()
    assert not (await says.stream(EVENTS)).exists
    await ensure_streams(own_nats_connection)

    found = await says.stream(LOGS)
    assert (found.exists, found.differs, found.max_bytes, found.replicas, found.away) == (True, [], 1 << 30, 1, [])
    assert found.now_ms is not None and abs(found.now_ms - clock.now_ms()) < 60_000

    await own_nats_connection.api(f"STREAM.UPDATE.{EVENTS}", {**(await config(own_nats_connection)), "discard": "old"})
    assert (await says.stream(EVENTS)).differs == ["discard"]
    assert (await says.storage()).max_bytes is None
    about = await says.facts()
    assert (about.user, about.cluster, about.certificate_ends_ms) == ("", "", None) and about.version.startswith("2.")


async def test_a_monitoring_address_tells_how_soon_messages_are_on_the_disk(tmp_path: Path) -> None:
    server, port = NatsServer(tmp_path), free_port()
    server.start("-m", str(port))
    try:
        connection = await NatsConnection.open(server.url, name="tests")
        monitored = NatsOwnDiagnosis(connection, NatsSync(monitors=(f"http://127.0.0.1:{port}",)))
        facts = await monitored.facts()
        assert (facts.sync_s, facts.keeps_copies_apart) == (10.0, False)
        (store,) = (await monitored.storage()).servers
        assert (store.name, store.bytes) == (f"nats-server 127.0.0.1:{port}", 0) and (store.max_bytes or 0) > 1 << 20
        assert (await NatsOwnDiagnosis(connection, NatsSync(0.0)).facts()).sync_s == 0.0

        with pytest.raises(Unreachable, match=r"/varz does not tell how NATS writes to its disk"):
            await NatsOwnDiagnosis(connection, NatsSync(monitors=(f"http://127.0.0.1:{free_port()}",))).facts()
        await connection.close()
    finally:
        server.end()


async def test_messages_are_counted_from_a_time_on(own_nats_connection: NatsConnection) -> None:
    says, now_ms = NatsOwnDiagnosis(own_nats_connection, NatsSync()), SystemClock().now_ms()
    await ensure_streams(own_nats_connection)
    assert await says.stored_since(EVENTS, now_ms - DAY_MS) == 0
    for _ in range(3):
        await own_nats_connection.client.jetstream().publish("noetl.events.0.x", b"")

    assert await says.stored_since(EVENTS, now_ms - DAY_MS) == 3
    assert await says.stored_since(EVENTS, now_ms + DAY_MS) == 0


async def leader_of(connection: NatsConnection, stream: str) -> str:
    found = (await stream_info(connection, stream)).cluster
    assert found is not None
    return found.leader


async def config(connection: NatsConnection) -> dict[str, object]:
    return (await stream_info(connection, EVENTS)).config


@pytest.mark.parametrize("is_leader", first_in_gate([True, False]), ids=["the leader", "another"])
async def test_a_copy_that_is_away_is_named(cluster: NatsCluster, clustered: NatsConnection, is_leader: bool) -> None:
    says = NatsOwnDiagnosis(clustered, NatsSync())

    async def away() -> list[str]:
        try:
            return list((await says.stream(EVENTS)).away)
        except NoetlError:  # a leader is elected
            return []

    assert (await says.facts()).cluster == "noetl"
    assert (await says.stream(EVENTS)).replicas == 3
    leader = await leader_of(clustered, EVENTS)
    killed = next(name for name in cluster.servers if (name == leader) is is_leader)
    cluster.servers[killed].kill()
    await until_it_is([killed], away)  # the streams and the account elect leaders first


async def test_the_end_of_the_certificate_is_seen_and_moves_with_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `docs/how-to/rotate.md` says: a new certificate, and a reload."""
    certificate, private = write_certificate(tmp_path, 10)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = NatsServer(tmp_path, f'tls {{ cert_file: "{certificate}", key_file: "{private}" }}\n')
    server.start()
    try:
        assert 9 <= await days_left(server) <= 10
        write_certificate(tmp_path, 90)
        server.reload(1)
        assert 89 <= await days_left(server) <= 90
    finally:
        server.end()


async def days_left(server: NatsServer) -> int:
    connection = await NatsConnection.open(server.url.replace("nats:", "tls:"), name="tests")
    try:
        ends_ms = (await NatsOwnDiagnosis(connection, NatsSync()).facts()).certificate_ends_ms
    finally:
        await connection.close()
    assert ends_ms is not None
    return (ends_ms - SystemClock().now_ms()) // DAY_MS
