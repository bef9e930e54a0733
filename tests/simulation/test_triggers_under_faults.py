"""Triggers under every kind of trouble: each event starts once, or is ignored with a reason (LANGUAGE §15)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from effort import SIMULATIONS, times
from noetl_stream.engine.aggregates import triggers
from noetl_stream.engine.aggregates.contract import Given
from noetl_stream.engine.aggregates.starters import StarterState
from noetl_stream.model.ids import derive, uuid7
from noetl_stream.server.ticks.watching import WatchingTriggers
from noetl_testkit.simulation.faults import HARMLESS, TOUCHING, kinds_of
from noetl_testkit.simulation.simulation import simulate
from noetl_testkit.simulation.story import Story
from noetl_testkit.simulation.triggers import triggered_story

SEEDS = range(times(4))
MORE = range(SEEDS.stop, SIMULATIONS // 4)
SEEDS_A_TEST = 20
RESTORED = "postgres restored"


def story(seed: int, kinds: tuple[str, ...] | None = None) -> Story:
    return triggered_story(seed, kinds_of(seed) if kinds is None else kinds)


def broken(seeds: range, kinds: tuple[str, ...] | None = None) -> str:
    """What is wrong under the faults of each seed, or under ``kinds``."""
    reports = (simulate(story(seed, kinds)) for seed in seeds)
    return "\n".join(str(one) for one in reports if one.problems)


@pytest.mark.parametrize("first", SEEDS[::SEEDS_A_TEST])
def test_each_event_starts_once_or_is_ignored_with_a_reason_despite_faults(first: int) -> None:
    assert not broken(SEEDS[first : first + SEEDS_A_TEST])


def test_without_faults_all_events_start_and_all_ends_are_delivered() -> None:
    assert not broken(range(1), ())


def test_executions_from_before_postgres_was_restored_are_neither_lost_nor_started_again() -> None:
    assert not broken(range(times(4)), (RESTORED,))


@pytest.mark.verify
@pytest.mark.parametrize("first", MORE[::SEEDS_A_TEST])
def test_so_does_each_event_of_many_more_seeds(first: int) -> None:
    assert not broken(range(first, min(first + SEEDS_A_TEST, MORE.stop)))


@pytest.mark.verify
@pytest.mark.parametrize("kind", (*HARMLESS, *TOUCHING))
def test_each_kind_of_trouble_alone_is_survived(kind: str) -> None:
    assert not broken(range(10), (kind,))


def _drawn_by_number(patch: pytest.MonkeyPatch) -> None:
    def drawn(state: StarterState, given: Given, at_ms: int, *event: str) -> str:
        return uuid7(given.at_ms, bytes.fromhex(derive(given.aggregate_id, state.created_ms, state.number)))

    patch.setattr(StarterState, "execution_of", drawn)


def _never_told_again(patch: pytest.MonkeyPatch) -> None:
    told = WatchingTriggers.end_messages
    patch.setattr(WatchingTriggers, "end_messages", lambda self, *given, **again: () if again else told(self, *given))


def _keys_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(triggers, "MAX_KEYS", 2)


def _chains_unbounded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(triggers, "MAX_DEPTH", 12)


RULES = {
    "an execution's id is that of its event": _drawn_by_number,
    "triggers are told again of ends that Postgres has lost": _never_told_again,
    "keys are remembered": _keys_forgotten,
    "a chain ends": _chains_unbounded,
}


@pytest.mark.verify
@pytest.mark.parametrize("rule", RULES)
def test_a_broken_rule_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks: Callable[[pytest.MonkeyPatch], None] = RULES[rule]
    breaks(monkeypatch)
    assert any(simulate(story(seed, (RESTORED,))).problems for seed in range(20))
