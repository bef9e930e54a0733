from __future__ import annotations

import logging

import pytest
from server_stage import ONE_STEP, Stage

from noetl_stream.errors import NotReady
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.operations.executions.submit import RequestRefused
from noetl_testkit.keys import capability_of
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import JOBS, Job, playbook, work

EXECUTION = "execution-1"


async def test_a_request_is_answered_once_and_leaves_its_row(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    row = await stage.ended(EXECUTION)
    answer = await stage.store.real.request(EXECUTION, "request-1")
    assert answer is not None
    assert codec.decode_json(answer.answer) == {"ok": True, "execution_id": EXECUTION}
    assert answer.position == 1
    assert (row.status, bytes(codec.decode_payload(row.result or b"").value)) == ("completed", b'"done"')
    journal = await stage.journal(EXECUTION)
    assert [entry.position for entry in journal] == list(range(1, row.position + 1))


async def test_any_server_returns_the_answer_to_any_client(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(1)
    known = await stage.broker.bus.ask(f"noetl.ask.request.{EXECUTION}.request-1", b"", 1)
    unknown = await stage.broker.bus.ask(f"noetl.ask.request.{EXECUTION}.request-2", b"", 1)
    assert codec.decode_json(known or b"")["answer"] == {"ok": True, "execution_id": EXECUTION}
    assert codec.decode_json(unknown or b"") == {"known": False}


async def test_a_request_stored_twice_starts_nothing_twice(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    for _ in range(2):
        await stage.request(EXECUTION, "request-1", ONE_STEP)
        stage.broker.event_log.forget_message_ids()
    await stage.ended(EXECUTION)
    await stage.pass_time(5)
    assert [row.name for row in await stage.journal(EXECUTION)].count("execution.requested") == 1
    assert set(stage.effects.values()) == {1}


class Calls(FaultInjector):
    """What a server has done."""

    def __init__(self) -> None:
        self.points: list[str] = []

    async def inject(self, host: SimulatedHost, point: str) -> None:
        self.points.append(point)


async def test_an_execution_is_looked_for_only_if_its_id_is_not_above_all_others(stage: Stage) -> None:
    await stage.server()
    await stage.request("execution-4", "request-4", ONE_STEP)
    await stage.pass_time(1)
    stage.running[0].cancel()
    calls = Calls()
    server, _, _ = stage.start_server(stage.host("second", calls))
    await stage.until(lambda: len(server.ownership) == 32)

    calls.points.clear()
    for number in (5, 6):
        await stage.request(f"execution-{number}", f"request-{number}", ONE_STEP)
        await stage.pass_time(1)
    assert "store.commit" in calls.points
    assert "store.executions" not in calls.points

    for number in (3, 4):
        await stage.request(f"execution-{number}", f"again-{number}", ONE_STEP)
        await stage.pass_time(1)
    assert calls.points.count("store.executions") == 1  # that of execution-4 was loaded with its partition


@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "another server"])
async def test_a_request_that_comes_again_after_the_end_changes_nothing(stage: Stage, restarted: bool) -> None:
    server = await stage.server()
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    before = await stage.ended(EXECUTION)
    if restarted:
        server.stop()
        await stage.server()
    stage.broker.event_log.forget_message_ids()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(5)
    assert await stage.store.real.execution(EXECUTION) == before
    assert len(await stage.journal(EXECUTION)) == before.position
    assert len(stage.tables.requests) == 1


@pytest.mark.parametrize("after_the_end", [False, True])
async def test_another_request_for_the_same_execution_is_refused_with_a_row_of_its_own(
    stage: Stage, after_the_end: bool
) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    if after_the_end:
        stage.start_worker()
        await stage.ended(EXECUTION)
    for _ in range(2):
        await stage.request(EXECUTION, "request-2", ONE_STEP)
        stage.broker.event_log.forget_message_ids()
    await stage.pass_time(5)
    row = await stage.store.real.request(EXECUTION, "request-2")
    assert row is not None
    answer = codec.decode_json(row.answer)
    assert answer["ok"] is False and "request-1" not in answer["error"] and EXECUTION in answer["error"]
    assert [row.name for row in await stage.journal(EXECUTION)].count("execution.requested") == 1


async def test_an_invalid_playbook_ends_failed_with_its_diagnostics_and_a_row(stage: Stage) -> None:
    await stage.server()
    broken = playbook("broken", [{"step": "a", "tol": {}}])
    await stage.request(EXECUTION, "request-1", broken)
    row = await stage.ended(EXECUTION)
    answer = await stage.store.real.request(EXECUTION, "request-1")
    assert answer is not None
    refusal = codec.decode_json(answer.answer)
    assert row.status == "failed" and refusal["ok"] is False
    assert {diagnostic["code"] for diagnostic in refusal["diagnostics"]} >= {"unknown_key"}
    assert codec.decode_json(row.error or b"")["kind"] == "invalid_playbook"
    names = [entry.name for entry in await stage.journal(EXECUTION)]
    assert names == ["execution.requested", "execution.evaluated", "execution.finished", "playbook.processed"]


async def test_a_workload_that_no_client_has_checked_is_refused_by_the_server(stage: Stage) -> None:
    await stage.server()
    needs = {"executor": {"spec": {"workload": {"required": ["order"]}}}}
    await stage.request(EXECUTION, "request-1", playbook("needs", [{"step": "a", "tool": work(1)}], **needs))
    row = await stage.ended(EXECUTION)
    answer = await stage.store.real.request(EXECUTION, "request-1")
    assert answer is not None
    refusal = codec.decode_json(answer.answer)
    assert (refusal["ok"], refusal["code"]) == (False, "invalid_workload")
    assert refusal["error"] == codec.decode_json(row.error or b"")["message"]
    assert '"order" is a required property' in refusal["error"]


async def test_an_unknown_digest_fails_and_is_looked_up_again_next_time(stage: Stage) -> None:
    await stage.server()
    await stage.request(EXECUTION, "request-1", ONE_STEP, known=False)
    row = await stage.ended(EXECUTION)
    assert row.status == "failed" and b"unknown playbook digest" in (row.error or b"")
    await stage.request("execution-2", "request-2", ONE_STEP)
    await stage.until(lambda: "execution-2" in stage.tables.executions)
    assert stage.tables.executions["execution-2"].status == "running"


async def test_a_client_gets_the_reason_its_playbook_is_rejected(stage: Stage) -> None:
    await stage.server()
    with pytest.raises(RequestRefused) as refused:
        await stage.submit(playbook("broken", [{"step": "a", "tol": {}}]))
    assert refused.value.diagnostics


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
async def test_a_playbook_of_each_shape_runs_to_its_right_end(stage: Stage, job: Job) -> None:
    await stage.server()
    stage.start_worker()
    await stage.begin(EXECUTION, job)
    row = await stage.ended(EXECUTION)
    result = codec.decode_json(codec.decode_payload(row.result).value) if row.result else None
    assert (row.status, result) == (job.status, job.result)
    assert set(stage.effects.values()) <= {1}


async def _check_dead_letter(stage: Stage, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """The message is passed over with a word in the log, and the partition goes on."""
    stage.start_worker()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.ended(EXECUTION)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1 and why in errors[0] and "dead letter" in errors[0]


ALLOWED = capability_of("execution-1", "s", "c", 1).encode()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x00\xff garbage", "cannot read"),
        (b"{}", "cannot read"),
        (b'{"type":"request","execution_id":"other","request_id":"r","fact":{"name":"execution.requested",'
         b'"request_id":"r","digest":"d"}}', "different executions"),
        (b'{"type":"request","execution_id":"execution-1","request_id":"a.b","fact":{"name":"execution.requested",'
         b'"request_id":"a.b","digest":"d"}}', "not valid in a subject"),
        (b'{"type":"request","execution_id":"execution-1","request_id":"r","fact":{"name":"execution.requested",'
         b'"request_id":"r","digest":"d > *"}}', "not valid in a subject"),
        (b'{"type":"report","execution_id":"execution-1","step_run_id":"s","command_id":"c","issue":1,'
         b'"num_delivered":1,"nonce":"n.1","number":0,"first":0,"events":[]}', "not valid in a subject"),
        (b'{"type":"report","execution_id":"execution-1","step_run_id":"s","command_id":"c","issue":1,'
         b'"num_delivered":1,"nonce":"n","number":0,"first":0,"events":[]}', "no capability for issue 1 of command c"),
        (b'{"type":"report","execution_id":"execution-1","step_run_id":"s","command_id":"c","issue":1,'
         b'"num_delivered":1,"nonce":"n","number":0,"first":0,"events":[{"name":"no.such.fact"}],'
         b'"capability":"' + ALLOWED + b'"}', "cannot read"),
    ],
    ids=[
        "garbage", "empty", "other execution", "bad request id", "bad digest", "bad nonce", "no capability",
        "unknown fact",
    ],
)  # fmt: skip
async def test_a_dead_letter_is_passed_over_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture, body: bytes, why: str
) -> None:
    await stage.server()
    log = stage.broker.event_log
    if b'"type":"report"' in body:
        await log.publish_report(EXECUTION, "default", "dead", body)
    else:
        await log.publish_request(EXECUTION, "dead", body)
    await stage.pass_time(1)
    await _check_dead_letter(stage, caplog, why)


async def test_a_message_in_the_wrong_partition_is_a_dead_letter(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.server()
    body = await stage.request("execution-2", "request-2", ONE_STEP)
    wrong = (partition_of(EXECUTION) + 1) % 32
    stage.broker.event_log.store_stray(wrong, EXECUTION, body)
    await stage.pass_time(1)
    await _check_dead_letter(stage, caplog, "a partition other than")


async def test_a_server_without_a_running_playbooks_kinds_refuses_to_judge_it(stage: Stage) -> None:
    first, _, ended = stage.start_server()
    await stage.request(EXECUTION, "request-1", ONE_STEP)
    await stage.pass_time(1)
    first.stop()
    await ended
    stage.kinds = {}
    second, _, working = stage.start_server()
    with pytest.raises(NotReady, match="does not compile on this server"):
        await working
    assert second.executions.get(EXECUTION) is None
    row = await stage.store.real.execution(EXECUTION)
    assert row is not None
    assert row.status == "running"
