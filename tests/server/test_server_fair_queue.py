"""Namespaces have turns at the inputs of a server: a crowd of one is not folded before one message of another."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from server_stage import ONE_STEP, Stage
from waiting_stage import Dies

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.model.events import CtxPatched, ExecutionRequested, Parent
from noetl_stream.model.ids import partition_of
from noetl_stream.model.json import codec
from noetl_stream.model.messages import FORMAT, InboxMessage, ReportedBody, Request
from noetl_stream.model.rights import namespace_of
from noetl_stream.ports.stores.store import InboxRow
from noetl_stream.ports.streams.event_log import ReportedMessage
from noetl_stream.server.assembly import StateBounds
from noetl_stream.server.inputs.fair_queue import FairQueue, UnfoldedMessages
from noetl_stream.server.inputs.inbox import MOST_AT_ONCE
from noetl_stream.server.inputs.messages import FEW_AT_ONCE
from noetl_stream.server.server import Server
from noetl_stream.server.ticks.fold import Fold
from noetl_testkit.conformance.catalog import registered
from noetl_testkit.simulation.work import CALLED, CALLED_PATH

MANY = 120
AT_ONCE = 8


class Sent(NamedTuple):
    execution_id: str
    body: bytes = b"{}"


def started(execution_id: str, path: str) -> Sent:
    fact = ExecutionRequested("request", "digest", path)
    return Sent(execution_id, codec.encode(Request(execution_id, "request", fact)))


def queue_of(*waiting: Sent) -> FairQueue[Sent]:
    queue = FairQueue[Sent](lambda _: None, namespace_of)
    queue.add(waiting)
    return queue


def ids_of(sent: Sequence[Sent]) -> str:
    return " ".join(one.execution_id for one in sent)


def test_inputs_of_namespaces_alternate_and_those_of_each_keep_their_order() -> None:
    loud = [started(f"l{n}", "loud/x") for n in range(4)]
    queue = queue_of(*loud, started("q1", "quiet/x"), Sent("q1"), started("o1", "other/x"))
    assert ids_of(queue.take(7)) == "l0 q1 o1 l1 q1 l2 l3"
    assert (len(queue), queue.size) == (0, 0)


def test_the_namespace_whose_turn_was_longest_ago_is_next() -> None:
    queue = queue_of(*(started(f"{name}{n}", f"{name}/x") for n in range(2) for name in "abc"))
    assert [ids_of(queue.take(2)) for _ in range(3)] == ["a0 b0", "c0 a1", "b1 c1"]
    queue.add([started("c3", "c/x"), started("b3", "b/x"), started("d3", "d/x")])
    assert ids_of(queue.take(3)) == "d3 b3 c3"


def test_inputs_of_one_namespace_stay_in_order() -> None:
    queue = queue_of(*(started(f"l{n}", f"loud/{n}") for n in range(4)))
    assert not queue.is_contested
    assert [ids_of(queue.take(3)) for _ in range(2)] == ["l0 l1 l2", "l3"]


def test_inputs_whose_namespace_nobody_knows_have_one_turn_together() -> None:
    queue = queue_of(Sent("x1", b"no JSON"), Sent("x2"), started("a1", "a/x"))
    assert not queue.is_contested
    assert ids_of(queue.take(3)) == "x1 a1 x2"


def test_restored_inputs_are_before_those_of_their_namespace_that_wait() -> None:
    queue = queue_of(*(started(f"{name}{n}", f"{name}/x") for n in range(3) for name in "ab"))
    taken = queue.take(4)
    queue.restore(taken[1:])
    assert ids_of(taken) == "a0 b0 a1 b1"
    assert ids_of(queue.take(5)) == "a1 b0 a2 b1 b2"


def test_an_execution_keeps_its_place_when_its_namespace_becomes_known() -> None:
    known: dict[str, Any] = {}
    queue = FairQueue[Sent](known.get, namespace_of)
    queue.add([Sent("x", b"1"), Sent("y", b"1")])
    known["x"] = SimpleNamespace(path="a/x")
    queue.add([started("z", "b/x"), Sent("x", b"2")])
    bodies = [one.body for one in queue.take(4) if one.execution_id == "x"]
    assert bodies == [b"1", b"2"]


def unfolded(*messages: ReportedMessage) -> UnfoldedMessages:
    found = UnfoldedMessages(lambda _: None, namespace_of)
    found.note_read(messages)
    return found


def at(sequence: int, partition: int = 1) -> ReportedMessage:
    return ReportedMessage(sequence, 1_000 + sequence, partition, f"run-{sequence}", b"{}", "noetl.events")


def test_a_cursor_moves_up_to_the_first_message_that_is_not_folded() -> None:
    five = [at(sequence) for sequence in range(1, 6)]
    read = unfolded(*five, at(9, partition=2))
    assert read.cursors(five[2:4]) == {}
    read.note_folded(five[2:4])
    assert read.cursors([five[0]]) == {1: (1, 1_001)}
    read.note_folded([five[0]])
    assert read.cursors([five[1], at(9, partition=2)]) == {1: (4, 1_004), 2: (9, 1_009)}
    read.note_folded([five[1], at(9, partition=2)])
    assert set(read.partitions) == {1}
    read.note_folded([five[4]])
    assert not read.partitions


def test_a_message_that_was_noted_before_its_tick_still_moves_the_cursor() -> None:
    first, second = at(1), at(2)
    read = unfolded(first, second)
    read.note_folded([first])
    assert read.cursors([first]) == {1: (1, 1_001)}
    read.note_folded([first])
    assert read.cursors([second]) == {1: (2, 1_002)}
    read.note_folded([second])
    assert read.cursors([second]) == {1: (2, 1_002)}
    read.note_read([first, second])
    assert read.cursors([second]) == {}, "what was noted twice is not taken for folded when it comes again"


def test_dropped_messages_are_neither_taken_nor_in_the_way() -> None:
    kept, dropped = [at(1), at(4)], [at(2, partition=2), at(3, partition=2)]
    read = unfolded(*kept, *dropped)
    read.add([*kept, *dropped])
    read.note_folded([dropped[1]])
    read.drop({2})
    assert (read.take(9), set(read.partitions)) == (kept, {1})
    read.note_read([at(3, partition=2), at(5, partition=2)])
    assert read.cursors([at(5, partition=2)]) == {}, "it is read again by the next owner, and not folded yet"
    read.drop_all()
    assert not read.partitions and not len(read) and not read.size


async def flood(stage: Stage) -> list[str]:
    """Requests to start many executions of a namespace."""
    ids = [f"loud-{number:03}" for number in range(MANY)]
    for one in ids:
        await stage.request(one, f"request-{one}", ONE_STEP, path="loud/work")
    return ids


async def begun_before(stage: Stage, last: str) -> list[str]:
    """The executions that have begun before this one, in order."""
    rows = stage.tables.executions
    await stage.until(lambda: last in rows)
    ids = list(rows)
    return ids[: ids.index(last)]


async def test_one_request_is_not_folded_after_the_hundreds_of_another_namespace_before_it(stage: Stage) -> None:
    stage.states = StateBounds(at_once=AT_ONCE)
    loud = await flood(stage)
    await stage.request("quiet", "request-quiet", ONE_STEP, path="quiet/work")
    stage.start_server()
    assert len(await begun_before(stage, "quiet")) <= AT_ONCE
    stage.start_worker(64)
    assert [(await stage.ended(one)).status for one in [*loud, "quiet"]] == ["completed"] * (MANY + 1)


async def test_a_namespace_alone_is_folded_in_the_order_of_arrival(stage: Stage) -> None:
    stage.states = StateBounds(at_once=AT_ONCE)
    loud = await flood(stage)
    stage.start_server()
    assert [*await begun_before(stage, loud[-1]), loud[-1]] == loud


def slow_to_fold(server: Server, clock: ManualClock, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each message cost the server this time."""
    new_fold = server.new_fold

    def new_slow_fold() -> Fold:
        fold = new_fold()
        fold_message = fold.fold_message

        def fold_slowly(message: ReportedMessage, body: ReportedBody) -> None:
            fold_message(message, body)
            clock.advance(seconds)

        monkeypatch.setattr(fold, "fold_message", fold_slowly)
        return fold

    monkeypatch.setattr(server, "new_fold", new_slow_fold)


