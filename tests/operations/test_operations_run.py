"""``run`` over the operations: followed to the end, over stores that go away, until nobody waits any longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from operations_stage import BY, NO_SECRETS, OperationsStage

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.session import Session
from noetl_stream.cli.execution.follow import progress_for
from noetl_stream.cli.execution.start import run_in
from noetl_stream.errors import Unreachable
from noetl_stream.operations.executions import direct
from noetl_stream.operations.executions.reading.step_runs import summaries, summarize
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import ExecutionDocument, ExecutionFilter, Start
from noetl_stream.ports.stores.store import StoredEvent
from noetl_testkit.memory.journals import MemoryFeed
from noetl_testkit.simulation.work import playbook, then, work

TWO = playbook("two", [{"step": "start", "tool": work(1, 3.0), "next": then("end")}, {"step": "end", "tool": work(2)}])
HEARS = playbook(
    "hears", [{"step": "ear", "tool": [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 60}]}]
)
C70 = Path(__file__).parents[1] / "audit" / "c70_pool_nobody.yaml"
SHOWN = ["start: started", "start: done", "end: started", "end: done"]


class RunSession:
    """A session over a stage. ``ensured`` counts how often a server was ensured."""

    def __init__(self, stage: OperationsStage) -> None:
        nobody: Any = None
        feed = LiveFeed(stage.store, MemoryFeed(stage.store, stage.clock), stage.broker.bus, stage.clock, NO_SECRETS)
        operations = Operations(stage.executions, feed, stage.playbooks, nobody, stage.cluster, *[nobody] * 7)
        self.ensured = 0
        self.session = Session(operations, BY, self._ensure, " --home here", keeps_ids=True, caller=nobody)

    async def _ensure(self) -> None:
        self.ensured += 1

    async def run(
        self, source: str, timeout_s: float | None = None, output: str = "text", **wanted: Any
    ) -> ExecutionDocument | ExitCode:
        start = Start(playbook=source, **wanted)
        return await run_in(self.session, start, "file.yaml", progress_for(output, verbose=True), timeout_s=timeout_s)


@pytest.fixture
async def runner(stage: OperationsStage) -> AsyncIterator[RunSession]:
    yield RunSession(stage)


def ended(found: ExecutionDocument | ExitCode) -> ExecutionDocument:
    assert isinstance(found, ExecutionDocument)
    return found


async def test_a_run_is_shown_to_its_end(runner: RunSession, capsys: pytest.CaptureFixture[str]) -> None:
    found = ended(await runner.run(TWO))
    assert (found.status, found.result, [step.step for step in found.steps or ()]) == ("completed", 2, ["start", "end"])
    assert [line for line in capsys.readouterr().err.splitlines() if not line.startswith("waiting")] == SHOWN


async def test_a_run_survives_a_store_outage_and_shows_nothing_twice(
    runner: RunSession, stage: OperationsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    running = asyncio.create_task(runner.run(TWO))
    await stage.clock.sleep(1)
    with away(stage):
        await stage.clock.sleep(30)
    assert ended(await running).status == "completed"
    assert [line for line in capsys.readouterr().err.splitlines() if not line.startswith("waiting")] == SHOWN


async def test_a_store_that_stays_away_ends_the_run_with_an_error(runner: RunSession, stage: OperationsStage) -> None:
    running = asyncio.create_task(runner.run(TWO))
    await stage.clock.sleep(1)
    with away(stage), pytest.raises(Unreachable, match="Postgres is away"):
        await running


async def test_an_execution_that_does_not_move_is_explained_and_a_missing_server_started(
    runner: RunSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await runner.run(HEARS, timeout_s=10) == ExitCode.TIMEOUT
    assert runner.ensured >= 2, "not only once"
    assert "waiting: Task `hear` of step `ear` waits for the signal `go`" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["text", "json"])
async def test_a_pool_that_no_worker_serves_is_named_within_three_seconds(
    runner: RunSession, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    assert await runner.run(C70.read_text(), timeout_s=3, output=output) == ExitCode.TIMEOUT
    shown = capsys.readouterr()
    text = "waiting: Step `start`: 1 command in the queue of pool `gpu`, but no worker of that pool is running."
    assert (shown.out, shown.err.splitlines().count(text)) == ("", 1)


async def test_json_output_says_nothing_of_a_wait_that_is_the_playbooks_own(
    runner: RunSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await runner.run(HEARS, timeout_s=10, output="json") == ExitCode.TIMEOUT
    assert "waiting" not in capsys.readouterr().err


@pytest.mark.parametrize("output", ["text", "json"])
async def test_a_key_that_the_playbook_does_not_declare_is_named_before_it_runs(
    runner: RunSession, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    takes = playbook("takes", [{"step": "ear", "tool": work(1, 5.0)}], workload={"name": "x"})
    await runner.run(takes, output=output, workload={"nmae": "y"})
    text = "warning: `workload.nmae` is not declared by the playbook; did you mean `workload.name`?"
    assert capsys.readouterr().err.splitlines()[0] == text


async def test_a_wait_that_ends_early_prints_where_to_look(
    runner: RunSession, stage: OperationsStage, capsys: pytest.CaptureFixture[str]
) -> None:
    running = asyncio.create_task(runner.run(HEARS))
    await stage.clock.sleep(1)
    running.cancel()
    assert await running == ExitCode.INTERRUPTED
    (one,) = (await stage.executions.page(ExecutionFilter(), 10, None)).items
    text = capsys.readouterr().err.splitlines()[-2:]
    assert text == [
        f"interrupted: execution {one.execution_id} continues",
        f"  show it: noetl-stream execution get {one.execution_id} --home here",
    ]


async def test_a_request_without_an_answer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    stage = OperationsStage()
    assert await RunSession(stage).run(HEARS, timeout_s=5) == ExitCode.TIMEOUT
    (request,) = stage.broker.event_log.stored
    text = f"timeout after 5 s: the request for {request.message.execution_id} was not answered yet"
    assert capsys.readouterr().err.startswith(text)
    await stage.begin()
    await stage.until_status(request.message.execution_id, "waiting")
    await stage.close()


async def test_a_long_execution_has_its_steps_too(runner: RunSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "DESCRIBED_EVENTS", 5)
    found = ended(await runner.run(TWO))
    assert [(step.step, step.runs) for step in found.steps or ()] == [("start", 1), ("end", 1)]


async def test_steps_are_summarised_equally_from_the_journal_and_from_their_runs(stage: OperationsStage) -> None:
    rule = {"when": "{{ outcome.error }}", "then": {"do": "retry", "attempts": 2, "delay": 1}}
    tries = {"name": "try", **work(1, 0.5, failures=1), "spec": {"policy": {"rules": [rule]}}}
    steps = [{"step": "start", "tool": tries, "next": then("end")}, {"step": "end", "tool": work(2, failures=9)}]
    found = await stage.run(playbook("varied", steps))
    journal = await stage.store.journal(found.execution_id)
    assert found.steps == summarize(journal) == summaries(await stage.executions.steps(found.execution_id))
    assert [(step.retries, step.status) for step in found.steps or ()] == [(1, "done"), (0, "failed")]


@contextmanager
def away(stage: OperationsStage) -> Iterator[None]:
    """The journals of a stage cannot be read meanwhile."""

    async def journal(*_: Any) -> list[StoredEvent]:
        raise Unreachable("Postgres is away")

    store: Any = stage.store
    store.journal = journal
    yield
    del store.journal
