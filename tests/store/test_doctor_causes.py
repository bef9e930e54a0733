"""Each cause that the doctor knows, made on a real NATS or Postgres: its words and remedy, said once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from socket import gaierror
from typing import Any

import asyncpg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nats_process import NatsServer, free_port
from noetl_stream.adapters.nats.connections.connection import ApiRefused, NatsConnection
from noetl_stream.adapters.nats.protocol import ApiError
from noetl_stream.adapters.nats.streams import ensure_streams
from noetl_stream.adapters.postgres.connections.failures import translate_error
from noetl_stream.errors import NoetlError, Unreachable
from noetl_stream.hosting.maintenance import diagnose
from noetl_stream.local.secrets import new_seed, public_nkey
from noetl_stream.operations.doctor.findings import CAUSES, Finding, explained
from noetl_stream.ports.operations.cluster import CheckDocument
from noetl_stream.protocol.nats_accounts import nats_accounts
from noetl_stream.protocol.nats_permissions import ADMIN, GATEWAY, SERVER
from noetl_stream.protocol.subjects import LOGS
from noetl_stream.sealing.keys import new_key
from noetl_stream.wiring.endpoint import Endpoint

SEEDS = {identity: new_seed() for identity in (ADMIN, SERVER, GATEWAY, "worker-default")}
MEND = {cause.says: cause.mend for cause in CAUSES}
SEED = "NOETL_NATS_NKEY_FILE=nats-seeds/gateway.nk noetl-stream doctor"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    """A NATS with accounts."""
    accounts = nats_accounts({identity: public_nkey(seed) for identity, seed in SEEDS.items()})
    server = NatsServer(tmp_path_factory.mktemp("guarded"), accounts)
    server.start()
    yield server
    server.end()


async def examined(url: str, dsn: str, seed: str | None = None) -> Mapping[str, CheckDocument]:
    endpoint = Endpoint(url, dsn, {}, nats_nkey=seed, access_keys=(new_key(),))
    return {one.check: one for one in await diagnose(endpoint, on_demand=False)}


def is_root(found: Mapping[str, CheckDocument], root: str) -> bool:
    """Whether the checks that need this store say no more than that, and nothing else about it is wrong."""
    needing = [one for one in found.values() if one.verdict == "skipped"]
    return len(needing) > 5 and {one.says for one in needing} == {f"it needs `{root}`, which is wrong"}


@pytest.mark.parametrize(
    ("seed", "says"),
    [
        (new_seed(), "NATS does not know the user or the seed: "),
        (None, "NATS does not know the user or the seed: "),
        (SEEDS[SERVER], "the seed is not that of the gateway, as which doctor asks: "),
        (SEEDS["worker-default"], "the seed is not that of the gateway, as which doctor asks: "),
        ("SUBAD", "NOETL_NATS_NKEY is not a seed, which begins with SU: "),
    ],
    ids=["a seed that NATS does not know", "no seed", "a server's seed", "a worker's seed", "no real seed"],
)
async def test_a_wrong_seed_is_named_once_with_how_to_name_the_right_one(
    guarded: NatsServer, dsn: str, seed: str | None, says: str
) -> None:
    found = await examined(guarded.url, dsn, seed)
    assert found["nats"].verdict == "wrong" and found["nats"].says.startswith(says), found["nats"]
    assert found["nats"].mend == SEED and is_root(found, "nats"), found


async def test_with_the_right_seed_nothing_of_the_finding_is_left(guarded: NatsServer, dsn: str) -> None:
    admin = await NatsConnection.open(guarded.url, name="tests", nkey=SEEDS[ADMIN], identity=ADMIN)
    await ensure_streams(admin)
    await admin.close()
    found = await examined(guarded.url, dsn, SEEDS[GATEWAY])
    assert "ok" == found["nats"].verdict == found["streams"].verdict
    assert (found["pools"].verdict, found["pools"].mend) == ("warning", "noetl-stream worker")


@pytest.mark.parametrize(
    ("days", "host", "is_trusted", "says"),
    [
        (-1, "127.0.0.1", True, "the certificate of NATS has expired"),
        (9, "127.0.0.1", False, "the authority that signed the certificate of NATS is not trusted here"),
        (9, "127.0.0.2", True, "the certificate of NATS is for another name"),
    ],
    ids=["expired", "of an unknown authority", "for another name"],
)
async def test_a_certificate_that_is_not_taken_is_named(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch, days: int, host: str, is_trusted: bool, says: str
) -> None:
    certificate, key = write_certificate(tmp_path, days, host)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = NatsServer(tmp_path, f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}\n')
    server.start()
    try:
        found = await examined(server.url.replace("nats:", "tls:"), dsn)
    finally:
        server.end()
    assert found["nats"].says.startswith(f"{says}: ") and found["nats"].mend == MEND[says], found["nats"]
    assert is_root(found, "nats")


def write_certificate(folder: Path, days: int, host: str) -> tuple[Path, Path]:
    """A certificate that signs itself and ends in so many days, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=9))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return certificate, private


async def test_a_store_without_the_tls_that_its_address_asks_for_is_not_used(guarded: NatsServer) -> None:
    found = await examined(
        guarded.url.replace("nats:", "tls:"),
        f"postgresql://one@127.0.0.1:{guarded.port}/none?sslmode=require",
        SEEDS[GATEWAY],
    )
    for check, cause in (
        ("nats", "NATS offers no TLS, which its address asks for"),
        ("postgres", "what listens there offers no TLS, or is no Postgres"),
    ):
        assert found[check].says.startswith(f"{cause}: ") and found[check].mend == MEND[cause], found[check]


