"""Words that are hidden in an error find nothing: a filter sees what is shown."""

from __future__ import annotations

import pytest
from operations_stage import OperationsStage
from shown_stage import SECRET, Showing

from noetl_stream.model.ids import first_uuid7
from noetl_stream.model.json import codec
from noetl_stream.model.search_terms import error_terms, label_terms
from noetl_stream.operations.access import AuditRecord, DirectCredentials
from noetl_stream.operations.executions.reading.known import listing_of
from noetl_stream.operations.executions.redacted import RedactedExecutions
from noetl_stream.operations.executions.selections import DirectSelections, groups_of
from noetl_stream.ports.operations.executions import ExecutionFilter
from noetl_stream.ports.operations.selections import BulkOrder
from noetl_stream.ports.stores.store import ListingFilter
from noetl_stream.ports.stores.tallies import ExecutionTally, TallyKey
from noetl_testkit.conformance.store_rows import execution_row
from noetl_testkit.memory.access import MemoryAudit

HIDDEN, SHOWN = ExecutionFilter(error=SECRET), ExecutionFilter(error="refused")


@pytest.fixture
async def showing(stage: OperationsStage) -> Showing:
    made = Showing(stage)
    await DirectCredentials(made.credentials, made.keys).put("pg", SECRET, "ann")
    return made


async def failed(showing: Showing, number: int, *, given: bool) -> str:
    """An execution whose error says the secret, which is hidden if it was given it."""
    tables, error = showing.stage.store.tables, {"kind": "exception", "message": f"the key {SECRET} was refused"}
    execution_id = first_uuid7(showing.stage.clock.now_ms() - 60_000 + number) + f"-7000-8000-{number:012}"
    row = execution_row(execution_id, status="failed", finished_ms=1, error=codec.encode(error))
    tables.executions[execution_id] = row
    tables.terms |= {(term, execution_id) for term in error_terms(error)}
    if given:
        await showing.give(execution_id)
    return execution_id


async def test_a_hidden_word_finds_nothing_on_any_page(showing: Showing) -> None:
    executions = RedactedExecutions(showing.stage.executions, showing.secrets)
    ids = [await failed(showing, number, given=number % 3 > 0) for number in range(6)]
    for size in (1, 2, 9):
        listed, cursor = list[str](), None
        while True:
            page = await executions.page(HIDDEN, size, cursor)
            listed += [one.execution_id for one in page.items]
            assert len(page.items) == size or page.next is None
            if (cursor := page.next) is None:
                break
        assert listed == [ids[3], ids[0]], "those whose error shows it"
    everything = await executions.page(SHOWN, 9, None)
    assert [one.execution_id for one in everything.items] == ids[::-1]


async def test_the_last_page_of_a_search_has_no_next_whatever_is_hidden(showing: Showing) -> None:
    executions = RedactedExecutions(showing.stage.executions, showing.secrets)
    for number in range(3):
        await failed(showing, number, given=True)
    page = await executions.page(HIDDEN, 1, None)
    assert (page.items, page.next) == ([], None)


async def test_a_hidden_word_counts_nothing_and_selects_nothing(showing: Showing) -> None:
    stage = showing.stage
    executions = RedactedExecutions(stage.executions, showing.secrets)
    selections = DirectSelections(executions, stage.store, stage.clock, AuditRecord(MemoryAudit(), stage.clock))
    for number in range(3):
        await failed(showing, number, given=number < 2)
    for chosen, expected in ((HIDDEN, {"failed": 1}), (SHOWN, {"failed": 3})):
        for key in ("path", "label:team"):
            groups = await selections.groups(chosen, key)
            assert [group.counts for group in groups.items] == [expected]
            assert groups.complete
        bars = await selections.histogram(chosen, 24)
        assert (bars.counts, sum(bars.bars["failed"]), bars.complete) == (expected, expected["failed"], True)
        acted = await selections.act(BulkOrder("delete", chosen=chosen, dry_run=True), "ann")
        assert len(acted.items) == expected["failed"]


@pytest.mark.parametrize(
    ("column", "value", "chosen"),
    [
        ("key", SECRET, ExecutionFilter(key=SECRET)),
        ("inputs", codec.encode({"order.id": SECRET}), ExecutionFilter(inputs={"order.id": SECRET})),
    ],
)
async def test_a_hidden_key_or_input_finds_nothing(
    showing: Showing, column: str, value: object, chosen: ExecutionFilter
) -> None:
    executions = RedactedExecutions(showing.stage.executions, showing.secrets)
    execution_id = first_uuid7(showing.stage.clock.now_ms()) + "-7000-8000-000000000000"
    showing.stage.store.tables.executions[execution_id] = execution_row(execution_id, **{column: value})
    showing.stage.store.tables.terms |= {(term, execution_id) for term in listing_of(chosen).terms}
    assert len((await executions.page(chosen, 9, None)).items) == 1
    await showing.give(execution_id)
    assert not (await executions.page(chosen, 9, None)).items


async def test_a_hidden_label_finds_counts_and_groups_nothing(showing: Showing) -> None:
    stage, labels = showing.stage, {"order": SECRET}
    executions = RedactedExecutions(stage.executions, showing.secrets)
    selections = DirectSelections(executions, stage.store, stage.clock, AuditRecord(MemoryAudit(), stage.clock))
    for number in range(2):
        execution_id = first_uuid7(stage.clock.now_ms() - 60_000 + number) + f"-7000-8000-{number:012}"
        row = execution_row(execution_id, status="failed", labels=codec.encode(labels))
        stage.store.tables.executions[execution_id] = row
        stage.store.tables.terms |= {(term, execution_id) for term in label_terms(labels)}
        if number:
            await showing.give(execution_id)
    chosen = ExecutionFilter(labels=labels)
    assert len((await executions.page(chosen, 9, None)).items) == 1
    assert (await selections.histogram(chosen, 24)).counts == {"failed": 1}
    groups = await selections.groups(ExecutionFilter(), "label:order")
    assert sorted((group.value == SECRET, group.counts["failed"]) for group in groups.items) == [(False, 1), (True, 1)]


class Counted:
    """Tallies of five executions in all."""

    async def tally_executions(self, wanted: ListingFilter, key: TallyKey, limit: int) -> list[ExecutionTally]:
        return [ExecutionTally("completed", "a", 3), ExecutionTally("failed", "a", 2)]


async def test_groups_say_that_there_may_be_more_by_what_bounds_them() -> None:
    assert not (await groups_of(Counted(), ExecutionFilter(), "label:order", 5, in_all=True)).complete
    assert (await groups_of(Counted(), ExecutionFilter(), "path", 5)).complete
