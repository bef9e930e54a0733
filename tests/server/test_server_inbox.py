from __future__ import annotations

import logging
from typing import Any

import pytest
from server_stage import Stage, once
from waiting_stage import (
    EXECUTION,
    Dies,
    LostMessages,
    before_and_after,
    error_of,
    hear,
    id_in,
    is_waiting,
    rest,
    result_of,
    signal,
    whole,
)

from noetl_stream.errors import Fenced, NoetlError, OutcomeUnknown
from noetl_stream.model.events import CancelRequested, ChildRequested, PauseRequested, ResumeRequested
from noetl_stream.model.ids import partition_of
from noetl_stream.ports.stores.store import InboxRow, Tick
from noetl_stream.protocol import subjects
from noetl_stream.server.inputs.inbox import MOST_AT_ONCE
from noetl_stream.server.server import Server
from noetl_testkit.simulation.host import FaultInjector, SimulatedHost
from noetl_testkit.simulation.work import CALLED, CALLED_PATH, playbook, work


def calls(path: str = CALLED_PATH, **more: Any) -> str:
    """A step that calls another playbook."""
    task = {"name": "call", "kind": "playbook", "path": path, **more}
    return playbook("calls", [{"step": "call", "tool": [task]}])


def calls_for_each(count: int, at_once: int = 10) -> str:
    loop = {"in": list(range(count)), "iterator": "n", "spec": {"mode": "parallel", "max_in_flight": at_once}}
    call = {"name": "call", "kind": "playbook", "path": CALLED_PATH, "args": {"n": "{{ iter.n }}"}}
    return playbook("calls", [{"step": "call", "loop": loop, "tool": [call]}])


def child(name: str, *tasks: dict[str, Any], **more: Any) -> str:
    return playbook(name, [{"step": "only", "tool": list(tasks), **more}])


async def starts(stage: Stage, source: str, execution_id: str = EXECUTION) -> None:
    await stage.request(execution_id, f"request-{execution_id}", source)


async def children_of(stage: Stage, execution_id: str = EXECUTION) -> list[str]:
    return [fact.execution_id for fact in await stage.facts(execution_id) if isinstance(fact, ChildRequested)]


async def the_child(stage: Stage) -> str:
    """The one child, once it is there."""
    rows = stage.tables.executions
    await stage.until(lambda: set(rows) - {EXECUTION})
    (found,) = set(rows) - {EXECUTION}
    return found


def others(server: Server) -> list[str]:
    """An id in a partition of ``server``, and one in a partition that is not."""
    mine = next(iter(server.ownership.ids))
    other = next(partition for partition in range(32) if partition not in server.ownership.ids)
    return [id_in(mine), id_in(other)]


def put(stage: Stage, body: bytes) -> None:
    """A message from somewhere, to an execution of partition 0."""
    tables = stage.tables
    tables.inbox_sent += 1
    tables.inbox[tables.inbox_sent] = InboxRow(
        id=f"put-{tables.inbox_sent}", partition=0, execution_id=EXECUTION, body=body
    )


