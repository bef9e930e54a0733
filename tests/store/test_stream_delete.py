"""`noetl-stream stream delete`: by the identity `admin` alone, when it is said what is lost, and in the audit."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from cli_program import one_clear_line
from nats_process import NatsServer
from noetl_stream.hosting.nats_seeds import write_seeds
from warm_program import noetl

WITH_EVENTS = "with it goes what Postgres has not folded, and the copy from which a lost Postgres could be rebuilt"


@pytest.fixture
def own(tmp_path: Path, dsn: str) -> Iterator[dict[str, str]]:
    """The settings of an operator: a NATS with accounts, the folder of their seeds, and a migrated database."""
    seeds = tmp_path / "seeds"
    server = NatsServer(tmp_path, write_seeds(seeds, (), ()).text)
    server.start()
    settings = {"NOETL_NATS_URL": server.url, "NOETL_NATS_SEEDS": str(seeds), "NOETL_POSTGRES_DSN": dsn}
    settings["HOME"] = str(tmp_path)
    try:
        done = noetl("stream", "ensure", **settings)
        assert done.returncode == 0, done.stderr
        yield settings
    finally:
        server.end()


def delete(own: dict[str, str], *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return noetl("stream", "delete", *words, **{**own, **more})


def streams(own: dict[str, str]) -> list[str]:
    return [row["stream"] for row in json.loads(noetl("stream", "list", "-o", "json", **own).stdout)]


async def statement(dsn: str, text: str) -> list[tuple[object, ...]]:
    connection = await asyncpg.connect(dsn)
    try:
        return [tuple(row) for row in await connection.fetch(text)]
    finally:
        await connection.close()


def test_losses_are_shown_before_anything_is_deleted(own: dict[str, str]) -> None:
    for words in (["EVENTS"], ["EVENTS", "--yes-lose", "commands"], ["EVENTS", "--yes-lose", "yes"]):
        refused = delete(own, *words)
        assert refused.returncode == 2
        line = one_clear_line(refused)
        assert f"nothing is deleted: EVENTS holds 0 messages, 0 of them not folded; {WITH_EVENTS}" in line
        assert "noetl-stream stream delete EVENTS --yes-lose events" in line
    assert "Invalid value for" in delete(own, "ORDERS", "--yes-lose", "events").stderr
    assert len(streams(own)) == 4


def test_a_deleted_stream_is_in_the_audit_with_who_and_why(own: dict[str, str]) -> None:
    words = {"EVENTS": "events", "COMMANDS": "commands", "OBJ_noetl-results": "results", "LOGS": "logs"}
    for stream, word in words.items():
        done = delete(own, stream, "--yes-lose", word, "--reason", "an older Postgres")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"deleted {stream}: {stream} holds 0 messages")
    assert streams(own) == []
    again = delete(own, "EVENTS", "--yes-lose", "events")
    assert again.returncode == 3
    assert "stream EVENTS does not exist" in one_clear_line(again)
    query = (
        "select operation, target, principal, status, reason from noetl.audit join noetl.audit_answer using (number)"
    )
    recorded = asyncio.run(statement(own["NOETL_POSTGRES_DSN"], f"{query} order by number"))
    assert [row[1] for row in recorded] == list(words)
    for operation, target, by, status, reason in recorded:
        assert (operation, status, bool(by)) == ("deleteStream", 204, True)
        assert str(reason).startswith(f"an older Postgres: {target} holds 0 messages")
    assert "created stream EVENTS" in noetl("stream", "ensure", **own).stdout


def test_the_seed_of_another_identity_deletes_nothing(own: dict[str, str]) -> None:
    seeds = Path(own["NOETL_NATS_SEEDS"])
    admin = (seeds / "admin.nk").read_text()
    for identity in ("server", "gateway", "worker-default"):
        (seeds / "admin.nk").write_text((seeds / f"{identity}.nk").read_text())
        assert delete(own, "COMMANDS", "--yes-lose", "commands").returncode == 3
    (seeds / "admin.nk").unlink()
    assert "no seed of admin" in delete(own, "COMMANDS", "--yes-lose", "commands").stderr
    (seeds / "admin.nk").write_text(admin)
    (seeds / "admin.nk").chmod(0o600)
    assert "COMMANDS" in streams(own)


def test_a_server_that_lives_keeps_its_streams(own: dict[str, str]) -> None:
    living = "insert into noetl.server (name, version, reads, live_until) values ('server-1', '1', 1, 'infinity')"
    asyncio.run(statement(own["NOETL_POSTGRES_DSN"], living))
    refused = delete(own, "EVENTS", "--yes-lose", "events")
    assert refused.returncode == 1
    assert "servers live: server-1" in one_clear_line(refused)
    assert "EVENTS" in streams(own)


def test_streams_of_a_postgres_that_is_lost_can_be_deleted(own: dict[str, str], empty_dsn: str) -> None:
    done = delete(own, "EVENTS", "--yes-lose", "events", NOETL_POSTGRES_DSN=empty_dsn)
    assert (done.returncode, done.stderr) == (0, "no audit has it: Postgres has no schema\n")
    assert "EVENTS" not in streams(own)
    unreachable = "postgresql://nobody@127.0.0.1:1/none"
    refused = delete(own, "COMMANDS", "--yes-lose", "commands", NOETL_POSTGRES_DSN=unreachable)
    assert refused.returncode == 3
    assert "COMMANDS" in streams(own)
