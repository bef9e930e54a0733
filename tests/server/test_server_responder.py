"""What a server says of the catalog to a worker that asks."""

from __future__ import annotations

from typing import Any

import pytest
from server_stage import Stage

from noetl_stream.adapters.memory.catalog import MemoryCatalog
from noetl_stream.errors import Unreachable
from noetl_stream.model import codec
from noetl_stream.ports.catalog import CatalogEntry
from noetl_stream.ports.subjects import ASK_CATALOG
from noetl_stream.testing.conformance.catalog import registered
from noetl_stream.worker.playbooks import PinnedPlaybook, PlaybookUnknown, pin_playbook

NESTED = "etl/airports.daily"


async def answer_to(stage: Stage, question: Any) -> Any:
    """The answer of whichever server hears it."""
    return codec.decode_json(await stage.broker.bus.ask(ASK_CATALOG, codec.encode(question), 1) or b"")


async def test_a_worker_gets_the_latest_or_the_version_it_names(stage: Stage) -> None:
    await stage.server()
    first = await registered(stage.catalog, "a", NESTED, "1.0")
    second = await registered(stage.catalog, "b", NESTED)
    pinned = await pin_playbook(stage.broker.bus, stage.clock, NESTED, None)
    assert pinned == PinnedPlaybook(second.digest, NESTED, "2")
    pinned = await pin_playbook(stage.broker.bus, stage.clock, f"/{NESTED}", "1.0")
    assert pinned == PinnedPlaybook(first.digest, NESTED, "1.0")


@pytest.mark.parametrize(
    ("path", "version", "reason"),
    [
        ("etl/airport.daily", None, f"no playbook etl/airport.daily in the catalog (did you mean `{NESTED}`?)"),
        (NESTED, "9", f"{NESTED} has no version 9 (it has `3`, `2`, `1.0`)"),
        (NESTED, "1.0@2", "are not a playbook address"),
        (f"{NESTED}@1.0", None, "are not a playbook address"),
        ("", None, "are not a playbook address"),
        ("a b", None, "use PATH[@VERSION]"),
    ],
)
async def test_an_unknown_version_is_reported_with_the_known_ones(
    stage: Stage, path: str, version: str | None, reason: str
) -> None:
    await stage.server()
    for text, given in (("a", "1.0"), ("b", None), ("c", None)):
        await registered(stage.catalog, text, NESTED, given)
    with pytest.raises(PlaybookUnknown) as caught:
        await pin_playbook(stage.broker.bus, stage.clock, path, version)
    assert reason in caught.value.message


@pytest.mark.parametrize("question", [None, [], {}, {"path": 1}, {"path": "a", "version": 1}, {"path": ["a"]}])
async def test_a_question_of_another_shape_is_answered_in_words(stage: Stage, question: Any) -> None:
    await stage.server()
    answer = await answer_to(stage, question)
    assert answer["known"] is False
    assert "are not a playbook address" in answer["reason"]


async def test_a_question_that_is_not_json_gets_an_error(stage: Stage) -> None:
    await stage.server()
    answer = codec.decode_json(await stage.broker.bus.ask(ASK_CATALOG, b"\xff", 1) or b"")
    assert answer["known"] is False


class Away(MemoryCatalog):
    """Its database does not answer the first questions."""

    failures = 3

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        if self.failures:
            self.failures -= 1
            raise Unreachable("cannot reach Postgres")
        return await super().resolve(path, version)


async def test_a_worker_asks_until_some_server_reaches_its_database(stage: Stage) -> None:
    stage.catalog = Away(stage.store.real)
    entry = await registered(stage.catalog, "a", NESTED)
    await stage.server()
    pinned = await pin_playbook(stage.broker.bus, stage.clock, NESTED, None)
    assert pinned.digest == entry.digest
    assert stage.catalog.failures == 0


async def test_a_registered_playbook_is_found_by_its_digest(stage: Stage) -> None:
    server = await stage.server()
    entry = await registered(stage.catalog, "a: 1", NESTED)
    known = await server.plans.load(entry.digest)
    assert known.row is not None
    assert known.row.source == "a: 1"
