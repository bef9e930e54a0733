"""Stories that failed once. ``python -m noetl_stream.testing.simulation`` prints such tests."""

from __future__ import annotations

import pytest

from noetl_stream.testing.simulation.simulation import simulate


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_set_aside_because_its_server_lost_a_partition(seed: int) -> None:
    assert not simulate(seed, ("partitions stolen", "server killed")).problems
