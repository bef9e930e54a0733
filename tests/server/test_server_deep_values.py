"""Values that nest too deeply: refused at the door, and behind it a fault of one execution (LANGUAGE §12)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from server_stage import ONE_STEP, Stage
from stream_stage import STREAM, Streams

from noetl_stream.engine.advance import advance
from noetl_stream.engine.replay import replay_entries
from noetl_stream.engine.state import RecordedFact
from noetl_stream.errors import UsageError
from noetl_stream.model.events import (
    CancelRequested,
    CtxPatched,
    ExecutionQuarantined,
    ExecutionRequested,
    ResumeRequested,
    SignalReceived,
    StepDone,
    StepStarted,
    TaskProcessed,
)
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.json.values import MESSAGE_DEPTH
from noetl_stream.model.messages import Request
from noetl_stream.model.outcome import Outcome, Payload
from noetl_stream.playbook.trigger.matching import read_event
from noetl_stream.ports.stores.store import PlaybookRow
from noetl_stream.protocol.subjects import playbook_key
from noetl_stream.server.memory import snapshots
from noetl_stream.server.ticks import fold
from noetl_testkit.keys import SIGNER
from noetl_testkit.simulation.work import playbook, work

DEEP, OTHER = "execution-deep", "execution-other"
LEVELS = [201, 960, 100_000]
READS = playbook(
    "reads",
    [
        {"step": "only", "tool": work("done"), "next": {"arcs": [{"step": "b", "args": {"x": "{{ event.result }}"}}]}},
        {"step": "b", "tool": {"kind": "noop", "args": {"v": 1}}},
    ],
)
LOOPS = playbook(
    "loops",
    [
        {"step": "only", "tool": work("done"), "next": {"arcs": [{"step": "b"}]}},
        {"step": "b", "loop": {"in": "{{ steps.only }}", "iterator": "one"}, "tool": {"kind": "noop"}},
    ],
)


def nested(levels: int) -> msgspec.Raw:
    return msgspec.Raw(b"[" * levels + b"]" * levels)


async def another_ends(stage: Stage) -> None:
    """The server goes on: a second execution completes."""
    stage.start_worker()
    await stage.request(OTHER, "request-other", ONE_STEP)
    assert (await stage.ended(OTHER)).status == "completed"


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("source", [READS, LOOPS], ids=["args", "loop.in"])
async def test_a_report_from_a_worker_that_refuses_no_depth_stops_no_server(
    stage: Stage, source: str, levels: int
) -> None:
    await stage.server()
    await stage.request(DEEP, "request-1", source)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    done = TaskProcessed("only", 1, Outcome("ok", Payload(nested(levels))), "continue")
    await worker.report(
        command, worker.run_of(command, delivery), 0, 0, StepStarted("hand"), done, StepDone(command.step_run_id)
    )
    await another_ends(stage)
    if levels > MESSAGE_DEPTH:
        (letter,) = await stage.store.real.dead_letters.page(100, None)
        assert "nested more than 200 levels deep" in letter.row.reason
    else:
        row = await stage.ended(DEEP)
        assert row.error is not None
        assert b"expression_error" in row.error and b"nested more than 200 levels deep" in row.error


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(
    "fact",
    [
        lambda value: ExecutionRequested("ask", digest_of(ONE_STEP), "tests/server", {"deep": value}),
        lambda value: CtxPatched("ask", patch={"deep": value}),
        lambda value: SignalReceived("ask", signal="go", payload=[value]),
    ],
    ids=["workload", "patch", "signal"],
)
async def test_a_request_that_nests_too_deeply_is_refused_by_clients_and_stops_no_server(
    stage: Stage, fact: Any, levels: int
) -> None:
    await stage.server()
    request = Request(DEEP, "ask", fact(nested(levels)))
    with pytest.raises(Exception, match="nested more than 200 levels deep"):
        await stage.requests.publish(request)
    await stage.broker.event_log.publish_request(DEEP, "ask", SIGNER.encode(request))
    await another_ends(stage)


async def test_the_deepest_value_there_may_be_passes_every_door(stage: Stage) -> None:
    await stage.server()
    request = Request(DEEP, "ask", SignalReceived("ask", signal="go", payload=nested(200)))
    await stage.requests.publish(request)
    await another_ends(stage)
    assert await stage.store.real.dead_letters.page(100, None) == []


@pytest.mark.parametrize("fault", [RecursionError("maximum recursion depth exceeded"), MemoryError()], ids=repr)
async def test_a_value_too_deep_to_fold_quarantines_its_execution_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    def fails(plan: Any, state: Any, recorded: RecordedFact, execution_id: str, **others: Any) -> Any:
        if execution_id == DEEP and isinstance(recorded.fact, StepStarted):
            raise fault
        return advance(plan, state, recorded, execution_id, **others)

    monkeypatch.setattr(fold, "advance", fails)
    await stage.server()
    await stage.request(DEEP, "request-1", ONE_STEP)
    await another_ends(stage)
    rows = stage.tables.executions
    await stage.until(lambda: rows[DEEP].status == "quarantined")
    (fact,) = [one for one in await stage.facts(DEEP) if isinstance(one, ExecutionQuarantined)]
    assert fact.reason.startswith("its values ")
    assert not stage.running[0].done()
    monkeypatch.undo()
    await stage.ask(DEEP, ResumeRequested("resume-1"))
    assert (await stage.ended(DEEP)).status == "completed", "nothing of the half-folded state was left"


async def begun(stage: Stage) -> None:
    """An execution that waits, whose server has ended."""
    server, _, ended = stage.start_server()
    await stage.request(DEEP, "request-1", ONE_STEP)
    await stage.until(lambda: DEEP in stage.tables.executions)
    await stage.pass_time(1)
    server.stop()
    await ended


async def test_a_journal_that_cannot_be_walked_quarantines_its_execution_when_it_is_loaded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begun(stage)

    def fails(execution_id: str, journal: Any, state: Any) -> Any:
        if execution_id == DEEP:
            raise RecursionError
        return replay_entries(execution_id, journal, state)

    monkeypatch.setattr(snapshots, "replay_entries", fails)
    await stage.server()
    await another_ends(stage)
    assert stage.tables.executions[DEEP].status == "quarantined"
    said = await stage.ask(DEEP, ResumeRequested("resume-1"))
    assert "its journal cannot be read: its values are nested too deeply" in str(said)
    monkeypatch.undo()
    await stage.ask(DEEP, ResumeRequested("resume-2"))
    assert (await stage.ended(DEEP)).status == "completed"


GOES_ON = playbook(
    "goes on",
    [
        {"step": "only", "tool": work("done"), "next": {"arcs": [{"step": "b"}]}},
        {"step": "b", "tool": [{"name": "rest", "kind": "wait", "for_s": 30}]},
    ],
)


@pytest.mark.parametrize("levels", [201, 700])
async def test_a_journal_of_an_older_release_that_holds_a_deep_value_stops_no_server(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    monkeypatch.setattr(codec, "check_text", lambda data: None)
    server, _, ended = stage.start_server()
    await stage.request(DEEP, "request-1", GOES_ON)
    worker = await stage.manual_worker()
    command, delivery = await worker.take()
    done = TaskProcessed("only", 1, Outcome("ok", Payload(nested(levels))), "continue")
    await worker.report(
        command, worker.run_of(command, delivery), 0, 0, StepStarted("hand"), done, StepDone(command.step_run_id)
    )
    await stage.pass_time(1)
    server.stop()
    await ended
    monkeypatch.undo()
    facts = [event for event in await stage.journal(DEEP) if event.name == "task.processed"]
    assert len(facts) == 1, "it was let in"
    await stage.server()
    await another_ends(stage)
    assert (await stage.ended(DEEP)).status == "completed"


async def lost(stage: Stage) -> PlaybookRow:
    """An execution whose playbook Postgres and the object store have lost; returns the playbook."""
    await begun(stage)
    digest = digest_of(ONE_STEP)
    row = await stage.store.real.playbook(digest)
    assert row is not None
    del stage.tables.playbooks[digest]
    await stage.blobs.delete(playbook_key(digest))
    await stage.server()
    await stage.until(lambda: stage.tables.executions[DEEP].status == "quarantined")
    return row


async def test_an_execution_whose_playbook_is_lost_is_quarantined_and_goes_on_once_it_is_registered_again(
    stage: Stage,
) -> None:
    row = await lost(stage)
    (fact,) = [one for one in await stage.facts(DEEP) if isinstance(one, ExecutionQuarantined)]
    assert "its playbook is lost" in fact.reason and "register the same text again" in fact.reason
    assert "its playbook is lost" in str(await stage.ask(DEEP, ResumeRequested("resume-1")))
    await another_ends(stage)
    stage.tables.playbooks[row.digest] = row
    await stage.ask(DEEP, ResumeRequested("resume-2"))
    assert (await stage.ended(DEEP)).status == "completed"


async def test_an_execution_whose_playbook_is_lost_can_be_cancelled(stage: Stage) -> None:
    await lost(stage)
    await stage.ask(DEEP, CancelRequested("cancel-1", reason="enough"))
    assert (await stage.ended(DEEP)).status == "cancelled"
    await another_ends(stage)


@pytest.mark.parametrize("levels", LEVELS)
async def test_a_message_of_a_stream_that_nests_too_deeply_is_ignored_with_the_reason(
    stage: Stage, levels: int
) -> None:
    streams = Streams(stage)
    await stage.server()
    await streams.register()
    streams.broker.publish(STREAM, "orders.paid", bytes(nested(levels)))
    await streams.until_folded(1)
    assert await streams.history() == [("ignored", "its data is nested more than 200 levels deep")]
    await another_ends(stage)


@pytest.mark.parametrize("levels", LEVELS)
def test_a_body_of_a_webhook_that_nests_too_deeply_is_no_event(levels: int) -> None:
    with pytest.raises(UsageError, match="its body is nested more than 200 levels deep"):
        read_event("webhook", {"body": bytes(nested(levels)).decode()})


def test_a_value_that_an_older_release_let_nest_too_deeply_is_cut_where_it_is_shown() -> None:
    shown = codec.decode_shown(b'{"a":%b}' % bytes(nested(700)))
    assert "…" in codec.encode(shown).decode()
    codec.check_depth(codec.encode(shown), MESSAGE_DEPTH)
