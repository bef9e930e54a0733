"""How long a comparison of a workload with its schema takes, by keyword: at most some 10 ns (LANGUAGE §9).

    python benchmarks/comparisons.py

Prints, for values that are as slow to compare as was found, the comparisons that are counted and the nanoseconds that
each of them takes. The sizes in ``playbook/workload.py`` and ``results/validator.py`` are right while none is far
above 10.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

from noetl_stream.playbook.results.validator import InvalidSchema, Validator
from noetl_stream.playbook.workload import MAX_COMPARISONS, WorkloadSchema

ROUNDS: Final = 3
NO_BOUND: Final = 10**6 * MAX_COMPARISONS

_random: Final = random.Random(1)
BINARY: Final = "".join(_random.choice("01") for _ in range(20_000))
LETTERS: Final = "".join(_random.choice("abcdefgéłж 01") for _ in range(3_000))


def alternatives(count: int) -> str:
    """A pattern whose compiled form grows with ``count``."""
    return "|".join(f"([a-{chr(98 + number % 24)}{number}]+[b-y]*)+!" for number in range(count))


def patterns() -> Iterator[tuple[str, str]]:
    """Patterns of growing compiled forms, with a text that is slow to match."""
    for count in (3, 50, 130):
        yield rf"(?:[01]?){{{count}}}[01]{{{count}}}2\b", f"é{BINARY}"
        yield rf"\w+1\w{{{count}}}2", BINARY
    for count in (80, 150, 300):
        yield alternatives(count), LETTERS


def cases() -> Iterator[tuple[str, Any, Any]]:
    for pattern, text in patterns():
        yield f"pattern {pattern[:30]}", {"pattern": pattern}, text
    yield "enum: integers", {"enum": list(range(100))}, [99] * 20_000
    yield "enum: floats among integers", {"enum": list(range(100))}, [99.0] * 2_000
    yield "enum: large integers", {"enum": [10**1000 + number for number in range(100)]}, [10**1000 + 99] * 100
    yield "enum: floats", {"enum": [number + 0.5 for number in range(100)]}, [99.5] * 1_000
    yield "enum: tiny floats", {"enum": [(number + 1) * 5e-324 for number in range(100)]}, [100 * 5e-324] * 200
    yield "enum: lists", {"enum": [[0] * 30 + [number] for number in range(100)]}, [[0] * 30 + [99]] * 500
    yield "enum: mappings", {"enum": [{"b": 2, "k": number} for number in range(100)]}, [{"b": 2, "k": 99}] * 1_000
    yield "enum: texts and a boolean", {"enum": [True, *(f"x{number}" for number in range(99))]}, ["x98"] * 50_000
    numbers = {"2^63": 2**63, "1e308": 1e308, "10^300": 10**300, "10^1000": 10**1000, "2e-300": 2e-300}
    bounds = {"0": 0, "0.5": 0.5, "1e-300": 1e-300, "-10^1000": -(10**1000)}
    for bound, number in product(bounds, numbers):
        yield f"minimum {bound}, {number}", {"minimum": bounds[bound]}, [numbers[number]] * 500


def measure(part: Any, value: Any) -> tuple[int, float]:
    """The comparisons, and the seconds that they take."""
    items = part if isinstance(value, str) else {"items": part}
    schema, workload = {"properties": {"a": items}}, {"a": value}
    comparisons = WorkloadSchema(schema).comparisons(workload, NO_BOUND)
    assert comparisons is not None
    best = float("inf")
    for _ in range(ROUNDS):
        validator = Validator(schema)  # one that has matched a text before knows much of the pattern
        began = time.process_time()
        validator.mismatch(workload)
        best = min(best, time.process_time() - began)
    return comparisons, best


def main() -> None:
    for name, part, value in cases():
        try:
            comparisons, seconds = measure(part, value)
        except InvalidSchema:
            continue  # the compiled form of the pattern is too large
        print(f"{name:44} {comparisons:15,} {seconds * 1e9 / comparisons:8.2f} ns")


if __name__ == "__main__":
    main()
