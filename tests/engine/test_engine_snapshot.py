"""A snapshot restores a state at any position, and whatever is wrong with it is noticed (PROTOCOL §5 *Snapshots*)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest
from engine_scenarios import started
from msgspec.structs import replace
from random_workers import RandomRun

from noetl_stream.engine.evolve.dispatch import evolve
from noetl_stream.engine.snapshot import (
    SNAPSHOT_FORMAT,
    SnapshotUnusable,
    decode_state,
    digest_of_snapshot,
    encode_state,
    is_drawn,
    read_snapshot,
)
from noetl_stream.engine.state import Execution, LoopState
from noetl_stream.model.outcome import Payload
from noetl_testkit.random_language import random_language
from noetl_testkit.scenario.scenario import Scenario

SEEDS = 12


def states(scenario: Scenario) -> Iterator[Execution]:
    """After each entry of the journal."""
    state: Execution | None = None
    for recorded, _ in scenario.journal:
        state = evolve(state, recorded, scenario.execution_id)
        assert state is not None
        yield state


@pytest.mark.parametrize("seed", range(SEEDS))
def test_at_every_position_the_rest_of_the_journal_leads_from_a_snapshot_to_the_same_state(seed: int) -> None:
    scenario = Scenario(random_language(Random(seed)))
    RandomRun(scenario, Random(seed)).run()
    restored: Execution | None = None
    for state, (recorded, _) in zip(states(scenario), scenario.journal, strict=True):
        restored = evolve(restored, recorded, scenario.execution_id)
        assert restored is not None
        restored = decode_state(encode_state(restored))
        assert restored == state, f"seed {seed}, position {state.position}"


def test_equal_states_have_equal_bytes_whatever_the_order_of_their_sets_is() -> None:
    scenario = started("- {step: start, tool: {kind: noop}}")
    names = [f"request {number:02}" for number in range(40)]
    body = encode_state(replace(scenario.execution, requests=frozenset(names)))
    assert msgspec.json.encode(names) in body
    assert decode_state(body).requests == frozenset(names)


def test_a_shared_value_is_written_once_and_shared_again_after_reading() -> None:
    scenario = started(
        """
        - step: start
          next: {spec: {mode: inclusive}, arcs: [{step: one}, {step: two}]}
        - {step: one, tool: {kind: noop}}
        - {step: two, loop: {in: "{{ ctx.large }}", iterator: n}, tool: {kind: noop}}
        """,
        ctx={"large": ["x" * 20_000], "small": 1},
    )
    scenario.take("two").begin()
    scenario.patch(small=2)
    body = encode_state(scenario.execution)
    restored = decode_state(body)
    first, second = restored.runs.values()
    assert body.count(b"x" * 20_000) == 1
    assert first.ctx is second.ctx and first.ctx is not restored.ctx
    assert first.ctx["large"] is restored.ctx["large"]


def test_a_result_that_a_step_shares_with_its_last_task_is_written_once() -> None:
    scenario = started(
        "- {step: start, tool: {kind: noop}, next: {arcs: [{step: end}]}}\n- {step: end, tool: {kind: noop}}"
    )
    scenario.done("start", "y" * 20_000)
    body = encode_state(scenario.execution)
    (value,) = decode_state(body).steps.values()
    assert body.count(b"y" * 20_000) == 1 and value.outcome is next(iter(value.results.values()))


def test_a_loop_of_any_length_has_a_snapshot() -> None:
    """Its results are a chain and its marks a number, both too long for a decoder as they are."""
    scenario = started("- {step: start, loop: {in: [1, 2], iterator: n}, tool: {kind: noop}}")
    scenario.take("start").begin()
    state = scenario.execution
    (run,) = state.runs.values()
    results: Any = None
    for index in range(5_000):
        results = (index, Payload(), results)
    loop = LoopState([0] * 50_000, 50_000, True, 1, low=3, done=1 << 40_000 | 5, results=results)
    long = replace(state, runs={run.step_run_id: replace(run, loop=loop)})
    restored = decode_state(encode_state(long))
    (again,) = restored.runs.values()
    assert again.loop is not None
    assert (again.loop.done, again.loop.items) == (loop.done, loop.items)
    assert flat(again.loop.results) == flat(results)


def flat(link: Any) -> list[Any]:
    found = []
    while link is not None:
        *one, link = link
        found.append(one)
    return found


class Stored(NamedTuple):
    execution_id: str
    position: int
    format: int
    digest: str
    body: bytes


def stored() -> tuple[Execution, Stored]:
    state = started("- {step: start, tool: {kind: noop}}").execution
    body = encode_state(state)
    place = (state.execution_id, state.position)
    return state, Stored(*place, SNAPSHOT_FORMAT, digest_of_snapshot(*place, body), body)


def test_a_snapshot_is_read_where_it_was_written() -> None:
    state, row = stored()
    assert read_snapshot(row) == state


def changed(row: Stored) -> Iterator[Stored]:
    damaged = row.body.replace(b"execution-1", b"execution-2", 1)
    yield row._replace(format=SNAPSHOT_FORMAT + 1)
    yield row._replace(digest="0" * 32)
    yield row._replace(body=damaged)
    yield row._replace(body=row.body[:-1])
    yield row._replace(execution_id="another")
    yield row._replace(position=row.position + 1)
    for body in (damaged, b"", b"{}", row.body[:-1], row.body.replace(b'"ctx":0', b'"ctx":9')):
        yield row._replace(body=body, digest=digest_of_snapshot(row.execution_id, row.position, body))


def test_a_snapshot_that_is_damaged_or_somewhere_else_is_not_used() -> None:
    _, row = stored()
    for one in changed(row):
        with pytest.raises(SnapshotUnusable):
            read_snapshot(one)


def test_one_load_in_a_hundred_is_compared_and_every_server_draws_the_same() -> None:
    digests = [digest_of_snapshot("one", position, b"") for position in range(20_000)]
    drawn = [is_drawn(digest) for digest in digests]
    assert 150 < sum(drawn) < 250
    assert drawn == [is_drawn(digest) for digest in digests]
