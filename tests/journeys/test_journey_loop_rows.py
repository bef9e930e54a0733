"""A loop over the rows of Postgres on a real stack, whose workers are killed in the query and in the middle."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest
from journey_stack import NOETL, LiveStack

from noetl_stream.model import events
from noetl_stream.model.json import codec
from noetl_stream.wiring.stores import connect
from noetl_testkit.waiting import until_it_is

pytestmark = [pytest.mark.xdist_group("journeys"), pytest.mark.verify]

ROWS, BATCH, IN_FLIGHT = 20_000, 500, 4
QUERY_LOCK, BATCH_LOCK, LOCKED_BATCH = 7_001, 7_002, 17
CONTENT = "what-stands-in-row-"

PLAYBOOK = f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{ name: rows, path: tests/loop-over-rows }}
workflow:
  - step: move
    loop:
      rows:
        kind: postgres
        auth: local_postgres
        command: |
          select pg_advisory_xact_lock_shared({QUERY_LOCK});
          select id, content from rows_here order by id
        batch: {BATCH}
      iterator: part
      spec: {{ mode: parallel, max_in_flight: {IN_FLIGHT} }}
    tool:
      kind: postgres
      auth: local_postgres
      command: |
        select case when $index = {LOCKED_BATCH} then pg_advisory_xact_lock_shared({BATCH_LOCK}) end;
        insert into batches_there (key, index) values (current_setting('noetl.idempotency_key'), $index)
      params: {{ index: "{{{{ iter.index }}}}" }}
      copy: {{ table: rows_there, from: "{{{{ part }}}}" }}
      spec:
        policy:
          rules:  # a worker that is killed after the commit, and before its report, has loaded the batch
            - when: "{{{{ outcome.status == 'error' and 'batches_there_pkey' in outcome.error.message }}}}"
              then: {{ do: continue }}
            - {{ when: "{{{{ outcome.status == 'error' }}}}", then: {{ do: fail }} }}
"""


async def kill_the_workers_that_wait_for(lock: int, stack: LiveStack, database: asyncpg.Connection) -> None:
    """Kills all workers once one of their tasks waits for a lock, and lets the next attempt have it."""

    async def is_awaited() -> bool:
        query = "select count(*) from pg_locks where locktype = 'advisory' and objid = $1 and not granted"
        return bool(await database.fetchval(query, lock))

    await until_it_is(True, is_awaited, timeout_s=120)
    for pid in stack.roles("worker"):
        os.kill(pid, signal.SIGKILL)
    await database.execute("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and not granted")
    await database.execute("select pg_advisory_unlock($1)", lock)


async def test_each_row_comes_once_although_workers_are_killed_in_the_query_and_in_the_middle(
    start_stack: Callable[[int, int], LiveStack], tmp_path: Path
) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 2)
    (tmp_path / "rows.yaml").write_text(PLAYBOOK)
    database = await asyncpg.connect(stack.embedded.address.playbooks_dsn)
    try:
        await database.execute(
            "create table rows_here as select n as id, $text$"
            + CONTENT
            + f"$text$ || n as content from generate_series(1, {ROWS}) n;"
            "create table rows_there (id bigint primary key, content text);"
            "create table batches_there (key text primary key, index bigint unique)"
        )
        for lock in (QUERY_LOCK, BATCH_LOCK):
            await database.execute("select pg_advisory_lock($1)", lock)
        command = [*NOETL, "run", str(tmp_path / "rows.yaml"), "--home", str(stack.home), "-o", "json"]
        run = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        async with asyncio.timeout(300):
            await kill_the_workers_that_wait_for(QUERY_LOCK, stack, database)
            await kill_the_workers_that_wait_for(BATCH_LOCK, stack, database)
            output, _ = await run.communicate()
        assert run.returncode == 0, output
        differing = "(table rows_here except table rows_there) union all (table rows_there except table rows_here)"
        assert await database.fetch(differing) == []
        assert await database.fetchval("select count(*) from rows_there") == ROWS
        indexes = [row["index"] for row in await database.fetch("select index from batches_there order by index")]
        assert indexes == list(range(ROWS // BATCH))
    finally:
        await database.close()
    await check_journal(stack, json.loads(output)["execution_id"])


async def check_journal(stack: LiveStack, execution_id: str) -> None:
    """One query, one table of items, each batch once, never more than the window, and no row."""
    connected = await connect(stack.endpoint, name="journey")
    try:
        journal = await connected.store.journal(execution_id)
    finally:
        await connected.close()
    facts = [codec.decode_fact(row.data) for row in journal]
    names = Counter(type(fact) for fact in facts)
    assert (names[events.LoopPagedOut], names[events.LoopStarted], names[events.LoopDone]) == (1, 1, 1)
    assert names[events.LoopIterationDone] == ROWS // BATCH
    assert [fact.task for fact in facts if isinstance(fact, events.TaskProcessed)].count("rows") == 1
    running = most = 0
    for fact in facts:
        running += isinstance(fact, events.StepScheduled) and fact.issue == 1 and bool(fact.path)
        running -= isinstance(fact, events.LoopIterationDone)
        most = max(most, running)
    assert most == IN_FLIGHT
    assert not any(CONTENT.encode() in row.data for row in journal)
