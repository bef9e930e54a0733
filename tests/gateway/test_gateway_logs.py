"""What tasks have written, over HTTP: as pages, lines, text, and as it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gateway_playbooks import FAILS
from gateway_stage import GatewayStage
from openapi_checks import Described
from sent_events import events_of

from noetl_stream.model.json import codec
from noetl_stream.model.task_log import LogBatch, LogLine
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.operations.reading.events import FROM_THE_START, LogFilter
from noetl_stream.protocol import subjects
from noetl_testkit.waiting import TIMEOUT_S

ALL = ["started", "first item", "second\x1b[2J", "saved", "ok after 1.000 s"]


async def ended(stage: GatewayStage) -> str:
    """An execution that has ended, of which no more lines are expected, and without any."""
    started = await stage.operations.executions.start(Start(playbook=FAILS), "token:local")
    await stage.operations.executions.wait(started.execution_id, TIMEOUT_S)
    await stage.broker.task_logs.delete(started.execution_id)

    async def is_over() -> bool:
        page = await stage.operations.executions.logs(started.execution_id, LogFilter(), FROM_THE_START, 1)
        return page.state == "ended"

    await stage.until(is_over)
    return started.execution_id


def publish(stage: GatewayStage, execution_id: str, *lines: LogLine, pool: str = "default") -> None:
    batch = LogBatch("fetch", "run-1", "worker-1", list(lines))
    subject = subjects.task_logs(pool, execution_id, "run-1")
    stage.broker.task_logs.publish(subject, "1", codec.encode(batch), lambda why: None)


def some(stage: GatewayStage, execution_id: str) -> None:
    """Five lines in two batches."""
    publish(
        stage,
        execution_id,
        LogLine(1_750_000_000_000, "read", "started", "worker"),
        LogLine(1_750_000_000_500, "read", "first item", iteration=(0,)),
        LogLine(1_750_000_001_000, "read", "second\x1b[2J", "stderr", 2, (1, 0)),
    )
    publish(
        stage,
        execution_id,
        LogLine(1_750_000_002_000, "save", "saved"),
        LogLine(1_750_000_003_000, "save", "ok after 1.000 s", "worker"),
        pool="gpu",
    )


async def texts(api: Described, execution_id: str, **query: Any) -> list[str]:
    answer = await api.call("listLogs", execution_id=execution_id, query=query)
    assert answer.status == 200, answer
    return [line["text"] for line in answer.body["items"]]


async def test_a_page_has_lines_with_all_their_fields(api: Described, stage: GatewayStage) -> None:
    execution_id = await ended(stage)
    some(stage, execution_id)
    body = (await api.call("listLogs", execution_id=execution_id)).body
    assert body["items"][2] == {
        "id": body["items"][2]["id"],
        "at": "2025-06-15T15:06:41.000+00:00",
        "step": "fetch",
        "step_run_id": "run-1",
        "task": "read",
        "attempt": 2,
        "iteration": [1, 0],
        "stream": "stderr",
        "text": "second\x1b[2J",
        "pool": "default",
        "worker": "worker-1",
    }
    assert body["items"][3]["pool"] == "gpu"
    assert (body["state"], body["next"]) == ("ended", body["items"][-1]["id"])


async def test_lines_are_chosen_by_step_task_iteration_time_and_text(api: Described, stage: GatewayStage) -> None:
    execution_id = await ended(stage)
    some(stage, execution_id)
    assert await texts(api, execution_id, step="other") == []
    assert await texts(api, execution_id, step="fetch", task="save") == ["saved", "ok after 1.000 s"]
    assert await texts(api, execution_id, iteration="1") == ["second\x1b[2J"]
    assert await texts(api, execution_id, iteration="1.1") == []
    assert await texts(api, execution_id, since="2025-06-15T15:06:42Z") == ["saved", "ok after 1.000 s"]
    assert await texts(api, execution_id, grep="s") == ALL
    assert await texts(api, execution_id, grep="f.rst") == []


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_pages_go_on_where_the_last_one_ended(api: Described, stage: GatewayStage, limit: int) -> None:
    execution_id = await ended(stage)
    some(stage, execution_id)
    found: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        answer = await api.call("listLogs", execution_id=execution_id, query=query)
        found += [line["text"] for line in answer.body["items"]]
        assert ("Link" in answer.headers) == (answer.body["state"] == "more")
        if answer.body["state"] != "more":
            break
        query["after"] = answer.body["next"]
    assert found == await texts(api, execution_id)


@pytest.mark.parametrize(
    "query",
    [{"after": "x"}, {"iteration": "a"}, {"iteration": "-1"}, {"grep": ""}, {"grep": "x" * 257}, {"since": "now"}],
)
async def test_a_malformed_choice_is_refused(stage: GatewayStage, query: dict[str, str]) -> None:
    async with stage.client.get("/api/v1/executions/e1/logs", params=query) as response:
        assert response.status == 400
        assert [fault["parameter"] for fault in (await response.json())["errors"]] == list(query)


async def test_lines_come_as_json_lines_or_as_text_that_orders_nothing(stage: GatewayStage) -> None:
    execution_id = await ended(stage)
    some(stage, execution_id)
    url = f"/api/v1/executions/{execution_id}/logs"
    async with stage.client.get(url, headers={"Accept": "application/x-ndjson"}) as response:
        assert response.content_type == "application/x-ndjson"
        lines = [json.loads(line)["text"] for line in (await response.text()).splitlines()]
    assert lines == ALL
    async with stage.client.get(url, headers={"Accept": "text/plain"}) as response:
        assert response.content_type == "text/plain"
        text = await response.text()
    assert text.splitlines()[:3] == [
        "2025-06-15T15:06:40.000+00:00 fetch.read: started",
        "2025-06-15T15:06:40.500+00:00 fetch[0].read | first item",
        "2025-06-15T15:06:41.000+00:00 fetch[1][0].read ! second\\x1b[2J",
    ]


async def test_a_batch_that_cannot_be_read_is_passed_over(api: Described, stage: GatewayStage) -> None:
    execution_id = await ended(stage)
    subject = subjects.task_logs("default", execution_id, "run-1")
    for body in (b"{", b"{}", b'{"step":"a","step_run_id":"b","worker":"c","lines":[{"at_ms":"x"}]}'):
        stage.broker.task_logs.publish(subject, "1", body, lambda why: None)
    some(stage, execution_id)
    assert len(await texts(api, execution_id)) == 5


async def test_a_stream_has_each_line_once_and_resumes_after_an_id(stage: GatewayStage) -> None:
    execution_id = await ended(stage)
    some(stage, execution_id)
    url = f"/api/v1/executions/{execution_id}/logs/stream"
    async with stage.client.get(url) as response:
        seen = [event async for event in events_of(response)]
    assert [event.data["text"] for event in seen] == ALL
    assert {event.name for event in seen} == {"line"}
    async with stage.client.get(url, headers={"Last-Event-ID": seen[1].id}) as response:
        assert [event.id async for event in events_of(response)] == [event.id for event in seen[2:]]


async def test_a_stream_of_a_living_execution_waits_for_lines_and_ends_with_it(stage: GatewayStage) -> None:
    started = await stage.operations.executions.start(Start(playbook=FAILS), "token:local")
    async with stage.client.get(f"/api/v1/executions/{started.execution_id}/logs/stream") as response:
        seen = [event.data["text"] async for event in events_of(response)]
    assert seen[0] == "started"
    assert seen[1].startswith("failed: expression_error:")


async def test_the_logs_of_no_execution_are_not_there(api: Described, stage: GatewayStage) -> None:
    assert (await api.call("listLogs", execution_id="nobody")).status == 404
    async with stage.client.get("/api/v1/executions/nobody/logs/stream") as response:
        assert response.status == 404


async def test_an_execution_is_deleted_with_its_logs(stage: GatewayStage) -> None:
    execution_id = await ended(stage)
    some(stage, execution_id)
    other = await ended(stage)
    some(stage, other)
    async with stage.client.delete(f"/api/v1/executions/{execution_id}") as response:
        assert response.status == 204
    assert await stage.broker.task_logs.read(execution_id, 0) == []
    assert len(await stage.broker.task_logs.read(other, 0)) == 2