async def test_a_parent_continues_with_the_result_of_its_child(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(CALLED)
    await starts(stage, calls(args={"n": 7}))
    row = await stage.ended(EXECUTION)
    assert (row.status, result_of(row)) == ("completed", 70)
    (child_id,) = await children_of(stage)
    below = await stage.store.real.execution(child_id)
    assert below is not None and below.status == "completed" and below.trace_id == row.trace_id
    assert (await whole(stage, child_id))[0] == "execution.requested"
    assert stage.tables.inbox == {}


async def test_children_live_in_partitions_of_other_servers(stage: Stage) -> None:
    first = await stage.server()
    await stage.server_beside(first)
    stage.start_worker()
    await stage.register(CALLED)
    for parent in others(first):
        await starts(stage, calls_for_each(24), parent)
    for parent in others(first):
        row = await stage.ended(parent)
        assert result_of(row) == [10 * n for n in range(24)]
        owners = {partition_of(one) in first.ownership.ids for one in await children_of(stage, parent)}
        assert owners == {True, False}
    assert set(stage.effects.values()) == {1}


async def test_a_nudge_that_is_lost_is_made_good_by_looking_each_second(stage: Stage) -> None:
    for _ in range(2):
        stage.start_server(stage.host("server", LostMessages(subjects.INBOX)))
    stage.start_worker()
    await stage.register(CALLED)
    await stage.pass_time(10)
    await starts(stage, calls_for_each(12))
    row = await stage.ended(EXECUTION, 5)
    assert result_of(row) == [10 * n for n in range(12)]


async def test_with_its_nudges_a_message_needs_no_looking(stage: Stage) -> None:
    first = await stage.server(mark_s=1000.0)
    await stage.server_beside(first)
    stage.start_worker()
    await stage.register(child("quick", work("done")))
    await starts(stage, calls("simulation/quick"))
    row = await stage.ended(EXECUTION, 1)
    assert result_of(row) == "done"


async def test_a_nudge_that_comes_while_the_inbox_is_read_is_not_forgotten(stage: Stage) -> None:
    class Meanwhile(FaultInjector):
        """Somebody else's message is committed, and told of, between the reading and its answer."""

        reads = 0

        async def inject(self, host: SimulatedHost, point: str) -> None:
            if point == "store.inbox.done":
                self.reads += 1
                if self.reads == 1:
                    put(stage, b"{}")
                    stage.broker.bus.send(subjects.INBOX, b"[0]")
                    await stage.clock.sleep(0.01)

    stage.start_server(stage.host("server", Meanwhile()), mark_s=1000.0)
    await stage.pass_time(2)
    assert stage.tables.inbox == {}


@pytest.mark.parametrize("error", [Fenced("another has it"), OutcomeUnknown("no answer")], ids=["fenced", "unknown"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "committed"])
@pytest.mark.parametrize("what", ["sent", "folded"])
async def test_a_message_whose_tick_went_wrong_is_delivered_exactly_once(
    stage: Stage, error: NoetlError, committed: bool, what: str
) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(CALLED)
    wrong = [once(error, lambda tick: tick.inbox if what == "sent" else tick.inbox_folded) for _ in range(2)]

    def both(tick: Tick) -> NoetlError | None:
        return wrong[0](tick) or wrong[1](tick)

    if committed:
        stage.store.after_commit = both
    else:
        stage.store.before_commit = both
    await starts(stage, calls(args={"n": 7}))
    row = await stage.ended(EXECUTION)
    assert result_of(row) == 70
    assert (await whole(stage, EXECUTION)).count("child.finished") == 1
    (child_id,) = await children_of(stage)
    assert (await whole(stage, child_id)).count("execution.requested") == 1
    assert set(stage.effects.values()) == {1}


@pytest.mark.parametrize("left", range(1, 9))
@pytest.mark.parametrize("point", ["store.commit", "store.commit.done", "store.inbox", "store.inbox.done"])
async def test_a_server_that_dies_anywhere_in_a_call_is_replaced_by_the_other(
    stage: Stage, point: str, left: int
) -> None:
    injector = Dies(point, 10**9)
    first, _, _ = stage.start_server(stage.host("server", injector))
    await stage.until(lambda: len(first.ownership) == 32)
    await stage.server_beside(first)
    stage.start_worker()
    await stage.register(CALLED)
    injector.left = left
    for parent in ("execution-1", "execution-2", "execution-3"):
        await starts(stage, calls_for_each(4), parent)
    for parent in ("execution-1", "execution-2", "execution-3"):
        row = await stage.ended(parent)
        assert result_of(row) == [0, 10, 20, 30]
        names = await whole(stage, parent)
        assert names.count("child.requested") == names.count("child.finished") == 4
        for one in await children_of(stage, parent):
            assert (await whole(stage, one)).count("execution.requested") == 1
    assert stage.tables.inbox == {}


async def test_the_parents_end_ends_its_children_even_those_that_have_not_begun(stage: Stage) -> None:
    first = await stage.server()
    await stage.server_beside(first)
    stage.start_worker()
    await stage.register(child("called", hear()))
    for parent in others(first):
        await starts(stage, calls_for_each(24, 24), parent)
    for parent in others(first):
        await is_waiting(stage, parent)
        assert isinstance(await stage.ask(parent, CancelRequested(f"cancel-{parent}", reason="enough")), dict)
        assert (await stage.ended(parent)).status == "cancelled"
        for one in await children_of(stage, parent):
            row = await stage.ended(one)
            assert row.status == "cancelled"
            assert "enough" in error_of(row)["message"]


async def test_a_start_and_a_cancel_that_wait_together_are_folded_in_their_order(stage: Stage) -> None:
    """The server of half of the children stands still: what they are told waits in the inbox until it is replaced."""
    await stage.register(child("called", hear()))
    first = await stage.server()
    _, host, _ = stage.start_server()
    await stage.until(lambda: len(first.ownership) == 16)
    stage.start_worker()
    host.freeze()
    parent = id_in(next(iter(first.ownership.ids)))
    await starts(stage, calls_for_each(16, 16), parent)
    await is_waiting(stage, parent)
    await stage.ask(parent, CancelRequested("cancel"))
    assert (await stage.ended(parent)).status == "cancelled"
    for one in await children_of(stage, parent):
        assert (await stage.ended(one)).status == "cancelled"
    host.thaw()
    await stage.pass_time(10)
    assert stage.tables.inbox == {}


async def test_pause_and_resume_go_down_to_the_children(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(child("slow", rest(30), {"name": "after", **work("rested")}))
    await starts(stage, calls("simulation/slow"))
    below = await the_child(stage)
    await is_waiting(stage, below)
    await stage.ask(EXECUTION, PauseRequested("pause"))
    await stage.pass_time(100)
    rows = await stage.store.real.executions([EXECUTION, below])
    assert {row.status for row in rows.values()} == {"paused"}
    await stage.ask(EXECUTION, ResumeRequested("resume"))
    assert result_of(await stage.ended(EXECUTION, 5)) == "rested"


async def test_the_end_of_a_child_takes_effect_when_its_paused_parent_resumes(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(child("slow", {"name": "long", **work("done", 5.0)}))
    await starts(stage, calls("simulation/slow"))
    below = await the_child(stage)
    await stage.pass_time(1)
    await stage.ask(EXECUTION, PauseRequested("pause"))
    await stage.pass_time(30)
    await stage.ask(EXECUTION, ResumeRequested("resume"))
    assert result_of(await stage.ended(EXECUTION)) == "done"
    assert (await stage.ended(below)).status == "completed"


async def test_a_signal_to_the_child_lets_the_parent_continue(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(child("asks", hear()))
    await starts(stage, calls("simulation/asks"))
    below = await the_child(stage)
    await is_waiting(stage, below)
    await stage.ask(below, signal(payload={"yes": True}))
    assert result_of(await stage.ended(EXECUTION)) == {"yes": True}


async def test_the_time_of_the_call_ends_the_child(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(child("asks", hear()))
    await starts(stage, calls("simulation/asks", spec={"timeout": 20}))
    below = await the_child(stage)
    row = await stage.ended(EXECUTION)
    assert (row.status, error_of(row)["kind"]) == ("failed", "timeout")
    assert (await stage.ended(below)).status == "cancelled"


async def test_a_failed_child_is_an_error_of_the_call(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(child("breaks", work(1, failures=9)))
    await starts(stage, calls("simulation/breaks"))
    error = error_of(await stage.ended(EXECUTION))
    (below,) = await children_of(stage)
    assert error["kind"] == "child_failed"
    assert "simulation/breaks" in error["message"] and below in error["message"]


async def test_a_child_whose_playbook_is_lost_fails_the_call_in_words(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(CALLED)
    stage.tables.playbooks.clear()
    await starts(stage, calls(args={"n": 1}))
    error = error_of(await stage.ended(EXECUTION))
    assert error["kind"] == "child_failed" and "unknown playbook digest" in error["message"]


async def test_playbooks_that_call_themselves_end_at_the_limit(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    path = "simulation/endless"
    call = {"name": "call", "kind": "playbook", "path": path}
    endless = playbook("endless", [{"step": "call", "tool": [call]}])
    assert await stage.register(endless) == path
    await starts(stage, endless)
    error = error_of(await stage.ended(EXECUTION))
    assert error["kind"] == "child_failed"
    assert "limits.max_call_depth is 16" in error["message"]
    assert len(error["message"]) < 3000
    assert await stage.store.real.live_executions(range(32)) == {}


async def test_a_step_of_the_child_can_be_named_for_the_result(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    steps = [
        {"step": "first", "tool": work("one"), "next": {"arcs": [{"step": "second"}]}},
        {"step": "second", "tool": work("two")},
    ]
    await stage.register(playbook("two", steps))
    await starts(stage, calls("simulation/two", return_step="first"))
    await starts(stage, calls("simulation/two", return_step="third"), "execution-2")
    assert result_of(await stage.ended(EXECUTION)) == "one"
    error = error_of(await stage.ended("execution-2"))
    assert "has no step third; it has first, second" in error["message"]


async def test_more_messages_than_one_tick_folds_are_all_folded(stage: Stage) -> None:
    count = MOST_AT_ONCE + 200
    first = await stage.server()
    await stage.server_beside(first)
    stage.start_worker(slots=64)
    await stage.register(child("called", work("done")))
    await starts(stage, calls_for_each(count, 1000))
    row = await stage.ended(EXECUTION)
    assert result_of(row) == ["done"] * count
    assert set(stage.effects.values()) == {1}


async def test_an_unreadable_message_is_skipped_and_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    await stage.server()
    stage.start_worker()
    await stage.register(CALLED)
    for body in (b'{"fact": 1}', b"[]", b'{"execution_id": "execution-9", "fact": {"name": "of another age"}}'):
        put(stage, body)
    await starts(stage, calls(args={"n": 7}))
    assert result_of(await stage.ended(EXECUTION)) == 70
    await stage.pass_time(2)
    assert stage.tables.inbox == {}
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(logged) == 3 and all("dead letter in the inbox" in one for one in logged)


async def test_words_to_an_execution_that_has_ended_change_nothing(stage: Stage) -> None:
    await stage.server()
    stage.start_worker()
    await starts(stage, before_and_after(rest(1)))
    before = await stage.ended(EXECUTION)
    put(stage, b'{"execution_id":"execution-1","fact":{"name":"execution.cancel_requested","request_id":"r"}}')
    await stage.pass_time(5)
    assert stage.tables.inbox == {}
    assert await stage.store.real.execution(EXECUTION) == before
