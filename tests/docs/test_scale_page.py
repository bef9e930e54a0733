"""The page about scale shows what the model computes, and the model predicts what was measured."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "scale.md").read_text()
README = (ROOT / "benchmarks" / "README.md").read_text()


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("scale")


def test_the_page_has_the_table_of_the_model(scale: ModuleType) -> None:
    assert f"<!-- scale: table -->\n{scale.table(scale.RATES, scale.Costs())}\n" in PAGE
    rows = [f"| {limit.part} | {limit.steps_per_s:,.0f} |" for limit in scale.limits(scale.Costs())]
    assert "\n".join(rows) in PAGE


def test_the_costs_of_the_model_are_those_that_were_measured(scale: ModuleType) -> None:
    costs = scale.Costs()
    parts = (costs.server_us, costs.worker_us, costs.nats_us, costs.postgres_us, costs.client_us)
    assert f"| {' / '.join(map(str, parts))} µs |" in README


def test_the_model_predicts_the_throughput_that_was_measured_beside_the_costs(scale: ModuleType) -> None:
    found = re.search(r"3,650 \((\S+) to \S+\) and 4,000 steps/s \(\S+ to (\S+)\)", README)
    assert found is not None
    least, most = (float(number.replace(",", "")) for number in found.groups())
    assert least <= scale.predicted_steps_per_s(scale.Costs()) <= most


def test_a_higher_rate_never_needs_less(scale: ModuleType) -> None:
    found = [scale.sizes(rate, scale.Costs()) for rate in (1, 10, 100, 1_000, 5_000, 20_000, 100_000)]
    assert [one.cells for one in found] == sorted(one.cells for one in found)
    assert all(one.servers >= 2 and one.workers >= 2 for one in found)
