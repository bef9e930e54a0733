from __future__ import annotations

import logging
from collections import Counter
from random import Random

import pytest
from server_stage import ONE_STEP, Stage, once

from noetl_stream.errors import Fenced, JournalConflict, NoetlError, OutcomeUnknown
from noetl_testkit.entries import names_in
from noetl_testkit.simulation.work import JOBS, Job

EXECUTION = "execution-1"
UNKNOWN = OutcomeUnknown("no answer to the commit")


@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("event", ["execution.requested", "step.started", "step.done"])
async def test_a_commit_of_unknown_outcome_doubles_and_loses_nothing(stage: Stage, committed: bool, event: str) -> None:
    await stage.server()
    stage.start_worker()
    interrupt = once(UNKNOWN, lambda tick: event in names_in(tick))
    if committed:
        stage.store.after_commit = interrupt
    else:
        stage.store.before_commit = interrupt
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    row = await stage.ended(EXECUTION)
    journal = await stage.journal(EXECUTION)
    assert [entry.position for entry in journal] == list(range(1, row.position + 1))
    assert Counter(entry.name for entry in journal)["execution.requested"] == 1
    assert set(stage.effects.values()) == {1}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
async def test_half_of_all_commits_may_be_of_unknown_outcome(stage: Stage, job: Job, committed: bool) -> None:
    await stage.server(reconcile_s=1.0)
    stage.start_worker()
    dice = Random(job.name)

    def half(tick: object) -> NoetlError | None:
        return UNKNOWN if dice.random() < 0.5 else None

    if committed:
        stage.store.after_commit = half
    else:
        stage.store.before_commit = half
    await stage.begin(EXECUTION, job)
    row = await stage.ended(EXECUTION, 300)
    assert row.status == job.status
    assert set(stage.effects.values()) <= {1}


async def test_a_fenced_tick_is_folded_again(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    stage.store.before_commit = once(Fenced("another server has it"))
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    assert set(stage.effects.values()) == {1}


async def test_postgres_may_be_away_for_a_while(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    stage.store.away = True
    await stage.pass_time(20)
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.pass_time(1)
    assert not stage.running[0].done()
    stage.store.away = False
    for execution_id in (EXECUTION, "execution-2"):
        await stage.ended(execution_id)
    assert set(stage.effects.values()) == {1}


async def test_a_tick_that_conflicts_with_the_journal_stops_the_server_loudly(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    error = JournalConflict("event exists: execution-1, 1")
    server, _, task = stage.start_server()
    await stage.until(lambda: len(server.ownership) == 32)
    stage.store.before_commit = once(error)
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    with pytest.raises(type(error)):
        await task
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1 and EXECUTION in errors[0] and error.message in errors[0]
    await stage.pass_time(server.times.lease_s + 1)
    taken = await stage.store.real.take_over("next", 6.0, 32)
    assert {lease.crashes for lease in taken} == {1}, "the next owner must see that this one did not leave in order"
    assert await stage.store.real.execution(EXECUTION) is None


async def test_a_server_after_one_that_stopped_at_a_tick_loses_nothing(stage: Stage) -> None:
    server, _, task = stage.start_server()
    await stage.until(lambda: len(server.ownership) == 32)
    stage.store.before_commit = once(JournalConflict("event exists: execution-1, 1"))
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    with pytest.raises(JournalConflict):
        await task
    stage.start_server()
    stage.start_worker()
    await stage.ended(EXECUTION)
