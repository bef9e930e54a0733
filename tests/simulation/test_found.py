"""Stories that failed once. ``python -m noetl_stream.testing.simulation`` prints such tests."""

from __future__ import annotations

import pytest

from noetl_stream.testing.simulation.simulation import simulate


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_set_aside_because_its_server_lost_a_partition(seed: int) -> None:
    assert not simulate(seed, ("partitions stolen", "server killed")).problems


def test_a_server_forgets_what_it_held_of_a_partition_that_it_lost_unnoticed_and_takes_again() -> None:
    """Frozen until another server had had the partition and given it back, it folded on in its old memory."""
    assert not simulate(1, ("frozen at publish",)).problems
