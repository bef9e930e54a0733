"""Undoing under every kind of trouble: each effect is undone once in the books, or said (LANGUAGE §9 *Undoing*)."""

from __future__ import annotations

import pytest

from effort import times
from noetl_stream.engine.decide import closing
from noetl_testkit.simulation.faults import HARMLESS, TOUCHING, kinds_of
from noetl_testkit.simulation.simulation import simulate
from noetl_testkit.simulation.undoing import random_undoing_story, undoing_story

SEEDS = range(times(6))
RANDOM = range(times(6))
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", SEEDS[::SEEDS_A_TEST])
def test_each_effect_is_undone_once_or_reported_despite_faults(first: int) -> None:
    reports = [simulate(undoing_story(seed, kinds_of(seed))) for seed in SEEDS[first : first + SEEDS_A_TEST]]
    assert not "\n".join(str(one) for one in reports if one.problems)


@pytest.mark.verify
@pytest.mark.parametrize("kind", (*HARMLESS, *TOUCHING))
def test_each_kind_of_trouble_alone_is_survived(kind: str) -> None:
    report = simulate(undoing_story(0, (kind,)))
    assert not report.problems, str(report)


def test_nothing_fails_without_faults() -> None:
    assert not simulate(undoing_story(1, ())).problems


def test_an_effect_that_is_not_reported_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "compensations_of", lambda *_: ())
    assert "says nothing of" in str(simulate(undoing_story(1, ())))


@pytest.mark.parametrize("first", RANDOM[::SEEDS_A_TEST])
def test_random_playbooks_undo_each_effect_once_in_order_or_say_it_and_run_finally_once(first: int) -> None:
    seeds = RANDOM[first : first + SEEDS_A_TEST]
    reports = [simulate(random_undoing_story(seed, kinds_of(seed))) for seed in seeds]
    assert not "\n".join(str(one) for one in reports if one.problems)


@pytest.mark.verify
@pytest.mark.parametrize("first", range(RANDOM.stop, RANDOM.stop + 300, SEEDS_A_TEST))
def test_many_more_random_playbooks_undo_each_effect_once(first: int) -> None:
    reports = [simulate(random_undoing_story(seed, kinds_of(seed))) for seed in range(first, first + SEEDS_A_TEST)]
    assert not "\n".join(str(one) for one in reports if one.problems)