async def test_a_tick_takes_no_further_message_after_a_tenth_of_a_second(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = await flood(stage)
    ticks: list[int] = []
    stage.store.before_commit = lambda tick: ticks.append(len(tick.executions))
    server, _, _ = stage.start_server()
    slow_to_fold(server, stage.clock, 0.01, monkeypatch)
    assert [*await begun_before(stage, loud[-1]), loud[-1]] == loud
    assert 10 <= max(ticks) <= 11


async def test_a_request_waits_for_few_of_the_costly_ones_that_came_before_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    loud = await flood(stage)
    await stage.request("quiet", "request-quiet", ONE_STEP, path="quiet/work")
    await stage.request("quiet-2", "request-quiet-2", ONE_STEP, path="quiet/work")
    server, _, _ = stage.start_server()
    slow_to_fold(server, stage.clock, 0.04, monkeypatch)
    assert len(await begun_before(stage, "quiet-2")) <= 6
    stage.start_worker(64)
    assert [(await stage.ended(one)).status for one in [*loud, "quiet"]] == ["completed"] * (MANY + 1)


async def test_messages_that_a_tick_leaves_are_not_decoded_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    loud = await flood(stage)
    server, _, _ = stage.start_server()
    slow_to_fold(server, stage.clock, 0.01, monkeypatch)
    decoded: list[int] = []
    decode = Fold.decode

    def noted(fold: Fold, message: ReportedMessage) -> ReportedBody | None:
        decoded.append(message.sequence)
        return decode(fold, message)

    monkeypatch.setattr(Fold, "decode", noted)
    await begun_before(stage, loud[-1])
    assert len(decoded) == len(set(decoded)) >= MANY


@pytest.mark.parametrize("other", ["quiet/work", "loud/other", ""])
async def test_ticks_are_short_while_namespaces_wait_for_each_other_and_afterwards(stage: Stage, other: str) -> None:
    ids = [f"{name}-{number}" for number in range(MANY) for name in ("one", "other")]
    for one in ids:
        path = "loud/work" if one.startswith("one") else other
        await stage.request(one, f"request-{one}", ONE_STEP, path=path)
    ticks: list[int] = []
    stage.store.before_commit = lambda tick: ticks.append(len(tick.executions))
    stage.start_server()
    await stage.until(lambda: len(stage.tables.executions) == len(ids))
    assert (max(ticks) == len(ids)) == (namespace_of(other) in ("loud", "")), "an unknown namespace shortens no tick"
    assert max(ticks) in (FEW_AT_ONCE, len(ids))


async def test_a_cursor_stops_before_the_first_message_that_waits_and_the_next_owner_folds_it(stage: Stage) -> None:
    stage.states = StateBounds(at_once=AT_ONCE)
    loud = await flood(stage)
    quiet = [f"quiet-{number}" for number in range(AT_ONCE)]
    for one in quiet:
        await stage.request(one, f"request-{one}", ONE_STEP, path="quiet/work")
    host = stage.host("server", Dies("store.commit.done", 5))
    stage.start_server(host)
    await stage.until(lambda: not host.alive)
    rows = stage.tables.executions
    assert set(quiet) < set(rows) and not set(loud) < set(rows)
    waiting = [(partition_of(one), sequence) for sequence, one in enumerate(loud, start=1) if one not in rows]
    first = dict(reversed(waiting))
    cursors = {view.id: view.last_seq for view in await stage.store.real.read_partitions()}
    assert not [id for id, sequence in first.items() if cursors[id] >= sequence]
    await stage.server()
    stage.start_worker(64)
    assert [(await stage.ended(one)).status for one in [*loud, *quiet]] == ["completed"] * (MANY + AT_ONCE)
    assert set(stage.effects.values()) == {1}


async def test_messages_of_one_execution_keep_their_order_while_others_pass(stage: Stage) -> None:
    stage.states = StateBounds(at_once=AT_ONCE)
    patches = 3 * AT_ONCE
    loud = await flood(stage)
    for one in (loud[0], "quiet"):
        if one == "quiet":
            await stage.request(one, "request-quiet", ONE_STEP, path="quiet/work")
        for number in range(patches):
            fact = CtxPatched(f"patch-{number}", patch={"n": number})
            await stage.requests.publish(Request(one, f"patch-{number}", fact))
    stage.start_server()
    for one in (loud[0], "quiet"):
        await stage.until(lambda one=one: (one, f"patch-{patches - 1}") in stage.tables.requests)  # type: ignore[misc]
        patched = [fact.patch["n"] for fact in await stage.facts(one) if isinstance(fact, CtxPatched)]
        assert patched == list(range(patches))


async def test_ticks_that_costly_requests_of_one_namespace_fill_let_others_have_their_turn(stage: Stage) -> None:
    await stage.request("loud", "request-loud", ONE_STEP, path="loud/work")
    for number in range(8):
        fact = CtxPatched(f"patch-{number}", patch={f"k{number}": "", "big": "x" * 900_000})
        await stage.requests.publish(Request("loud", fact.request_id, fact))
    await stage.request("quiet", "request-quiet", ONE_STEP, path="quiet/work")
    ticks: list[set[str]] = []
    stage.store.before_commit = lambda tick: ticks.append({row.execution_id for row in tick.executions})
    stage.start_server()
    await stage.until(lambda: ("loud", "patch-7") in stage.tables.requests)
    ticks = [ids for ids in ticks if ids]
    assert "quiet" in ticks[0] and len(ticks) == 9, "each of the large ones has a tick of its own"


async def test_large_messages_of_one_namespace_alone_share_ticks(stage: Stage) -> None:
    await stage.request("loud", "request-loud", ONE_STEP, path="loud/work")
    for number in range(12):
        fact = CtxPatched(f"patch-{number}", patch={"big": "x" * 900_000} if number % 6 == 0 else {"n": number})
        await stage.requests.publish(Request("loud", fact.request_id, fact))
    ticks: list[int] = []
    stage.store.before_commit = lambda tick: ticks.append(len(tick.requests))
    stage.start_server()
    await stage.until(lambda: ("loud", "patch-11") in stage.tables.requests)
    assert min(ticks) >= 3, "each would be alone if another namespace waited"


async def test_a_message_of_the_inbox_does_not_wait_for_the_hundreds_of_another_namespace(stage: Stage) -> None:
    crowd = 3 * MOST_AT_ONCE
    called = await registered(stage.catalog, CALLED, CALLED_PATH)
    loud = [f"child-{number:04}" for number in range(crowd)]
    for one in [*loud, "quiet"]:
        path = "quiet/child" if one == "quiet" else "loud/child"
        fact = ExecutionRequested(one, called.digest, path, parent=Parent("nobody", "run", "command"))
        body = codec.encode(InboxMessage(one, fact, FORMAT))
        stage.tables.inbox_sent += 1
        stage.tables.inbox[stage.tables.inbox_sent] = InboxRow(
            id=f"sent-{one}", partition=partition_of(one), execution_id=one, body=body
        )
    stage.start_server()
    assert len(await begun_before(stage, "quiet")) < crowd
    await stage.until(lambda: len(stage.tables.executions) == crowd + 1)
