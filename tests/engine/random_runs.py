"""What tests of random executions share: seeds, faults, plans, and workers with repeatable answers."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any
from zlib import crc32

from random_workers import BROKE, Disturbance

from effort import RANDOM_EXECUTIONS
from noetl_stream.model.outcome import ErrorInfo
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_testkit.random_language import random_language
from noetl_testkit.scenario.scenario import installed_kinds

SEEDS = RANDOM_EXECUTIONS
SEEDS_AT_ONCE = 40
STORMS_A_PLAYBOOK = 4
"""Compiling takes longer than running."""

WEATHERS = [
    Disturbance(faults=0.0, people=0.2),
    Disturbance(faults=0.25, people=0.1),
    Disturbance(faults=0.1, people=0.1, pauses=0.08),
    Disturbance(faults=0.1, people=0.1, pauses=0.05, cancels=0.005, references=True),
    Disturbance(faults=0.0, people=0.1, references=True),
]


def chunks() -> list[range]:
    return [range(first, min(first + SEEDS_AT_ONCE, SEEDS)) for first in range(0, SEEDS, SEEDS_AT_ONCE)]


def named(seeds: range) -> str:
    return f"seeds {seeds.start} to {seeds.stop - 1}"


@lru_cache(maxsize=1)
def compiled(seed: int, confluent: bool) -> Plan:
    return compile_playbook(random_language(Random(seed), confluent=confluent), installed_kinds())


def breaks(*values: Any) -> ErrorInfo | None:
    """An error for a fifth of all arguments, always for the same ones."""
    return BROKE if crc32(repr(values).encode()) % 5 == 0 else None
