"""A small storm and a short soak on the real stack, and what storms are judged by."""

from __future__ import annotations

from random import Random

import pytest
from fault_books import effect_problems, journal_problems, row_problems
from fault_kinds import CLUSTERED, SERVER_SIDE, TOUCHING
from fault_soak import BOUNDS, soak
from fault_storm import drawn, storm
from fault_work import JOBS

from effort import FAULTS, SOAK_MINUTES
from noetl_stream.ports.stores.store import StoredEvent

CHAIN = JOBS["chain"]
ONCE = {"key 1": [1.0], "key 2": [2.0], "key 3": [3.0]}


def done(position: int, step_run_id: str) -> StoredEvent:
    return StoredEvent(position, "step.done", "server", 0, step_run_id, None, None, b"{}")


def processed(position: int, step_run_id: str) -> StoredEvent:
    return StoredEvent(position, "task.processed", "worker", 0, step_run_id, None, None, b'{"task":"only","attempt":1}')


def test_a_seed_draws_the_same_storm_again_and_every_kind_before_one_twice() -> None:
    kinds = (*SERVER_SIDE, *TOUCHING)
    storm = drawn(5, kinds, 2 * len(kinds))
    assert storm == drawn(5, kinds, 2 * len(kinds)) != drawn(6, kinds, 2 * len(kinds))
    assert {stroke.kind for stroke in storm[: len(kinds)]} == set(kinds)


def test_faults_of_servers_and_postgres_explain_no_second_effect() -> None:
    assert {kind.touches for kind in SERVER_SIDE} == {""}
    assert {kind.touches for kind in (*TOUCHING, *CLUSTERED)} == {"", "worker", "stream"}


def test_an_effect_that_is_missing_or_not_explained_is_a_problem() -> None:
    assert effect_problems(ONCE, CHAIN, lambda times: False) == []
    assert effect_problems({"key 1": [1.0]}, CHAIN, lambda times: False) == ["1 effects, not 3"]
    twice = {**ONCE, "key 2": [2.0, 9.0]}
    assert effect_problems(twice, CHAIN, lambda times: times == [2.0, 9.0]) == []
    assert effect_problems(twice, CHAIN, lambda times: False) == [
        "the effect key 2 happened 2 times, and no fault explains that"
    ]


def test_a_lost_execution_and_a_task_twice_in_the_books_are_problems() -> None:
    assert row_problems(None, CHAIN) == ["has not ended"]
    journal = [processed(1, "a"), done(2, "a"), processed(3, "a"), done(5, "b")]
    assert journal_problems(None, journal, CHAIN) == [
        "its journal has the positions [1, 2, 3, 5]",
        "2 steps ended, not 3",
        "('a', 'only', '()', 1) was processed 2 times",
    ]


@pytest.mark.verify
@pytest.mark.xdist_group("own_stacks")
async def test_a_storm_loses_nothing_and_doubles_nothing_in_the_books() -> None:
    rounds = await storm(Random(FAULTS).getrandbits(16), FAULTS, FAULTS // 5)
    assert [problem for done in rounds for problem in done.problems] == []
    assert sum(len(done.strokes) for done in rounds) == FAULTS


@pytest.mark.verify
@pytest.mark.xdist_group("own_stacks")
async def test_a_soak_ends_with_its_books_in_order() -> None:
    done, figures = await soak(1, SOAK_MINUTES)
    assert done.problems == []
    assert {one.name for one in figures} == set(BOUNDS)
