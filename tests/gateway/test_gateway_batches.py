"""A batch of executions: each row started once, at most so many at once, results in the order of the rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from typing import Any

import pytest
from gateway_stage import GatewayStage

from noetl_stream.cli.base.session import Session
from noetl_stream.cli.execution.batch import MOST_ROW_BYTES, BatchRow, BatchRun, RowResult, read_rows
from noetl_stream.errors import Conflict, Unreachable, UsageError
from noetl_stream.model.ids import uuid7
from noetl_stream.model.status import ENDED
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import ExecutionDocument, ExecutionFilter, RequestIds, Start
from noetl_stream.settings.gateway_settings import GatewayLimits

BATCH = uuid7(1_795_000_000_000, b"a batch id")

GREET = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: greet, path: tests/greet}
workload: {name: nobody, sign: "!"}
executor: {spec: {result: "{{ workload.name ~ workload.sign }}"}}
workflow:
  - step: start
    tool: {kind: noop}
"""


def rows_of(*workloads: dict[str, Any]) -> Iterator[BatchRow]:
    return read_rows(BytesIO("\n".join(map(json.dumps, workloads)).encode()), "rows")


def named(count: int) -> Iterator[BatchRow]:
    return rows_of(*({"name": f"n{number}"} for number in range(count)))


@pytest.fixture
async def stage() -> AsyncIterator[GatewayStage]:
    async with GatewayStage(GatewayLimits()).open() as stage:
        yield stage


class Starting:
    """The executions of a stage, whose starts and ends are counted, and may fail."""

    def __init__(self, stage: GatewayStage) -> None:
        self._executions = stage.operations.executions
        self.under_way = self.most = 0
        self.away = 0
        self.refused: set[str] = set()
        self.lost_after: int | None = None

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._executions, verb)

    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> ExecutionDocument:
        if self.away:
            self.away -= 1
            raise Unreachable("nobody answers")
        if wanted.workload["name"] in self.refused:
            raise Conflict("not this one")
        if self.lost_after == 0:
            raise asyncio.CancelledError
        if self.lost_after is not None:
            self.lost_after -= 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return self._seen(await self._executions.start(wanted, by, ids))

    async def wait(self, execution_id: str, timeout_s: float) -> ExecutionDocument:
        return self._seen(await self._executions.wait(execution_id, timeout_s))

    def _seen(self, found: ExecutionDocument) -> ExecutionDocument:
        self.under_way -= found.status in ENDED
        return found


class _Operations:
    def __init__(self, executions: Starting) -> None:
        self.executions = executions


async def run(starting: Starting, rows: Iterator[BatchRow], at_once: int = 4) -> list[RowResult]:
    async def ensure_server() -> None:
        """The stage has one."""

    operations: Any = _Operations(starting)
    session = Session(operations, "test", ensure_server, "", keeps_ids=True, caller=operations)
    shown: list[RowResult] = []
    await BatchRun(session, Start(playbook=GREET, workload={"sign": "?"}), BATCH, shown.append).run(rows, at_once)
    return shown


async def count(operations: Operations) -> int:
    return len((await operations.executions.page(ExecutionFilter(), 1000, None)).items)


async def test_results_have_the_order_of_the_rows_and_calls_in_flight_stay_within_the_limit(
    stage: GatewayStage,
) -> None:
    starting = Starting(stage)
    shown = await run(starting, named(20), at_once=3)
    assert [(one.row, one.status, one.result) for one in shown] == [
        (number + 1, "completed", f"n{number}?") for number in range(20)
    ]
    assert (starting.most, starting.under_way) == (3, 0)


async def test_a_batch_that_is_asked_for_again_starts_nothing_twice(stage: GatewayStage) -> None:
    first = await run(Starting(stage), named(5))
    more = await run(Starting(stage), named(7))
    assert more[:5] == first
    assert await count(stage.operations) == 7


async def test_an_interrupted_batch_goes_on_where_it_was(stage: GatewayStage) -> None:
    starting = Starting(stage)
    starting.lost_after = 4
    with pytest.raises(asyncio.CancelledError):
        await run(starting, named(10), at_once=1)
    assert await count(stage.operations) == 4
    assert len(await run(Starting(stage), named(10))) == await count(stage.operations) == 10


async def test_a_row_that_was_changed_is_another_row(stage: GatewayStage) -> None:
    await run(Starting(stage), rows_of({"name": "ada"}))
    [changed] = await run(Starting(stage), rows_of({"name": "bob"}))
    assert changed.result == "bob?"
    assert await count(stage.operations) == 2


async def test_a_refused_row_has_a_result_and_the_others_go_on(stage: GatewayStage) -> None:
    starting = Starting(stage)
    starting.refused = {"n1"}
    shown = await run(starting, named(3))
    assert [one.status for one in shown] == ["completed", "refused", "completed"]
    assert shown[1].execution_id is None and shown[1].error is not None and shown[1].error.message == "not this one"


async def test_servers_that_are_away_for_a_moment_are_waited_for(
    stage: GatewayStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl_stream.cli.execution.batch.RETRY_S", 0.001)
    starting = Starting(stage)
    starting.away = 3
    assert len(await run(starting, named(2))) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a": 1}\n\nnot json\n', "rows:3: "),
        (b'{"a": "b"}\n{"a": "caf\xe9"}\n', "rows:2: byte 0xe9 is not UTF-8 .save the file as UTF-8"),
        (b"[1]\n", "rows:1: expected a JSON object"),
        (b'{"a": "' + b"x" * MOST_ROW_BYTES + b'"}', "rows:1: longer than"),
    ],
)
def test_a_line_that_is_no_workload_is_named(text: bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        list(read_rows(BytesIO(text), "rows"))
