"""Stories that failed once. ``python -m noetl_stream.testing.simulation`` prints such tests."""

from __future__ import annotations

import pytest

from noetl_stream.testing.simulation.simulation import simulate
from noetl_stream.testing.simulation.story import Story


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_set_aside_because_its_server_lost_a_partition(seed: int) -> None:
    assert not simulate(seed, ("partitions stolen", "server killed")).problems


def test_a_server_forgets_what_it_held_of_a_partition_that_it_lost_unnoticed_and_takes_again() -> None:
    """Frozen until another server had had the partition and given it back, it folded on in its old memory."""
    assert not simulate(1, ("frozen at publish",)).problems


def test_an_execution_that_ends_after_its_poison_was_lost_with_the_tail_is_not_set_aside() -> None:
    """Its loop was broken by an iteration that had failed; the iterations that servers had died of were cancelled."""
    faults = ("commit unknown", "server frozen", "folded tail lost", "poison kills")
    assert not simulate(Story(seed=300053, servers=1, workers=1, faults=faults)).problems


def test_what_a_server_publishes_again_after_it_was_frozen_has_another_message_id_than_before() -> None:
    """It reads what others have committed meanwhile, and knows only of its own last tick."""
    assert not simulate(400658, ("readers break", "frozen at publish")).problems


def test_a_start_that_is_set_aside_before_its_playbook_is_read_is_not_refused_when_it_comes_again() -> None:
    """A server that had not read its journal took the start for another's, and its answer was written twice."""
    faults = ("objects away", "reports unknown", "postgres away", "poison refused")
    assert not simulate(400426, faults).problems
