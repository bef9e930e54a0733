"""Lineage as it is told: events of the form that OpenLineage 2-0-2 asks for, each at least once, in order."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

from measured import samples_of
from noetl_stream.adapters.simulated_time import simulated_clock
from noetl_stream.errors import PayloadRefused, Unreachable
from noetl_stream.model.events import ExecutionFinished, ExecutionStarted, TaskProcessed, TokenClaimed, TokenEnqueued
from noetl_stream.model.events.fact_parts import Fact, Token
from noetl_stream.model.json import codec
from noetl_stream.model.outcome import Dataset, ErrorInfo, Meta, Outcome
from noetl_stream.ports.stores.fed_events import FedEvent, FeedFloor
from noetl_stream.ports.stores.store import StoredEvent
from noetl_stream.sealing.data_references import Column, DataReference
from noetl_stream.server.open_lineage import run_events_of
from noetl_stream.server.upkeep.lineage_feed import READER, LineageFeed
from noetl_testkit.waiting import until

EXECUTION = "0192f0c1-2345-7abc-8def-0123456789ab"
FILE = DataReference("e/c/1/0/parts-1", 12, "sha256:00", name="orders.csv")
TABLE = DataReference("e/c/1/1/parts-1", 20, "sha256:11", columns=(Column("id", "BIGINT"),), rows=5)

FACET: dict[str, Any] = {
    "type": "object",
    "required": ["_producer", "_schemaURL"],
    "properties": {
        "_producer": {"type": "string", "format": "uri"},
        "_schemaURL": {
            "type": "string",
            "pattern": r"^https://openlineage\.io/spec/facets/\d+-\d+-\d+/\w+\.json#/\$defs/\w+$",
        },
    },
}
NAMED: dict[str, Any] = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {"namespace": {"type": "string", "minLength": 1}, "name": {"type": "string", "minLength": 1}},
}
RUN: dict[str, Any] = {
    "type": "object",
    "required": ["runId"],
    "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": {"additionalProperties": FACET}},
}


def facet(*required: str, **properties: Any) -> dict[str, Any]:
    return {"allOf": [FACET, {"required": list(required), "properties": properties}]}


def dataset(**more: Any) -> dict[str, Any]:
    known = {
        "schema": facet("fields", fields={"type": "array", "items": {"required": ["name"]}}),
        "version": facet("datasetVersion", datasetVersion={"type": "string"}),
    }
    facets = {"type": "object", "properties": known, "additionalProperties": FACET}
    return {"type": "array", "items": {"allOf": [NAMED, {"properties": {"facets": facets, **more}}]}}


STATISTICS = facet(rowCount={"type": "integer"}, size={"type": "integer"}, fileCount={"type": "integer"})
RUN_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["eventTime", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$"},
        "producer": {"type": "string", "format": "uri"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "run": {
            "allOf": [
                RUN,
                {
                    "properties": {
                        "facets": {
                            "properties": {
                                "parent": facet("run", "job", run=RUN, job=NAMED),
                                "errorMessage": facet("message", "programmingLanguage", message={"type": "string"}),
                            }
                        }
                    }
                },
            ]
        },
        "job": {
            "allOf": [
                NAMED,
                {"properties": {"facets": {"properties": {"jobType": facet("processingType", "integration")}}}},
            ]
        },
        "inputs": dataset(inputFacets={"additionalProperties": FACET}),
        "outputs": dataset(
            outputFacets={"properties": {"outputStatistics": STATISTICS}, "additionalProperties": FACET}
        ),
    },
}
"""What the specification of a run event and of the facets that are used here requires."""

FORMATS = jsonschema.FormatChecker()
CHECKED = jsonschema.Draft202012Validator(RUN_EVENT, format_checker=FORMATS)


def fed(tick: int, fact: Fact, position: int, run: str | None = "run") -> FedEvent:
    event = StoredEvent(
        position, fact.event_name(), "worker", 1_700_000_000_000 + position, run, None, None, codec.encode(fact)
    )
    return FedEvent(0, tick, 0, EXECUTION, "", "", "team/report", event)


def processed(**outcome: Any) -> TaskProcessed:
    meta = Meta(started_at="2026-11-30T10:00:00.000Z", ended_at="2026-11-30T10:00:01.000Z")
    return TaskProcessed("get", 1, Outcome(**{"status": "ok", "meta": meta, **outcome}), "continue")


STARTED = ExecutionStarted("d", "team/report", None, 1, {})
FACTS = [
    fed(1, STARTED, 1, None),
    fed(1, TokenEnqueued(Token("t", "load", "start")), 2, None),
    fed(1, TokenClaimed("t", "run"), 3, None),
    fed(2, processed(), 4),
    fed(2, processed(read=(FILE,), written=(TABLE,), datasets=(Dataset("postgres://db:5432", "a.b.c", True),)), 5),
    fed(3, processed(status="error", error=ErrorInfo("sql", "no such column"), read=(TABLE,)), 6),
    fed(4, ExecutionFinished("failed", Outcome("error", error=ErrorInfo("sql", "no such column"))), 7, None),
]


def test_each_event_has_the_form_that_openlineage_asks_for() -> None:
    told = [event for row in FACTS for event in run_events_of(row, "load")]
    for event in told:
        CHECKED.validate(event)
    assert [(one["eventType"], one["job"]["name"]) for one in told] == [
        ("START", "team/report"),
        ("START", "team/report.load.get"),
        ("COMPLETE", "team/report.load.get"),
        ("START", "team/report.load.get"),
        ("FAIL", "team/report.load.get"),
        ("FAIL", "team/report"),
    ]
    first, second = told[2], told[4]
    assert [one["name"] for one in first["inputs"]] == ["e/c/1/0/orders.csv"]
    assert first["outputs"][1] == {"namespace": "postgres://db:5432", "name": "a.b.c"}
    assert first["outputs"][0]["name"] == second["inputs"][0]["name"] == "e/c/1/1/table"
    assert first["outputs"][0]["facets"]["schema"]["fields"] == [{"name": "id", "type": "BIGINT"}]
    assert first["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 5
    assert first["run"]["facets"]["parent"]["run"]["runId"] == told[0]["run"]["runId"] == EXECUTION
    assert second["run"]["facets"]["errorMessage"]["message"] == "sql: no such column"
    assert next(one["run"] for one in run_events_of(FACTS[4], "load")) == told[1]["run"]


def test_a_load_by_name_tells_which_column_became_which() -> None:
    loaded = Dataset("postgres://db:5432", "a.b.c", written=True, columns=("id",))
    _, of_table = run_events_of(fed(2, processed(read=(TABLE,), datasets=(loaded,)), 4), "load")
    _, of_file = run_events_of(fed(2, processed(read=(FILE,), datasets=(loaded,)), 4), "load")
    CHECKED.validate(of_table)
    facets = of_table["outputs"][0]["facets"]
    assert facets["schema"]["fields"] == [{"name": "id"}]
    (source,) = facets["columnLineage"]["fields"]["id"]["inputFields"]
    assert (source["name"], source["field"]) == (of_table["inputs"][0]["name"], "id")
    assert [*of_file["outputs"][0]["facets"]] == ["schema"], "nobody knows what columns a file has"


@pytest.mark.verify
def test_each_event_and_its_facets_follow_the_newest_published_schemas() -> None:
    folder = os.environ.get("OPENLINEAGE_SPEC")
    if folder is None:
        pytest.skip(
            "OPENLINEAGE_SPEC is not set: the folder `spec` of a checkout of github.com/OpenLineage/OpenLineage"
        )
    read = [json.loads(path.read_text()) for path in Path(folder).rglob("*.json")]
    published = Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in read if "$id" in one)
    loaded = Dataset("postgres://db:5432", "a.b.c", written=True, columns=("id",))
    facts = [*FACTS, fed(5, processed(read=(TABLE,), datasets=(loaded,)), 8)]
    used = set()
    for event in (event for row in facts for event in run_events_of(row, "load")):
        for part, name in described(event):
            used.add(name.rpartition("/")[2])
            form = jsonschema.Draft202012Validator({"$ref": name}, registry=published, format_checker=FORMATS)
            form.validate(part)
    assert used == {
        "RunEvent", "ParentRunFacet", "ErrorMessageRunFacet", "JobTypeJobFacet", "SchemaDatasetFacet",
        "DatasetVersionDatasetFacet", "ColumnLineageDatasetFacet", "OutputStatisticsOutputDatasetFacet",
    }  # fmt: skip


def described(value: Any) -> Iterator[tuple[Any, str]]:
    """The parts of a value that name their schema, with its name."""
    if isinstance(value, dict):
        yield from ((value, value[name]) for name in ("schemaURL", "_schemaURL") if name in value)
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from described(part)


def test_an_event_of_another_form_would_be_noticed() -> None:
    event = next(run_events_of(FACTS[0]))
    for wrong in ({**event, "eventType": "DONE"}, {**event, "run": {"runId": "1"}}, {**event, "eventTime": "now"}):
        assert not CHECKED.is_valid(wrong)


class Receiver:
    """Takes events, after it has given these answers."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.got: list[Mapping[str, Any]] = []

    async def send(self, event: Mapping[str, Any]) -> None:
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.got.append(event)

    async def close(self) -> None:
        """Holds nothing."""


