"""The envelope of events: which worker, tokens, iteration, guards and digest stand in which of them (LANGUAGE §13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from operations_stage import BY, NO_SECRETS, OperationsStage

from noetl_stream.model.envelope import EventDocument, envelope
from noetl_stream.model.events import EvaluatedGuard, StepFailed
from noetl_stream.model.ids import RunId, digest_of, report_id
from noetl_stream.model.json import codec
from noetl_stream.model.messages import Report
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.operations.executions.reading import documents
from noetl_stream.operations.feed.live import LiveFeed
from noetl_stream.ports.operations.executions import RerunOptions, Start
from noetl_stream.ports.operations.reading.events import FeedEvent
from noetl_stream.ports.operations.verbs import plain
from noetl_testkit.keys import capability_of
from noetl_testkit.memory.journals import MemoryFeed
from noetl_testkit.simulation.work import playbook, then, work

WORKERS = ("ann", "bob")
PARALLEL = {"mode": "parallel", "max_in_flight": 3}
RETRY = {"when": "{{ outcome.error }}", "then": {"do": "retry", "attempts": 2, "delay": 0}}
GUARD = "{{ ctx.missing | default(false) }}"
VARIED = playbook(
    "varied",
    [
        {
            "step": "start",
            "tool": {"name": "try", **work(1, failures=1), "spec": {"policy": {"rules": [RETRY]}}},
            "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "here"}, {"step": "there"}]},
        },
        {
            "step": "here",
            "loop": {"in": [1, 2, 3], "iterator": "n", "spec": {**PARALLEL, "exec": "local"}},
            "tool": {"name": "one", **work("{{ iter.n }}", 0.1)},
            "next": then("both"),
        },
        {
            "step": "there",
            "loop": {"in": [1, 2], "iterator": "n", "spec": {**PARALLEL, "exec": "distributed"}},
            "tool": {"name": "other", **work("{{ iter.n }}", 0.1)},
            "next": then("both"),
        },
        {"step": "both", "spec": {"join": "all"}, "tool": work("end"), "next": then("never", when=GUARD)},
        {"step": "never", "tool": work(0)},
    ],
)
LONG = playbook("long", [{"step": "long", "tool": work("done", 10.0)}])


@pytest.fixture
async def two_workers() -> AsyncIterator[OperationsStage]:
    """A stage with two workers."""
    stage = OperationsStage()
    await stage.begin(WORKERS)
    yield stage
    await stage.close()


async def journal_of(stage: OperationsStage, execution_id: str) -> list[EventDocument]:
    return await stage.executions.events(execution_id, 0, 10_000)


async def varied(stage: OperationsStage) -> list[EventDocument]:
    ended = await stage.run(VARIED)
    assert ended.status == "completed", ended.error
    return await journal_of(stage, ended.execution_id)


def named(events: list[EventDocument], *names: str) -> list[EventDocument]:
    found = [event for event in events if event.name in names]
    assert found, f"there is no {names}"
    return found


def run_of(event: EventDocument) -> str:
    assert event.report_id is not None
    return event.report_id.rpartition(".")[0]


# --- the actor --------------------------------------------------------------------------------------------------------


async def test_every_event_of_a_worker_has_that_worker_as_its_actor(two_workers: OperationsStage) -> None:
    events = await varied(two_workers)
    reported = [event for event in events if event.source == "worker"]
    assert {"task.started", "loop.started", "loop.iteration.done", "loop.done", "step.done"} <= {
        event.name for event in reported
    }
    worker_of = {run_of(event): event.data["worker"] for event in reported if "worker" in event.data}
    assert [event.actor for event in reported] == [worker_of[run_of(event)] for event in reported]
    assert set(worker_of.values()) == set(WORKERS), "both have worked"
    assert {event.actor for event in events if event.source == "server"} == {"server"}
    assert {event.actor for event in events if event.source == "client"} == {BY}


async def test_an_event_is_the_same_whichever_page_it_comes_in(
    two_workers: OperationsStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await varied(two_workers)
    monkeypatch.setattr(documents, "EVENTS_AT_ONCE", 3)
    for event in whole:
        executions = two_workers.fresh_executions()  # one that has read nothing yet
        assert await executions.events(event.execution_id, event.position - 1, 1) == [event]


async def test_a_worker_that_takes_a_step_over_is_the_actor_from_its_claim_on() -> None:
    stage = OperationsStage()
    await stage.begin(workers=())
    ann = stage.begin_worker("ann")
    await stage.clock.sleep(1)
    started = await stage.executions.start(Start(playbook=LONG), BY)
    await stage.clock.sleep(1)
    ann.cancel()
    stage.begin_worker("bob")
    ended = await stage.executions.wait(started.execution_id, 600)
    assert ended.status == "completed"
    events = await journal_of(stage, started.execution_id)
    actors = [(event.name, event.actor) for event in events if event.source == "worker"]
    assert actors[:2] == [("step.started", "ann"), ("task.started", "ann")]
    assert actors[2] == ("step.claimed", "bob") and {actor for _, actor in actors[2:]} == {"bob"}
    await stage.close()


async def test_a_run_without_a_known_worker_has_the_role_as_its_actor() -> None:
    stage = OperationsStage()
    await stage.begin(workers=())
    started = await stage.executions.start(Start(playbook=LONG), BY)
    (order,) = named(await journal_of(stage, started.execution_id), "step.scheduled")
    step_run_id, run = order.data["step_run_id"], RunId(order.data["command_id"], 1, 1, "nonce")
    failed = codec.encode(StepFailed(step_run_id, ErrorInfo("exception", "no")))
    report = Report(
        execution_id=started.execution_id,
        step_run_id=step_run_id,
        command_id=run.command_id,
        issue=run.issue,
        num_delivered=run.num_delivered,
        nonce=run.nonce,
        number=0,
        first=0,
        events=[msgspec.Raw(failed)],
        capability=capability_of(started.execution_id, step_run_id, run.command_id, run.issue),
    )
    await stage.broker.event_log.publish_report(
        started.execution_id, "default", report_id(run, 0), codec.encode(report)
    )
    await stage.executions.wait(started.execution_id, 60)
    (failed,) = named(await journal_of(stage, started.execution_id), "step.failed")
    assert (failed.source, failed.actor) == ("worker", "worker")
    await stage.close()


# --- the feed ---------------------------------------------------------------------------------------------------------


async def received_until(feed: AsyncIterator[list[FeedEvent]], last: str = "playbook.processed") -> list[FeedEvent]:
    found: list[FeedEvent] = []
    async for some in feed:
        found += some
        if any(one.name == last for one in some):
            break
    return found


async def test_feeds_tell_the_same_events_as_the_journal(two_workers: OperationsStage) -> None:
    def feed() -> LiveFeed:
        return LiveFeed(
            two_workers.store,
            MemoryFeed(two_workers.store, two_workers.clock),
            two_workers.broker.bus,
            two_workers.clock,
            NO_SECRETS,
        )

    everything = await feed().everything(None)
    events = await varied(two_workers)
    execution_id = events[0].execution_id
    received = await received_until(everything)
    assert [one.event for one in received[1:]] == events and received[0].event is None
    received, half = received[1:], len(events) // 2
    rest = await received_until(await feed().everything(received[half].id))
    assert [one.event for one in rest[1:]] == events[half + 1 :]
    assert [one.event for one in await received_until(await feed().execution(execution_id, 0))] == events
    assert [one.event for one in await received_until(await feed().execution(execution_id, half))] == events[half:]


# --- tokens, tasks, guards, digest ------------------------------------------------------------------------------------


async def test_every_token_is_produced_by_one_event_and_consumed_by_one(stage: OperationsStage) -> None:
    events = await varied(stage)
    produced = Counter(token for event in events for token in event.tokens_produced or ())
    consumed = Counter(token for event in events for token in event.tokens_consumed or ())
    assert produced == consumed and set(produced.values()) == {1}
    (joined,) = [
        event
        for event in named(events, "token.enqueued")
        if event.data["token"]["step"] == "both" and event.tokens_consumed
    ]
    assert joined.tokens_consumed == joined.data["joined"] and len(joined.data["joined"]) == 2
    for claimed in named(events, "token.claimed"):
        assert (claimed.tokens_consumed, claimed.tokens_produced) == ([claimed.entity_id], None)
    for other in named(events, "token.joined", "step.started", "next.evaluated"):
        assert (other.tokens_consumed, other.tokens_produced) == (None, None)


async def test_a_token_has_the_priority_and_the_partition_of_its_arc(stage: OperationsStage) -> None:
    arc = {"step": "end", "spec": {"priority": 8, "partition": "a"}}
    steps = [{"step": "start", "tool": work(1), "next": {"arcs": [arc]}}, {"step": "end", "tool": work(2)}]
    execution = await stage.run(playbook("keyed", steps))
    start, end = (run.token for run in await stage.executions.steps(execution.execution_id))
    assert (start.priority, start.partition, end.priority, end.partition) == (None, None, 8, "a")


async def test_tokens_have_their_trace_and_their_lineage(stage: OperationsStage) -> None:
    original = await stage.run(VARIED)
    again = await stage.executions.rerun(original.execution_id, RerunOptions("both"), BY)
    await stage.executions.wait(again.execution_id, 60)
    for execution in (original, again):
        facts = [event.data for event in await journal_of(stage, execution.execution_id)]
        tokens = [one["token"] for fact in facts for one in (fact, *fact.get("entries", ())) if "token" in one]
        lineages = {token["step"]: token["lineage"] for token in tokens}
        assert lineages["start"] == lineages["here"] == lineages["there"] == {}
        assert {token["trace_id"] for token in tokens} == {execution.trace_id}
        runs = await stage.executions.steps(execution.execution_id)
        assert [run.token.lineage for run in runs] == [lineages[run.step] for run in runs]
        assert {run.token.trace_id for run in runs} == {execution.trace_id}
    assert {run.step: run.token.lineage for run in await stage.executions.steps(original.execution_id)}["both"] == {
        "both": 1
    }


async def test_tokens_that_a_rerun_reuses_are_shown_in_one_event(stage: OperationsStage) -> None:
    original = await stage.run(VARIED)
    again = await stage.executions.rerun(original.execution_id, RerunOptions("both"), BY)
    await stage.executions.wait(again.execution_id, 60)
    events = await journal_of(stage, again.execution_id)
    produced = Counter(token for event in events for token in event.tokens_produced or ())
    consumed = Counter(token for event in events for token in event.tokens_consumed or ())
    (reused,) = named(events, "execution.reused")
    assert len(reused.tokens_produced or ()) > 3
    assert produced == consumed and set(produced.values()) == {1}


async def test_tasks_say_their_attempt_and_iterations_their_path(stage: OperationsStage) -> None:
    events = await varied(stage)
    tasks = named(events, "task.started", "task.processed")
    assert all(event.task is not None and event.attempt is not None for event in tasks)
    workers = sorted(
        (event.task or "", event.attempt or 0, event.iteration or []) for event in named(events, "task.processed")
    )
    assert workers == [
        ("both_task", 1, []),
        ("one", 1, [0]),
        ("one", 1, [1]),
        ("one", 1, [2]),
        ("other", 1, [0]),
        ("other", 1, [1]),
        ("try", 1, []),
        ("try", 2, []),
    ]
    iterations = named(events, "loop.iteration.started", "loop.iteration.done")
    assert [event.iteration for event in iterations] == [event.data["path"] for event in iterations]
    outside = [event for event in events if event.entity not in ("task", "loop", "step")]
    assert {(event.task, event.attempt, event.iteration) for event in outside} == {(None, None, None)}


async def test_guards_stand_with_text_and_value_where_any_was_evaluated(stage: OperationsStage) -> None:
    events = await varied(stage)
    routed = named(events, "next.evaluated")
    assert [EvaluatedGuard(GUARD, False, 0)] in [event.guards for event in routed]
    assert [event.guards or [] for event in routed] == [
        [EvaluatedGuard(**guard) for guard in event.data.get("guards", [])] for event in routed
    ]
    tried = [event.guards for event in named(events, "task.processed") if event.task == "try"]
    assert tried == [[EvaluatedGuard(RETRY["when"], value, 0)] for value in (True, False)]
    assert {event.guards is None for event in named(events, "token.enqueued", "step.done")} == {True}


async def test_every_event_has_the_digest_of_the_playbook_it_follows(stage: OperationsStage) -> None:
    assert {event.digest for event in await varied(stage)} == {digest_of(VARIED)}


# --- histories of earlier versions ------------------------------------------------------------------------------------

OK = b'"outcome": {"status": "ok"}'
TOKEN = b'{"token": {"token_id": "t", "step": "s", "cause": "start"}}'


def of_earlier_version(name: str, data: bytes) -> EventDocument:
    row = {"step_run_id": None, "report_id": None, "data": data, "trace_id": "trace"}
    return envelope(execution_id="e", position=1, name=name, source="server", at_ms=0, **row)


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("token.enqueued", TOKEN, {"tokens_produced": ["t"], "tokens_consumed": None, "entity_id": "t"}),
        ("task.processed", b'{"task": "call", %b}' % OK, {"task": "call", "attempt": 1, "iteration": None}),
        ("next.evaluated", b'{"step_run_id": "r", "event": "step.done"}', {"guards": None, "step_run_id": "r"}),
        ("execution.finished", b'{"status": "completed", %b}' % OK, {"actor": "server", "status": "success"}),
    ],
)
def test_an_event_of_an_earlier_version_has_every_field(name: str, data: bytes, shown: dict[str, Any]) -> None:
    assert shown.items() <= plain(of_earlier_version(name, data)).items()


def test_a_token_of_an_earlier_version_has_trace_and_lineage() -> None:
    token = of_earlier_version("token.enqueued", TOKEN).data["token"]
    assert token == {"token_id": "t", "step": "s", "cause": "start", "trace_id": "trace", "lineage": {}}