async def test_where_nobody_listens_the_servers_are_to_be_started(dsn: str) -> None:
    found = await examined(f"nats://127.0.0.1:{free_port()}", f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    says = ("no nats-server listens there", "no Postgres listens there")
    for check, cause in zip(("nats", "postgres"), says, strict=True):
        assert found[check].says.startswith(f"{cause}: ") and found[check].mend == MEND[cause]


async def test_a_server_that_does_not_greet_as_nats_is_named(dsn: str) -> None:
    """As where the address of NATS has the port of its monitoring, or of Postgres."""
    async with await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1") as silent:
        found = await examined(f"nats://127.0.0.1:{silent.sockets[0].getsockname()[1]}", dsn)
    says = "what listens there is no NATS, or one that hangs or has handshake_first"
    assert found["nats"].says.startswith(f"{says}: ") and found["nats"].mend == MEND[says], found["nats"]
    assert is_root(found, "nats")


async def change(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("statement", "verdict", "says", "mend"),
    [
        (
            "insert into noetl.migration (number, name, checksum) values (9999, '9999_later', '')",
            "warning",
            "the schema is newer than this version: 9999_later came later",
            "pip install --upgrade noetl-stream",
        ),
        (
            "insert into noetl.migration (number, name, checksum) values (9999, '9999_drop_all', '')",
            "wrong",
            "a newer release has changed the schema: ",
            "pip install --upgrade noetl-stream",
        ),
        ("drop schema noetl cascade", "wrong", "migrations are missing: ", "noetl-stream database migrate"),
    ],
    ids=["newer", "newer, without what this version uses", "missing"],
)
async def test_a_schema_of_another_version_is_named(
    guarded: NatsServer, dsn: str, statement: str, verdict: str, says: str, mend: str
) -> None:
    await change(dsn, statement)
    found = (await examined(guarded.url, dsn, SEEDS[GATEWAY]))["schema"]
    assert (found.verdict, found.says[: len(says)], found.mend[: len(mend)]) == (verdict, says, mend), found


async def test_a_database_that_does_not_exist_is_named(guarded: NatsServer, dsn: str) -> None:
    missing = dsn.replace("/test_", "/missing_")
    found = await examined(guarded.url, missing, SEEDS[GATEWAY])
    assert found["postgres"].mend == MEND["the database does not exist"] and is_root(found, "postgres"), found


async def test_a_right_that_the_accounts_lack_is_named(tmp_path: Path, dsn: str) -> None:
    """As after an upgrade of the program alone."""
    accounts = nats_accounts({identity: public_nkey(seed) for identity, seed in SEEDS.items()})
    assert f'"noetl.api.STREAM.INFO.{LOGS}"' in accounts
    server = NatsServer(tmp_path, accounts.replace(f'"noetl.api.STREAM.INFO.{LOGS}"', '"nothing"'))
    server.start()
    try:
        found = await examined(server.url, dsn, SEEDS[GATEWAY])
    finally:
        server.end()
    assert found["nats"].verdict == "ok" and found["streams"].verdict == "skipped"
    assert found["streams"].mend == MEND["the accounts of NATS lack a right that this version needs"], found["streams"]


async def test_a_nats_without_jetstream_is_named(tmp_path: Path, dsn: str) -> None:
    server = NatsServer(tmp_path)
    server.conf.write_text(re.sub(r"jetstream \{.*?\n\}", "", server.conf.read_text(), flags=re.DOTALL))
    server.start()
    try:
        found = await examined(server.url, dsn)
    finally:
        server.end()
    assert found["streams"].mend == MEND["nats-server runs without JetStream"], found["streams"]


async def test_a_user_that_postgres_does_not_let_in_is_named(
    guarded: NatsServer, dsn: str, postgres_server: Any
) -> None:
    await postgres_server.execute("drop role if exists barred", "create role barred nologin")
    found = await examined(guarded.url, dsn.replace("postgres@", "barred@"), SEEDS[GATEWAY])
    assert found["postgres"].mend == MEND["Postgres does not let this user in"], found["postgres"]


async def test_a_user_that_lacks_rights_in_postgres_is_named(
    guarded: NatsServer, dsn: str, postgres_server: Any
) -> None:
    await postgres_server.execute("drop role if exists poor", "create role poor login")
    found = await examined(guarded.url, dsn.replace("postgres@", "poor@"), SEEDS[GATEWAY])
    assert found["schema"].mend == MEND["the user lacks a right that this version needs"], found["schema"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ApiRefused("an object", ApiError(500, 10047, "insufficient storage")), "NATS has no room left"),
        (ApiRefused("an object", ApiError(400, 10002, "limits reached")), "the account of NATS is full"),
        (
            Unreachable("cannot reach NATS at nats://n: [Errno -2] Name or service not known"),
            "the host of NATS is not known",
        ),
        (Unreachable("cannot reach NATS at nats://n: no answer"), "NATS does not answer"),
        (translate_error(gaierror(-2, "Name or service not known"), "host"), "the host of Postgres is not known"),
        (translate_error(TimeoutError(), "host"), "Postgres does not answer"),
        (translate_error(asyncpg.InvalidPasswordError("no"), "host"), "Postgres does not take the password"),
    ],
)
def test_causes_not_produced_here_are_known_by_their_error(error: NoetlError, says: str) -> None:
    assert explained(error) == Finding("wrong", f"{says}: {error.message}", MEND[says])
