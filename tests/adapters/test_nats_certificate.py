"""A NATS that verifies its clients: who shows a certificate, who shows none, and a certificate that is renewed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from nats_process import NatsServer
from noetl_stream.adapters.nats.connections import connection as connection_module
from noetl_stream.adapters.nats.connections.connection import NatsConnection
from noetl_stream.errors import Unreachable, UsageError
from noetl_testkit.waiting import until
from own_certificate import write_certificate

VERIFYING = """
tls {{ cert_file: "{0}/tls.crt", key_file: "{0}/tls.key", ca_file: "{0}/tls.crt", verify: true, timeout: 30 }}
"""


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a certificate, which is the authority of both sides."""
    folder = tmp_path / "certificate"
    folder.mkdir()
    write_certificate(folder, 10)
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "tls.crt"))
    return folder


@pytest.fixture
def verifying(tmp_path: Path, certificate: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path, VERIFYING.format(certificate))
    server.start()
    yield server
    server.end()


def tls(server: NatsServer) -> str:
    return server.url.replace("nats:", "tls:")


async def test_a_certificate_is_shown_by_a_connection_and_its_siblings(
    verifying: NatsServer, certificate: Path
) -> None:
    connection = await NatsConnection.open(tls(verifying), name="tests", certificate=certificate, connect_timeout_s=30)
    try:
        sibling = await connection.sibling("second")
        assert sibling.is_connected
        await sibling.close()
    finally:
        await connection.close()


async def test_a_client_without_a_certificate_is_refused_with_the_setting_to_use(verifying: NatsServer) -> None:
    with pytest.raises(Unreachable) as refused:
        await NatsConnection.open(tls(verifying), name="tests", connect_timeout_s=5)
    assert "NOETL_NATS_CERTIFICATE" in str(refused.value)


async def test_a_refused_connection_ends_although_its_socket_never_closes(
    verifying: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_client: Client) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(Client, "close", never)
    monkeypatch.setattr(connection_module, "CLOSE_S", 0.01)
    with pytest.raises(Unreachable):
        await NatsConnection.open(tls(verifying), name="tests", connect_timeout_s=1)


async def test_traffic_to_an_address_with_tls_is_encrypted_or_not_sent(tmp_path: Path, certificate: Path) -> None:
    optional = f'tls {{ cert_file: "{certificate}/tls.crt", key_file: "{certificate}/tls.key" }}\nallow_non_tls: true\n'
    for configuration, is_encrypted in ((optional, True), ("", False)):
        server = NatsServer(tmp_path, configuration)
        server.start()
        try:
            if is_encrypted:
                connection = await NatsConnection.open(tls(server), name="tests", connect_timeout_s=30)
                assert connection.client._transport._io_writer.get_extra_info("cipher")  # noqa: SLF001
                await connection.close()
            else:
                with pytest.raises(Unreachable, match="offers no TLS"):
                    await NatsConnection.open(tls(server), name="tests", connect_timeout_s=5)
        finally:
            server.end()


async def test_a_renewed_certificate_is_shown_when_the_connection_is_restored(
    verifying: NatsServer, certificate: Path
) -> None:
    connection = await NatsConnection.open(tls(verifying), name="tests", certificate=certificate, connect_timeout_s=30)
    try:
        verifying.kill()
        write_certificate(certificate, 20)  # of another key: the server trusts the former one no more
        verifying.start()
        await until(lambda: connection.line == 2)
        assert connection.is_connected
    finally:
        await connection.close()


async def test_a_folder_without_a_certificate_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no client certificate for NATS in") as refused:
        await NatsConnection.open("tls://127.0.0.1:1", name="tests", certificate=tmp_path / "none")
    assert "tls.crt and tls.key" in str(refused.value)
