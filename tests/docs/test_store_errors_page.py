"""The page about errors of the stores has the rules of the adapters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from noetl_stream.adapters.nats import api_errors
from noetl_stream.adapters.postgres.connections import failures
from noetl_stream.adapters.treatments import CodeRule

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "store-errors.md").read_text()


@pytest.mark.parametrize(("title", "rules"), [("NATS", api_errors.RULES), ("Postgres", failures.RULES)])
def test_the_table_of_each_store_is_that_of_its_adapter(title: str, rules: Mapping[int | str, CodeRule]) -> None:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        [f"`{code}`", rule.meaning, rule.treatment, *([rule.hint] if rule.hint else [])] for code, rule in rules.items()
    ]
