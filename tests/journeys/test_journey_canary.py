"""Secrets planted in every place a task can show them, and found in none of the places where things are kept."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import asyncpg
import nats
import pytest
from canary_api import CanaryApi

from noetl_stream.local.stack import EmbeddedStack
from noetl_stream.protocol.nats_permissions import SERVER, inbox_prefix
from noetl_stream.protocol.subjects import COMMANDS, EVENTS
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import embedded_endpoint
from noetl_stream.wiring.stores import connect
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("stack")

PLAYBOOK = Path(__file__).with_name("canary_playbook.yaml")
TEXTS = ("url", "header", "sql", "exception", "stdout", "traceback", "duckdb", "result")


def canary(place: str) -> str:
    """A secret that is nowhere else, with signs that are written differently in URLs, JSON and Python."""
    return f"Kanari/{place}+\"'\\{secrets.token_hex(12)} ü&="


def forms(secret: str) -> dict[str, bytes]:
    """What must not be found, by what it is called."""
    core = secret.split("\\")[1].split(" ")[0]  # the part that every way of writing leaves as it is
    return {
        f"{secret} as it is": secret.encode(),
        f"{secret} in part": core.encode(),
        f"{secret} in a URL": quote(secret, safe="").encode(),
        f"{secret} in base64": base64.b64encode(secret.encode()),
        f"{secret} for a user": base64.b64encode(f"ann:{secret}".encode()),
    }


@pytest.fixture
def stack(shared_home: Path) -> Iterator[EmbeddedStack]:
    with EmbeddedStack.join(shared_home) as joined:
        yield joined


async def test_no_secret_is_kept_anywhere(
    shared_home: Path, stack: EmbeddedStack, tmp_path: Path, keychain_folder: Path
) -> None:
    planted = {place: canary(place) for place in (*TEXTS, "body", "refusal", "file", "client", "stale", "token")}
    credentials: dict[str, str | dict[str, str]] = {f"canary_in_{place}": planted[place] for place in TEXTS}
    credentials["canary_in_body"] = {"key": planted["body"]}
    credentials["canary_in_refusal"] = {"username": "ann", "password": planted["refusal"]}
    credentials["canary_client"] = {"client_id": "me", "client_secret": planted["client"]}
    # A header cannot hold every sign.
    for place in ("header", "file", "stale", "token"):
        planted[place] = planted[place].encode("ascii", "ignore").decode().split(" ")[0].replace('"', "")
    credentials["canary_in_header"] = planted["header"]
    file = keychain_folder / "token.json"
    file.write_text(json.dumps({"token": planted["file"]}))
    for name, value in credentials.items():
        text = value if isinstance(value, str) else json.dumps(value)
        stored = await asyncio.to_thread(
            noetl, "credential", "set", name, "--value-stdin", "--home", shared_home, given=text
        )
        assert stored.returncode == 0, stored.stderr
    api = CanaryApi([planted["stale"], planted["token"]])
    async with api.serving() as url:
        source = PLAYBOOK.read_text().replace("CANARY_API", url).replace("CANARY_FILE", str(file))
        (tmp_path / "canary.yaml").write_text(source)
        run = await asyncio.to_thread(noetl, "run", tmp_path / "canary.yaml", "--home", shared_home, "-o", "json")
    found = json.loads(run.stdout)
    assert found["status"] == "failed", run.stdout
    assert "cannot hold a secret: leave out keychain.in_url" in run.stdout
    check_that_they_were_used(planted, api, await journal(stack, found["execution_id"]))
    kept = await everything_kept(stack)
    kept["the program's own output"] = (run.stdout + run.stderr).encode()
    leaks = [
        f"{form} in {place}"
        for secret in planted.values()
        for form, text in forms(secret).items()
        for place, data in kept.items()
        if text in data
    ]
    assert leaks == []


def check_that_they_were_used(planted: dict[str, str], api: CanaryApi, journal: str) -> None:
    """A test that plants nothing finds nothing."""
    received = "\n".join(api.received)
    for place in ("header", "file"):
        assert planted[place] in received
    assert planted["url"] in unquote(received)
    assert {"key": planted["body"], "list": [{"key": planted["body"]}]} in [read_json(text) for text in api.received]
    assert base64.b64encode(f"ann:{planted['refusal']}".encode()).decode() in received
    assert journal.count("***") > 20


def read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


async def journal(stack: EmbeddedStack, execution_id: str) -> str:
    connection = await asyncpg.connect(stack.address.postgres_dsn)
    try:
        rows = await connection.fetch(
            "select concat(data, decisions) from noetl.event where execution_id = $1", execution_id
        )
    finally:
        await connection.close()
    text = "\n".join(row[0] for row in rows)
    for task in ("url", "refusal", "with_token", "failing_text", "duckdb_error", "large_result", "read"):
        assert f'"{task}"' in text
    return text


async def everything_kept(stack: EmbeddedStack) -> dict[str, bytes]:
    """All messages in NATS, all rows in Postgres, all objects unsealed, and the bytes of all files of the home."""
    kept: dict[str, bytes] = {}
    seed, prefix = stack.address.seeds[SERVER], inbox_prefix(SERVER)
    connection = await nats.connect(stack.address.nats_url, nkeys_seed_str=seed, inbox_prefix=prefix)
    try:
        stream = connection.jetstream()
        for name in (EVENTS, COMMANDS):
            state = (await stream.stream_info(name)).state
            for sequence in range(state.first_seq, state.last_seq + 1):
                try:
                    message = await stream.get_msg(name, sequence)
                except nats.js.errors.NotFoundError:
                    continue
                kept[f"{name} {sequence} {message.subject}"] = str(message.headers).encode() + (message.data or b"")
    finally:
        await connection.close()
    for dsn in (stack.address.postgres_dsn, stack.address.playbooks_dsn):
        database = await asyncpg.connect(dsn)
        try:
            tables = await database.fetch(
                "select schemaname, tablename from pg_tables where schemaname !~ '^(pg_|info)'"
            )
            for schema, table in tables:
                rows = await database.fetch(f'select t::text from "{schema}"."{table}" t')
                kept[f"table {schema}.{table}"] = "\n".join(row[0] for row in rows).encode()
        finally:
            await database.close()
    references = set(re.findall(rb'"+store"+: ?"+nats"+, ?"+key"+: ?"+([^"]+)"', kept["table noetl.event"]))
    assert references
    server = await connect(embedded_endpoint(stack, Settings(), SERVER), name="canary")
    try:
        for key in references:
            kept[f"object {key.decode()}"] = await server.objects.get(key.decode())
    finally:
        await server.close()
    for path in stack.address.home.rglob("*"):
        if path.is_file():
            kept[str(path)] = path.read_bytes()
    return kept
