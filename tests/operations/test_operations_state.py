"""The state of an execution at any position of its journal."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from operations_stage import BY, NO_SECRETS, OperationsStage

from noetl_stream.engine.replay import replay
from noetl_stream.engine.snapshot import SNAPSHOT_FORMAT, digest_of_snapshot, encode_state
from noetl_stream.errors import NotFound
from noetl_stream.model.events import CtxPatched, SignalReceived
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.operations.executions.prepare import PlaybookChecker
from noetl_stream.operations.views.direct import READ_FOR_COUNTS, DirectViews
from noetl_stream.ports.operations.executions import Start
from noetl_stream.ports.stores.store import SnapshotRow
from noetl_testkit.simulation.work import playbook, then, work

HELD = {"wait": {"timeout_s": 600}, "rules": [{"when": "{{ ctx.go is defined }}", "then": {"allow": True}}]}
FORK = playbook(
    "fork",
    [
        {
            "step": "start",
            "tool": work("first"),
            "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "gate"}, {"step": "ear"}, {"step": "meet"}]},
        },
        {"step": "gate", "spec": {"policy": {"admit": HELD}}, "tool": work("gated"), "next": then("meet")},
        {
            "step": "ear",
            "tool": [{"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600}],
            "next": then("meet"),
        },
        {"step": "meet", "spec": {"join": "all"}, "tool": work("{{ ctx.go }}")},
    ],
)
LOOP = playbook("loop", [{"step": "each", "loop": {"in": "{{ range(300) | list }}", "iterator": "n"}, "tool": work(1)}])


async def test_every_token_is_where_why_says_it_waits(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=FORK), BY)
    await stage.until_status(started.execution_id, "waiting")
    why = await stage.executions.why(started.execution_id)
    state = await stage.views.state(started.execution_id, None)
    assert {(one.step, one.place) for one in state.tokens} == {
        ("gate", "admission"),
        ("ear", "signal"),
        ("meet", "join"),
    }
    assert {(reason.step, reason.kind) for reason in why.reasons} == {(one.step, one.place) for one in state.tokens}
    by_step = {one.step: one for one in state.tokens}
    for reason in why.reasons:
        assert by_step[reason.step or ""].waiting_on == reason.waiting_on
    assert [(one.step, one.done, one.waiting, one.running) for one in state.steps or ()] == [
        ("start", 1, 0, 0),
        ("ear", 0, 1, 0),
    ]
    assert (state.status, state.position, state.more) == ("waiting", state.last, 0)
    assert [(one.step, one.result) for one in state.results] == [("start", "first")]


async def test_a_past_position_shows_what_was_there_and_nothing_later(stage: OperationsStage) -> None:
    started = await stage.executions.start(Start(playbook=FORK), BY)
    await stage.until_status(started.execution_id, "waiting")
    before = await stage.views.state(started.execution_id, None)
    await stage.ask(started.execution_id, CtxPatched, patch={"go": "yes"})
    await stage.ask(started.execution_id, SignalReceived, signal="go")
    ended = await stage.executions.wait(started.execution_id, 600)
    then_ = await stage.views.state(started.execution_id, before.position)
    assert (then_.tokens, then_.ctx, then_.results, then_.steps) == (before.tokens, {}, before.results, before.steps)
    assert then_.last == ended.position
    now = await stage.views.state(started.execution_id, None)
    assert (now.status, now.tokens, now.ctx) == ("completed", [], {"go": "yes"})
    assert {one.step: one.done for one in now.steps or ()} == {"start": 1, "gate": 1, "ear": 1, "meet": 1}


async def test_every_position_has_a_state_as_the_journal_gives_it(stage: OperationsStage) -> None:
    ended = await stage.run(LOOP)
    journal = await stage.store.journal(ended.execution_id)
    seen: Counter[str] = Counter()
    for position in range(1, ended.position + 1, 97):
        state = await stage.views.state(ended.execution_id, position)
        replayed = replay(ended.execution_id, journal[:position])
        assert replayed is not None
        assert (state.position, state.status, state.ctx) == (position, replayed.shown_status, replayed.ctx)
        seen.update(one.place for one in state.tokens)
    assert {"running", "queued"} & set(seen)


async def test_the_commands_of_a_loop_are_one_token_with_a_count(stage: OperationsStage) -> None:
    distributed = LOOP.replace('"iterator"', '"spec": {"mode": "parallel", "max_in_flight": 200}, "iterator"')
    ended = await stage.run(distributed)
    states = [await stage.views.state(ended.execution_id, at) for at in range(1, ended.position, 50)]
    assert max(one.count for state in states for one in state.tokens) > 8
    assert all(len(state.tokens) <= 2 for state in states), "one for what is queued, one for what runs"
    loops = [one.loop for state in states for one in state.tokens if one.loop is not None]
    assert {loop.count for loop in loops} == {300} and loops[0].ok < loops[-1].ok


async def test_large_values_are_shown_as_their_size(stage: OperationsStage) -> None:
    big = "x" * 10_000
    ended = await stage.run(playbook("big", [{"step": "only", "tool": work(big)}]), ctx={"big": big, "small": 1})
    state = await stage.views.state(ended.execution_id, None)
    assert state.ctx == {"big": {"$large": {"size": 10_002}}, "small": 1}
    assert state.results[0].result == {"$large": {"size": 10_002}}


async def test_an_answer_is_bounded_however_many_keys_and_tokens_there_are(stage: OperationsStage) -> None:
    ctx = {f"key-{number}": "x" * 4_000 for number in range(200)}
    ended = await stage.run(playbook("wide", [{"step": "only", "tool": work(1)}]), ctx=ctx)
    state = await stage.views.state(ended.execution_id, None)
    assert len(codec.encode(state)) < 300_000
    assert state.ctx["key-0"] == "x" * 4_000 and state.ctx["key-199"] == {"$large": {"size": 4_002}}


@pytest.mark.parametrize("position", [0, 10_000])
async def test_a_position_that_the_journal_does_not_have_is_not_found(stage: OperationsStage, position: int) -> None:
    ended = await stage.run(playbook("one", [{"step": "only", "tool": work(1)}]))
    with pytest.raises(NotFound, match=f"has no position {position}"):
        await stage.views.state(ended.execution_id, position)


class CountingReads:
    """A store that counts the events and entries that are read of journals."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def journal(self, *args: Any) -> Any:
        found = await self._store.journal(*args)
        self.read += len(found)
        return found

    async def journals(self, *args: Any) -> Any:
        found = await self._store.journals(*args)
        self.read += sum(map(len, found.values()))
        return found


async def test_a_state_is_read_from_the_nearest_snapshot(stage: OperationsStage) -> None:
    ended = await stage.run(LOOP.replace("range(300)", "range(700)"))
    assert ended.position > READ_FOR_COUNTS
    journal = await stage.store.journal(ended.execution_id)
    at = ended.position - 100
    replayed = replay(ended.execution_id, journal[:at])
    assert replayed is not None
    body = encode_state(replayed)
    digest = digest_of_snapshot(ended.execution_id, at, body)
    stage.store.tables.snapshots[ended.execution_id, at] = SnapshotRow(
        execution_id=ended.execution_id, position=at, format=SNAPSHOT_FORMAT, digest=digest, body=body
    )
    counting: Any = CountingReads(stage.store)
    views = DirectViews(counting, PlaybookChecker(dict, DEFAULT_LIMITS), NO_SECRETS)
    state = await views.state(ended.execution_id, at + 50)
    assert (counting.read, state.steps) == (50, None)
    await DirectViews(counting, PlaybookChecker(dict, DEFAULT_LIMITS), NO_SECRETS).state(ended.execution_id, at)
    assert counting.read == 50