class Feed:
    """A feed of :data:`FACTS`, and what readers have stored."""

    def __init__(self, stored: int | None = None, floor: int = 0) -> None:
        self.stored, self.trimmed = {} if stored is None else {0: stored}, floor

    async def now(self) -> dict[int, int]:
        return {0: FACTS[-1].tick}

    async def floor(self) -> FeedFloor:
        return FeedFloor(1, {0: self.trimmed})

    async def read(self, after: Mapping[int, int], limit: int) -> list[FedEvent]:
        first = max(after[0], self.trimmed)
        return [row for row in FACTS if first < row.tick <= first + limit]

    async def told(self, reader: str) -> dict[int, int]:
        assert reader == READER
        return dict(self.stored)

    async def set_told(self, reader: str, ticks: Mapping[int, int]) -> None:
        self.stored |= ticks


class Journal:
    """The journal of the execution, as a store reads it."""

    async def events_named(self, execution_id: str, names: Any) -> list[StoredEvent]:
        return [row.event for row in FACTS if row.event is not None and row.event.name in names]


async def told(feed: Feed, receiver: Receiver, *, events: int) -> LineageFeed:
    """Tells lineage until the receiver has so many events, and the last of them is stored."""
    telling = LineageFeed(feed, Journal(), receiver, simulated_clock(), None)  # type: ignore[arg-type]
    running = asyncio.create_task(telling.run(lambda: True))
    try:
        await until(lambda: len(receiver.got) >= events and feed.stored == {0: FACTS[-1].tick})
    finally:
        running.cancel()
    return telling


