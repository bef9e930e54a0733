"""Limits by key under every kind of trouble: never more than may, none lost, none stuck (LANGUAGE §15)."""

from __future__ import annotations

import pytest

from effort import times
from noetl_stream.server.inputs.inbox import CatchingUp
from noetl_testkit.simulation.faults import HARMLESS, TOUCHING, kinds_of
from noetl_testkit.simulation.limits import limited_story
from noetl_testkit.simulation.simulation import simulate

SEEDS = range(times(10))
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", SEEDS[::SEEDS_A_TEST])
def test_no_key_has_more_holders_than_allowed_and_everything_ends_despite_faults(first: int) -> None:
    reports = [simulate(limited_story(seed, kinds_of(seed))) for seed in SEEDS[first : first + SEEDS_A_TEST]]
    assert not "\n".join(str(one) for one in reports if one.problems)


@pytest.mark.verify
@pytest.mark.parametrize("kind", (*HARMLESS, *TOUCHING))
def test_each_kind_of_trouble_alone_is_survived(kind: str) -> None:
    report = simulate(limited_story(0, (kind,)))
    assert not report.problems, str(report)


def test_a_limit_that_does_not_wait_for_others_to_catch_up_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CatchingUp, "holds_back", lambda *_: False)
    kinds = ("nats restarted", "partitions stolen", "postgres restored")
    assert "held it at once" in str(simulate(limited_story(87, kinds)))


def test_nothing_fails_without_faults() -> None:
    assert not simulate(limited_story(1, ())).problems
