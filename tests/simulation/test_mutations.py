"""The simulation finds what it is for: each broken rule within some seeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mutations import MUTATIONS, Mutation

from noetl_testkit.simulation.simulation import forget_calm_ends, simulate

SEEDS = 60
"""Within so many each is found; `docs/explanation/reliability.md` says by which."""


@pytest.fixture(autouse=True)
def _calm_ends_are_of_the_mutation_alone() -> Iterator[None]:
    forget_calm_ends()
    yield
    forget_calm_ends()


@pytest.mark.verify
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_broken_rule_is_found(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.patch(monkeypatch)
    assert any(simulate(seed, mutation.kinds).problems for seed in range(SEEDS))


def test_the_documentation_has_a_row_of_each_broken_rule() -> None:
    page = (Path(__file__).parents[2] / "docs/explanation/reliability.md").read_text()
    rows = [line for line in page.splitlines() if "| PROTOCOL §" in line]
    for mutation in MUTATIONS:
        faults = ", ".join(mutation.kinds or ["those of the seed"])
        assert any(row.startswith(f"| {mutation.rule} | {mutation.section} | {faults} |") for row in rows), mutation
