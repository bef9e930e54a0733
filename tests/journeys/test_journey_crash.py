"""The demonstration survives a ``kill -9`` of everything, one after the other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from aiohttp import web
from journey_stack import NOETL, ROOT, LiveStack

from noetl_stream.model.events import TaskProcessed
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.reading.step_runs import summarize
from noetl_stream.ports.stores.store import StoredEvent
from noetl_stream.wiring.stores import connect

sys.path.insert(0, str(ROOT / "playbooks"))
from airports_api import AirportsApi

pytestmark = pytest.mark.xdist_group("journeys")

PLAYBOOK = ROOT / "playbooks" / "paginate_to_postgres.yaml"
AIRPORTS = 3376
KILLS = {12: "worker", 30: "server", 48: "nats", 66: "postgres"}
"""At which request to the API which process is killed."""


class DeadlyApi(AirportsApi):
    """The demonstration's API, which kills parts of the stack that calls it."""

    def __init__(self, kill: Callable[[str], None]) -> None:
        super().__init__()
        self._kill = kill
        self._requests = 0
        self.killed: list[str] = []

    async def page(self, request: web.Request) -> web.Response:
        self._requests += 1
        victim = KILLS.get(self._requests)
        if victim is not None:
            self._kill(victim)
            self.killed.append(victim)
        return await super().page(request)


@asynccontextmanager
async def serving(api: AirportsApi) -> AsyncIterator[str]:
    runner = web.AppRunner(api.application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "http://{}:{}".format(*runner.addresses[0])
    await runner.cleanup()


async def test_a_run_survives_the_death_of_worker_server_nats_and_postgres(
    start_stack: Callable[[int, int], LiveStack], tmp_path: Path
) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 2)
    api = DeadlyApi(stack.kill)
    async with serving(api) as api_url:
        command = [*NOETL, "run", str(PLAYBOOK), "--home", str(stack.home), "--set", f"api_url={api_url}", "-o", "json"]
        run = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await asyncio.wait_for(run.communicate(), 200)
    assert api.killed == list(KILLS.values())
    assert run.returncode == 0, output
    found = codec.decode_json(output)
    assert found["status"] == "completed"
    await asyncio.to_thread(stack.embedded.revive)
    await check_journal(stack, found["execution_id"])
    await check_rows(stack)


async def check_journal(stack: LiveStack, execution_id: str) -> None:
    """Every position once, every step ended, the API's moods seen as retries."""
    connected = await connect(stack.endpoint, name="journey")
    try:
        journal = await connected.store.journal(execution_id)
    finally:
        await connected.close()
    assert [row.position for row in journal] == list(range(1, len(journal) + 1))
    assert {step.step: step.status for step in summarize(journal)} == {
        "prepare": "done",
        "fetch_all": "done",
        "aggregate": "done",
        "check": "done",
    }
    assert {429, 503} <= statuses_retried(journal)


def statuses_retried(journal: list[StoredEvent]) -> set[int]:
    facts = [codec.decode_fact(row.data) for row in journal if row.name == "task.processed"]
    return {
        fact.outcome.helper["status"]
        for fact in facts
        if isinstance(fact, TaskProcessed) and fact.do == "retry" and "status" in fact.outcome.helper
    }


async def check_rows(stack: LiveStack) -> None:
    """What is stored is the data set, row by row."""
    connection = await asyncpg.connect(stack.embedded.address.playbooks_dsn)
    try:
        stored = {row["iata"]: row["name"] for row in await connection.fetch("SELECT iata, name FROM airports")}
    finally:
        await connection.close()
    expected = {row["iata"]: row["name"] for region in AirportsApi().regions.values() for row in region}
    assert len(expected) == AIRPORTS
    assert stored == expected
