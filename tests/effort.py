"""How many cases the random tests try: those of `make test`, times ``NOETL_TEST_EFFORT``, which `make verify` sets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

EFFORT: Final = int(os.environ.get("NOETL_TEST_EFFORT", "1"))


def times(count: int) -> int:
    """``count`` in `make test`, more in `make verify`."""
    return count * EFFORT


def in_gate(values: Iterable[Any], one_of: int) -> list[Any]:
    """Parameters of a test: one of so many in `make test`, all in `make verify`."""
    return [
        value if number % one_of == 0 else pytest.param(value, marks=pytest.mark.verify)
        for number, value in enumerate(values)
    ]


def first_in_gate(values: Iterable[Any]) -> list[Any]:
    """Parameters of a test: the first in `make test`, all in `make verify`."""
    listed = list(values)
    return in_gate(listed, len(listed))


SIMULATIONS_AT_LEAST: Final = 36
"""Seeds of the simulation of servers and workers under faults (PROTOCOL §6) in `make test`: those that fit in a minute
of a machine a third as fast as ours.
"""

SIMULATIONS: Final = SIMULATIONS_AT_LEAST if EFFORT == 1 else max(2_000, times(60))
"""The same in `make verify`."""

RANDOM_EXECUTIONS: Final = times(120)
"""Seeds of random executions, of each kind: of the plain language and of the whole."""

BROKEN_WORKERS: Final = times(60)
"""Seeds of workers that report anything in any order."""

HOSTILE: Final = times(8)
"""Seeds of 300 messages each that no client and no worker sends."""

REQUESTS: Final = times(1)
"""Generated requests of each kind to each operation of the HTTP API."""

HOSTILE_WRITTEN: Final = times(20_000)
"""Hostile messages that are written to real processes, in `make verify` only."""

PETRI_NETS: Final = times(40)
"""Seeds of random Petri nets that are explored by a library of Petri nets as well."""

FAULTS: Final = 100
"""Faults of the storm on real processes, in `make verify` only; `make faults` has 300."""

SOAK_MINUTES: Final = 2.0
"""Of mixed load with faults, in `make verify` only: too short to judge what grows. `make soak` runs 30."""
