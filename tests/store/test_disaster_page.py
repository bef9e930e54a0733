"""The commands of the page about disasters, on stores that are lost, one after the other as it says."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest
from kept_places import KeptPlace
from msgspec.structs import replace
from real_stack import LARGE, RealStack

from nats_process import NatsServer
from noetl_stream.hosting.maintenance import create_backup
from noetl_stream.sealing.file_keys import FileKeys
from noetl_stream.sealing.keys import new_key
from warm_program import noetl

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "disaster.md"
SHOWN_PLACE = "s3://backups/noetl"
KEYS = FileKeys(new_key())


def orders(heading: str) -> list[list[str]]:
    """The lists of commands below a heading."""
    section = re.split(r"^## ", PAGE.read_text().split(f"## {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    return [block.splitlines() for block in re.findall(r"^```text\n(.*?)^```", section, re.M | re.S)]


async def follow(stack: RealStack, order: list[str], place: KeptPlace) -> None:
    """Does what the page says."""
    here = {
        "NOETL_NATS_URL": stack.endpoint.nats_url,
        "NOETL_POSTGRES_DSN": str(stack.endpoint.postgres_dsn),
        "NOETL_SERVER_KEY": stack.endpoint.server_keys[0],
        "NOETL_ACCESS_KEY": stack.endpoint.access_keys[0],
        "NOETL_BACKUP_TRUSTED_KEYS": KEYS.public_key,
    }
    for line in order:
        program, *words = shlex.split(line.replace(SHOWN_PLACE, place.text))
        confirmed = ["--yes"] if words[:2] == ["backup", "restore"] else []  # there is no terminal
        done = await asyncio.to_thread(noetl, *words, *confirmed, **here)
        assert (program, done.returncode) == ("noetl-stream", 0), (line, done.stderr)


@pytest.mark.verify
@pytest.mark.parametrize(
    ("heading", "number", "lost"),
    [
        ("Postgres is lost", 0, {"postgres"}),
        ("Postgres is lost", 1, {"postgres"}),
        ("NATS is lost", 0, {"nats"}),
        ("Both are lost", 0, {"postgres", "nats"}),
    ],
)
async def test_executions_that_ended_before_the_disaster_are_there_after_it_and_new_ones_end(
    heading: str, number: int, lost: set[str], stack: RealStack, empty_dsn: str, bucket: KeptPlace, tmp_path: Path
) -> None:
    async with stack.running() as connected:
        ended = await stack.submit(connected, LARGE, "tests/large")
        await stack.ended(connected, ended)
        await stack.agree()
    await create_backup(stack.endpoint, bucket.files, "nightly", KEYS)
    (tmp_path / "other").mkdir()
    other = NatsServer(tmp_path / "other")
    other.start()
    try:
        if "postgres" in lost:
            stack.endpoint = replace(stack.endpoint, postgres_dsn=empty_dsn)
        if "nats" in lost:
            stack.nats = other
            stack.endpoint = replace(stack.endpoint, nats_url=other.url)
        await follow(stack, orders(heading)[number], bucket)
        async with stack.running() as connected:
            assert b"120000" in bytes((await stack.ended(connected, ended)).result or b"")
            await stack.ended(connected, await stack.submit(connected, LARGE, "tests/large"))
            await stack.agree()
    finally:
        other.end()


def test_every_order_of_the_page_is_tried() -> None:
    counts = {"Postgres is lost": 2, "NATS is lost": 1, "Both are lost": 1}
    assert {heading: len(orders(heading)) for heading in counts} == counts