async def test_events_are_sent_in_order_and_the_position_is_stored() -> None:
    receiver = Receiver()
    telling = await told(Feed(), receiver, events=6)
    assert [one["eventType"] for one in receiver.got] == ["START", "START", "COMPLETE", "START", "FAIL", "FAIL"]
    assert telling.counts == {"told": 6, "refused": 0, "lost": 0}


async def test_a_server_goes_on_where_another_has_stopped() -> None:
    receiver = Receiver()
    await told(Feed(stored=2), receiver, events=3)
    assert [(one["eventType"], one["job"]["name"]) for one in receiver.got] == [
        ("START", "team/report.load.get"),  # whose step is found in the journal
        ("FAIL", "team/report.load.get"),
        ("FAIL", "team/report"),
    ]


async def test_a_receiver_that_is_away_gets_all_when_it_is_back() -> None:
    receiver = Receiver(Unreachable("away"), Unreachable("away"), None, Unreachable("away"))
    telling = await told(Feed(), receiver, events=6)
    assert [one["eventType"] for one in receiver.got] == ["START", "START", "COMPLETE", "START", "FAIL", "FAIL"]
    assert telling.failure == ""


async def test_an_event_that_the_receiver_refuses_is_omitted_and_counted() -> None:
    receiver = Receiver(None, PayloadRefused("422"))
    telling = await told(Feed(), receiver, events=5)
    measured = samples_of(telling.readings())
    assert [measured[f"noetl_server_lineage_events_total {one}"] for one in ("told", "refused", "lost")] == [5, 1, 0]


async def test_events_trimmed_before_they_were_sent_are_counted() -> None:
    telling = await told(Feed(stored=1, floor=3), Receiver(), events=1)
    assert telling.counts == {"told": 1, "refused": 0, "lost": 2}
    at_first = await told(Feed(floor=3), Receiver(), events=1)
    assert at_first.counts == {"told": 1, "refused": 0, "lost": 0}


async def test_while_nothing_is_taken_it_says_why_and_another_server_takes_over() -> None:
    mine = True
    receiver = Receiver(*[Unreachable("the receiver is away")] * 1000)
    feed = Feed()
    telling = LineageFeed(feed, Journal(), receiver, simulated_clock(), None)  # type: ignore[arg-type]
    running = asyncio.create_task(telling.run(lambda: mine))
    await until(lambda: telling.failure == "the receiver is away")
    assert samples_of(telling.readings())["noetl_server_lineage_failing"] == 1
    mine = False
    await until(lambda: telling.failure == "")
    assert (receiver.got, feed.stored) == ([], {})
    running.cancel()


@pytest.mark.parametrize("name", [TokenEnqueued.event_name(), "task.started"])
def test_most_events_tell_nothing(name: str) -> None:
    assert [event for row in FACTS if row.event and row.event.name == name for event in run_events_of(row)] == []
