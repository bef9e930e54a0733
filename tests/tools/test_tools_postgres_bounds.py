"""What a Postgres statement returns is counted as it arrives, and the connection ends at the bound."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetl_stream.settings.egress import EgressRules
from noetl_stream.tools.contract import ToolFailure
from noetl_stream.tools.egress import Egress
from noetl_stream.tools.postgres.pool import ConnectionPools
from noetl_stream.tools.postgres.received_bytes import SLACK_BYTES
from noetl_stream.tools.postgres.tool import PostgresTool
from noetl_testkit.waiting import TIMEOUT_S

BOUND = 1_000_000
_numbers = itertools.count()


class Runner:
    def __init__(self, tool: PostgresTool, make_call: Any, dsn: str) -> None:
        self.tool = tool
        self._make_call = make_call
        self._dsn = dsn

    async def __call__(self, command: str, **knobs: Any) -> dict[str, Any]:
        call = self._make_call({"auth": "db", "command": command}, knobs=knobs, credentials={"db": self._dsn})
        async with asyncio.timeout(TIMEOUT_S):
            result: dict[str, Any] = (await self.tool.run(call)).result
            return result

    async def failure(self, command: str, **knobs: Any) -> ToolFailure:
        with pytest.raises(ToolFailure) as failed:
            await self(command, **knobs)
        return failed.value


@pytest.fixture
async def run(make_call: Any, postgres_dsn: str, egress: EgressRules) -> AsyncIterator[Runner]:
    tool = PostgresTool(ConnectionPools(Egress(egress)))
    yield Runner(tool, make_call, postgres_dsn)
    await tool.close()


@pytest.mark.parametrize(
    "sql",
    [
        "select repeat('x', 100000000) as a",
        "select repeat('x', 100000) as a from generate_series(1, 100000)",
        "select 'xxx' as a from generate_series(1, 100000)",
        "do $$ begin for n in 1..100000 loop raise notice '%', repeat('x', 1000); end loop; end $$",
        "do $$ begin raise exception '%', repeat('x', 100000000); end $$",
    ],
)
@pytest.mark.parametrize("transaction", [True, False])
async def test_more_bytes_than_allowed_are_an_error(run: Runner, sql: str, transaction: bool) -> None:
    failed = await run.failure(f"select 1 as b; {sql}", max_result_bytes=BOUND, transaction=transaction)
    assert failed.error.kind == "result_too_large"
    assert failed.error.message == (
        "statement 2 returns more than max_result_bytes (1,000,000) bytes; select less, "
        "write `into: table`, or raise max_result_bytes"
    )
    assert (await run("select 1 as a"))["rows"] == [{"a": 1}]


async def test_the_bound_is_that_of_one_statement(run: Runner) -> None:
    sql = f"select repeat('x', {BOUND - 100}) as a"
    assert (await run(f"{sql}; {sql}; {sql}", max_result_bytes=BOUND))["row_count"] == 1
    over = await run.failure(f"select repeat('x', {BOUND + SLACK_BYTES}) as a", max_result_bytes=BOUND)
    assert over.error.kind == "result_too_large"


async def test_names_of_columns_count_with_each_row(run: Runner) -> None:
    """Postgres sends them once, and JSON has them in each row."""
    columns = ", ".join(f'null as "{n:063}"' for n in range(100))
    failed = await run.failure(f"select {columns} from generate_series(1, 1000)", max_result_bytes=BOUND)
    assert failed.error.kind == "result_too_large"
    assert (await run(f"select {columns} from generate_series(1, 100)", max_result_bytes=BOUND))["row_count"] == 100


@pytest.mark.parametrize("transaction", [True, False])
async def test_an_answer_that_is_too_long_leaves_nothing_of_its_transaction(run: Runner, transaction: bool) -> None:
    name = f"long_{next(_numbers)}"
    await run(f"create table {name} (a text)")
    sql = f"insert into {name} select repeat('x', 1000) from generate_series(1, 10000) returning a"
    failed = await run.failure(sql, max_result_bytes=BOUND, transaction=transaction)
    assert failed.error.kind == "result_too_large"
    assert (await run(f"select count(*) as n from {name}"))["rows"] == [{"n": 0}]
