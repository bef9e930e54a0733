"""Lines of logs are hidden before they are searched, and a page holds and costs only so much."""

from __future__ import annotations

import pytest
from operations_stage import OperationsStage
from shown_stage import SECRET, Showing

from noetl_stream.model.json import codec
from noetl_stream.model.task_log import LogBatch, LogLine
from noetl_stream.operations.access import DirectCredentials
from noetl_stream.operations.executions.reading import logs as client_logs
from noetl_stream.operations.executions.reading.logs import ExecutionLogs
from noetl_stream.ports.operations.reading.events import FROM_THE_START, LogFilter, LogPage, followed
from noetl_stream.protocol import subjects


def publish(stage: OperationsStage, execution_id: str, *texts: str) -> None:
    batch = LogBatch("say", "run-1", "worker-1", [LogLine(0, "tell", text) for text in texts])
    subject = subjects.task_logs("default", execution_id, "run-1")
    stage.broker.task_logs.publish(subject, "1", codec.encode(batch), lambda why: None)


async def page(showing: Showing, execution_id: str, after: str = FROM_THE_START, **chosen: str) -> LogPage:
    stage = showing.stage
    row = await stage.store.execution(execution_id)
    assert row is not None
    logs = ExecutionLogs(stage.broker.task_logs, showing.secrets, stage.clock)
    return await logs.page(row, LogFilter(**chosen), after, 10)  # type: ignore[arg-type]


@pytest.fixture
async def showing(stage: OperationsStage) -> Showing:
    made = Showing(stage)
    await DirectCredentials(made.credentials, made.keys).put("pg", SECRET, "ann")
    return made


async def test_secrets_given_to_an_execution_are_hidden_in_its_logs_and_cannot_be_searched(showing: Showing) -> None:
    execution_id = await showing.run()
    publish(showing.stage, execution_id, f"it is {SECRET}", "no secret")
    await showing.give(execution_id)
    assert [line.text for line in (await page(showing, execution_id)).items] == ["it is ***", "no secret"]
    assert (await page(showing, execution_id, grep=SECRET[:4])).items == []
    assert [line.text for line in (await page(showing, execution_id, grep="***")).items] == ["it is ***"]


async def test_a_page_ends_after_so_much_text(showing: Showing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_logs, "SHOWN_CHARACTERS", 5)
    execution_id = await showing.run()
    publish(showing.stage, execution_id, "abc", "def", "ghi")
    first = await page(showing, execution_id)
    assert ([line.text for line in first.items], first.state) == (["abc", "def"], "more")
    assert [line.text for line in (await page(showing, execution_id, first.next)).items] == ["ghi"]


async def test_a_search_that_finds_nothing_goes_on_with_the_next_page(
    showing: Showing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_logs, "SCANNED_BYTES", 10)
    execution_id = await showing.run()
    for number in range(100):
        publish(showing.stage, execution_id, f"line {number}")
    first = await page(showing, execution_id, grep="line 99")
    assert (first.items, first.state) == ([], "more")
    assert [line.text for line in (await page(showing, execution_id, first.next, grep="line 99")).items] == ["line 99"]


async def test_lines_that_come_late_are_waited_for_a_moment(showing: Showing) -> None:
    stage = showing.stage
    execution_id = await showing.run()
    assert (await page(showing, execution_id)).state == "live"
    publish(stage, execution_id, "late")
    following = followed(lambda after: page(showing, execution_id, after), FROM_THE_START, stage.clock.sleep)
    pages = [found async for found in following]
    assert [line.text for found in pages for line in found.items] == ["late"]
    assert pages[-1].state == "ended"
