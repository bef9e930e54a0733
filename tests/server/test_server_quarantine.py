"""An input that cannot be folded costs one execution (PROTOCOL §5 *Poison*)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import NoetlError, PayloadRefused
from noetl_stream.model.events import (
    CancelRequested,
    ExecutionQuarantined,
    ExecutionRequested,
    ResumeRequested,
    SignalReceived,
)
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Request
from noetl_stream.ports.stores.dead_letters import DeadLetter
from noetl_stream.protocol.subjects import playbook_key
from noetl_testkit.entries import events_in
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.work import CALLED, JOBS, playbook, work

POISON = "execution-poison"
OTHERS = [f"execution-{number}" for number in range(40)]
SLOW = playbook("slow", [{"step": "only", "tool": work("done", 20)}])
REFUSED = PayloadRefused("index row size 2816 exceeds btree version 4 maximum 2704")


def refusing(execution_id: str, *names: str) -> Callable[[Any], NoetlError | None]:
    """Refuses every tick with such an event of this execution, as Postgres does for a value it cannot hold."""

    def refuse(tick: Any) -> NoetlError | None:
        return REFUSED if any((execution_id, name) in events_in(tick) for name in names) else None

    return refuse


async def letters(stage: Stage) -> list[DeadLetter]:
    return await stage.store.real.dead_letters.page(100, None)


async def test_a_start_that_postgres_refuses_is_answered_and_kept_and_no_other_execution_notices(stage: Stage) -> None:
    stage.store.before_commit = refusing(POISON, "execution.requested")
    bodies = {one: await stage.request(one, f"request-{one}", ONE_STEP) for one in (*OTHERS[:20], POISON, *OTHERS[20:])}
    await stage.server()
    stage.start_worker()
    for one in OTHERS:
        assert (await stage.ended(one)).status == "completed"
    answer = stage.tables.requests[POISON, f"request-{POISON}"].answer
    assert codec.decode_json(answer)["code"] == "quarantined"
    assert POISON not in stage.tables.executions
    (letter,) = await letters(stage)
    kept = await stage.store.real.dead_letters.get(letter.row.id)
    assert kept is not None and kept.row.body == bodies[POISON]
    assert not stage.running[0].done()


async def test_a_refused_start_that_is_sent_again_stops_no_server(stage: Stage) -> None:
    stage.store.before_commit = refusing(POISON, "execution.requested")
    await stage.server()
    stage.start_worker()
    await stage.request(POISON, "request-1", ONE_STEP)
    await stage.until(lambda: (POISON, "request-1") in stage.tables.requests)
    stage.store.before_commit = lambda tick: None
    await stage.pass_time(200)  # beyond the deduplication window
    await stage.request(POISON, "request-1", ONE_STEP)
    await stage.request(OTHERS[0], "request-2", ONE_STEP)
    await stage.ended(OTHERS[0])
    assert not stage.running[0].done() and POISON not in stage.tables.executions


async def quarantined(stage: Stage, source: str = ONE_STEP, *names: str, **times: float) -> None:
    """A server that has quarantined an execution because Postgres refuses one of these events of it."""
    stage.store.before_commit = refusing(POISON, *(names or ("step.started", "task.processed", "step.done")))
    await stage.server(**times)
    await stage.request(POISON, "request-1", source)
    rows = stage.tables.executions
    await stage.until(lambda: POISON in rows and rows[POISON].status == "quarantined")


async def test_an_execution_is_quarantined_for_a_report_that_postgres_refuses_and_others_end(stage: Stage) -> None:
    for one in OTHERS:
        await stage.request(one, f"request-{one}", ONE_STEP)
    stage.start_worker()
    await quarantined(stage)
    for one in OTHERS:
        assert (await stage.ended(one)).status == "completed"
    (fact,) = [one for one in await stage.facts(POISON) if isinstance(one, ExecutionQuarantined)]
    assert "index row size" in fact.reason
    assert {letter.row.execution_id for letter in await letters(stage)} == {POISON}
    issues = await stage.issues(POISON)
    await stage.pass_time(60)
    assert await stage.issues(POISON) == issues, "its commands are not issued again"
    assert stage.tables.executions[POISON].finished_ms is None
    state = await stage.state(POISON)
    assert state is not None and state.shown_status == "quarantined"


async def test_requests_to_a_quarantined_execution_are_refused_until_it_is_cancelled(stage: Stage) -> None:
    stage.start_worker()
    await quarantined(stage)
    said = await stage.ask(POISON, SignalReceived("signal-1", signal="go", payload=None))
    assert isinstance(said, str) and "quarantined" in said
    await stage.ask(POISON, CancelRequested("cancel-1", reason="enough"))
    assert (await stage.ended(POISON)).status == "cancelled"


async def test_a_resumed_execution_leaves_quarantine_and_ends(stage: Stage) -> None:
    stage.start_worker()
    await quarantined(stage)
    stage.store.before_commit = lambda tick: None
    await stage.ask(POISON, ResumeRequested("resume-1"))
    assert (await stage.ended(POISON)).status == "completed"


async def test_the_commands_of_a_resumed_execution_are_issued_at_once(stage: Stage) -> None:
    stage.start_worker()
    await quarantined(stage, reconcile_s=1000.0)
    await stage.pass_time(30)  # by then its run has stopped
    stage.store.before_commit = lambda tick: None
    resumed_s = stage.clock.monotonic_s()
    await stage.ask(POISON, ResumeRequested("resume-1"))
    assert (await stage.ended(POISON)).status == "completed"
    assert stage.clock.monotonic_s() - resumed_s < 2
    assert await stage.issues(POISON) == [1, 2]


async def test_a_signal_that_postgres_refuses_is_answered_and_quarantines(stage: Stage) -> None:
    stage.start_worker()
    stage.store.before_commit = refusing(POISON, "signal.received")
    await stage.server()
    await stage.request(POISON, "request-1", SLOW)
    rows = stage.tables.executions
    await stage.until(lambda: POISON in rows and rows[POISON].status == "running")
    said = await stage.ask(POISON, SignalReceived("signal-1", signal="go", payload=None))
    assert isinstance(said, str) and "cannot be stored" in said
    assert rows[POISON].status == "quarantined"
    assert [letter.row.source for letter in await letters(stage)] == ["events"]


async def test_a_called_playbook_that_cannot_start_fails_the_step_that_called_it(stage: Stage) -> None:
    called: list[str] = []

    def refuse(tick: Any) -> NoetlError | None:
        called[:] = called or [row.execution_id for row in tick.inbox]
        begins = [one for one, name in events_in(tick) if name == "execution.requested"]
        return REFUSED if called and called[0] in begins else None

    stage.store.before_commit = refuse
    await stage.register(CALLED)
    await stage.server()
    stage.start_worker()
    (job,) = [one for one in JOBS if one.name == "calling"]
    await stage.begin(OTHERS[0], job)
    row = await stage.ended(OTHERS[0])
    assert row.status == "failed" and row.error is not None and b"cannot start" in row.error
    assert [letter.row.source for letter in await letters(stage)] == ["inbox"]


async def test_a_path_that_fits_no_index_is_refused_and_others_start(stage: Stage) -> None:
    path = "/".join("deep" for _ in range(700))
    await stage.server()
    stage.start_worker()
    await stage.request(POISON, "request-1", ONE_STEP.replace("simulation/one", path))
    await stage.request(OTHERS[0], "request-2", ONE_STEP)
    await stage.ended(OTHERS[0])
    row = await stage.ended(POISON)
    assert row.status == "failed" and row.error is not None and b"the limit is 512" in row.error


async def test_a_request_with_a_nul_is_a_dead_letter_and_no_client_sends_one(stage: Stage) -> None:
    await stage.server()
    with pytest.raises(PayloadRefused, match="NUL"):
        await stage.submit(ONE_STEP, {"text": "\0"})
    await stage.submit(ONE_STEP, {"text": "\\u0000"})
    request = Request(POISON, "request-1", ExecutionRequested("request-1", "d" * 64, trace_id="\0"))
    await stage.broker.event_log.publish_request(POISON, "request-1", SIGNER.encode(request))
    await stage.pass_time(5)
    (letter,) = await letters(stage)
    assert "NUL" in letter.row.reason


async def test_a_playbook_that_is_not_utf_8_stops_no_server(stage: Stage) -> None:
    await stage.server()
    await stage.request(POISON, "request-1", ONE_STEP, known=False)
    await stage.blobs.put(playbook_key(digest_of(ONE_STEP)), b"\xff\xfe")
    row = await stage.ended(POISON)
    assert row.error is not None and b"not UTF-8" in row.error
