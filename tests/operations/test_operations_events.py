"""Events by position, name, step, task, iteration and text; whole or in part."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from operations_stage import OperationsStage
from shown_stage import SECRET, Showing

from noetl_stream.model.envelope import EventDocument
from noetl_stream.model.json import codec
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.views import events as event_pages
from noetl_stream.operations.views.direct import DirectViews
from noetl_stream.ports.operations.executions import ExecutionDocument
from noetl_stream.ports.operations.reading.events import EVENT_FIELDS, EventFilter, EventPage
from noetl_stream.storage.journal import FIRST_READ
from noetl_testkit.simulation.work import playbook, then, work

TWO = playbook(
    "two",
    [
        {"step": "start", "tool": {"name": "one", **work("alpha")}, "next": then("each")},
        {
            "step": "each",
            "loop": {"in": [1, 2, 3], "iterator": "n"},
            "tool": {"name": "two", **work("Beta {{ iter.n }}")},
        },
    ],
)


@pytest.fixture
async def ended(stage: OperationsStage) -> ExecutionDocument:
    return await stage.run(TWO)


async def page(stage: OperationsStage, ended: ExecutionDocument, limit: int = 1000, **chosen: Any) -> EventPage:
    return await stage.views.events(ended.execution_id, EventFilter(**chosen), limit)


def positions(found: EventPage) -> list[Any]:
    return [one.position for one in found.items]


async def test_without_a_filter_events_are_the_whole_journal(stage: OperationsStage, ended: ExecutionDocument) -> None:
    journal = await stage.executions.events(ended.execution_id, 0, 1000)
    found = await page(stage, ended)
    assert codec.encode(found.items) == codec.encode(journal)
    assert (found.next, found.previous) == (None, None)


def test_the_fields_are_those_of_an_event() -> None:
    assert EventDocument.__struct_fields__ == EVENT_FIELDS


@pytest.mark.parametrize("limit", [1, 3, 7])
async def test_pages_forwards_and_backwards_have_each_event_once(
    stage: OperationsStage, ended: ExecutionDocument, limit: int
) -> None:
    forwards: list[Any] = []
    after: int | None = 0
    while after is not None:
        found = await page(stage, ended, limit, after=after)
        forwards, after = forwards + positions(found), found.next
    backwards: list[Any] = []
    before: int | None = ended.position + 1
    while before is not None:
        found = await page(stage, ended, limit, before=before)
        backwards, before = positions(found) + backwards, found.previous
    assert forwards == backwards == list(range(1, ended.position + 1))


async def test_a_position_far_beyond_the_end_reads_no_more_than_the_end_does(
    stage: OperationsStage, ended: ExecutionDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[int, int]] = []
    journal = stage.store.journal

    async def counted(execution_id: str, after: int = 0, limit: int | None = None) -> Any:
        reads.append((after, limit or 0))
        return await journal(execution_id, after, limit)

    monkeypatch.setattr(stage.store, "journal", counted)
    found = await page(stage, ended, 2, before=2**31 - 1, fields=["position"])
    assert positions(found) == [ended.position - 1, ended.position]
    assert reads == [(ended.position - 2, 2)]


@pytest.mark.parametrize("chosen", [{"after": 0}, {"before": 2**31 - 1}, {"names": ["task.processed"]}])
async def test_few_large_events_are_read_at_once(
    stage: OperationsStage, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any]
) -> None:
    loop = {"in": "{{ range(150) | list }}", "iterator": "n", "spec": {"mode": "parallel"}}
    ended = await stage.run(playbook("large", [{"step": "each", "loop": loop, "tool": work("x" * 40_000)}]))
    reads: list[int] = []
    for name in ("journal", "events_named"):
        read = getattr(stage.store, name)

        async def counted(*given: Any, read: Any = read) -> Any:
            found = await read(*given)
            reads.append(sum(len(event.data) for event in found))
            return found

        monkeypatch.setattr(stage.store, name, counted)
    forwards = "before" not in chosen
    listed, following = list[Any](), EventFilter(**chosen)
    while True:
        found = await stage.views.events(ended.execution_id, following, 1000)
        listed = [*listed, *positions(found)] if forwards else [*positions(found), *listed]
        at = found.next if forwards else found.previous
        if at is None:
            break
        following = replace(following, **({"after": at} if forwards else {"before": at}))
    assert sum(reads) > 5_000_000
    assert max(reads) <= 2 * FIRST_READ * 41_000
    assert listed == sorted(set(listed)) and len(listed) >= 150


async def test_both_ends_of_a_range_bound_it(stage: OperationsStage, ended: ExecutionDocument) -> None:
    assert positions(await page(stage, ended, after=3, before=7)) == [4, 5, 6]


async def test_all_filters_of_events_hold_together(stage: OperationsStage, ended: ExecutionDocument) -> None:
    everything = (await page(stage, ended)).items
    processed = await page(stage, ended, names=["task.processed"])
    assert [one.task for one in processed.items] == ["one", "two", "two", "two"]
    assert [one.iteration for one in (await page(stage, ended, names=["task.processed"], step="each")).items] == [
        [0],
        [1],
        [2],
    ]
    of_step = (await page(stage, ended, step="start")).items
    assert {"token.enqueued", "token.claimed", "step.done", "next.evaluated"} <= {one.name for one in of_step}
    assert {one.name for one in of_step} < {one.name for one in everything}
    assert {one.task for one in (await page(stage, ended, task="two")).items} == {"two"}
    assert {tuple(one.iteration or ()) for one in (await page(stage, ended, iteration=(1,))).items} == {(1,)}
    assert (await page(stage, ended, step="start", iteration=(1,))).items == []


async def test_text_is_found_in_any_case(stage: OperationsStage, ended: ExecutionDocument) -> None:
    found = await page(stage, ended, text="bETA 2", names=["task.processed"])
    assert [(one.name, one.iteration) for one in found.items] == [("task.processed", [1])]


async def test_fields_that_were_not_asked_for_are_left_out(stage: OperationsStage, ended: ExecutionDocument) -> None:
    found = await page(stage, ended, fields=["position", "name"], names=["step.done"])
    assert codec.decode_json(codec.encode(found.items)) == [
        {"position": one.position, "name": "step.done"} for one in found.items
    ]
    assert found.items[0].data is UNSET


async def test_a_page_searches_so_many_events_and_says_where_to_go_on(
    stage: OperationsStage, ended: ExecutionDocument, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_pages, "SEARCHED", 5)
    found = await page(stage, ended, text="nowhere")
    assert (found.items, found.next) == ([], 5)
    back = await page(stage, ended, text="nowhere", before=ended.position + 1)
    assert (back.items, back.previous) == ([], ended.position - 4)


async def test_a_page_ends_with_so_many_bytes(stage: OperationsStage) -> None:
    big = await stage.run(playbook("big", [{"step": "only", "tool": work("{{ 'x' * 30000 }}")}]))
    wide = await stage.run(
        playbook(
            "wide",
            [{"step": "each", "loop": {"in": list(range(60)), "iterator": "n"}, "tool": work("{{ 'x' * 30000 }}")}],
        )
    )
    assert (await page(stage, big)).next is None
    found = await page(stage, wide)
    assert found.next is not None and 1024 * 1024 < len(codec.encode(found)) < 1024 * 1024 + 100_000


async def test_a_text_that_is_hidden_is_not_found(stage: OperationsStage) -> None:
    showing = Showing(stage)
    await DirectCredentials(showing.credentials, showing.keys).put("pg", SECRET, "ann")
    execution_id = await showing.run()
    views = DirectViews(stage.store, stage.checking, showing.secrets)
    assert (await views.events(execution_id, EventFilter(text=SECRET), 100)).items
    await showing.give(execution_id)
    assert (await views.events(execution_id, EventFilter(text=SECRET), 100)).items == []
    assert (await views.events(execution_id, EventFilter(text="it is ***"), 100)).items
