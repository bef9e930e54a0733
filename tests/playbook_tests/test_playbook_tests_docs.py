"""The reference names every key; documents in it and beside the examples are valid, and pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playbook_test_stage import runner

from noetl_stream.adapters.clock import START_MS
from noetl_stream.model.outcome import shown_time
from noetl_stream.playbook_tests import schema
from noetl_stream.playbook_tests.reading import LONGEST_S
from noetl_stream.playbook_tests.stubs import MAX_CALLS
from noetl_stream.playbook_tests.suite import run_document, text_lines

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "playbook-tests.md").read_text()
TABLES = {
    "The document": [schema.TestDocumentSection],
    "Given": [schema.GivenSection],
    "Stubs": [schema.StubSection, schema.StubErrorSection],
    "When": [schema.ActionSection],
    "Then": [schema.ThenSection, schema.ExpectedErrorSection],
}


@pytest.mark.parametrize("heading", TABLES)
def test_the_reference_names_every_key(heading: str) -> None:
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    keys = {key for model in TABLES[heading] for key in model.model_fields} - {"apiVersion", "kind"}
    named = set(re.findall(r"`(\w+)`", table))
    assert keys - named == set()


def test_the_reference_says_what_the_bounds_are() -> None:
    assert f"{MAX_CALLS:,} calls" in PAGE
    assert f"{LONGEST_S / 86_400:.0f} days" in PAGE
    assert shown_time(START_MS).replace(".000", "") in PAGE


def test_the_example_of_the_reference_passes(tmp_path: Path) -> None:
    [text] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    (tmp_path / "saga.yaml").write_text((ROOT / "playbooks" / "saga.yaml").read_text())
    document = tmp_path / "reference.test.yaml"
    document.write_text(text)
    ran = run_document(document, runner())
    assert ran.passed, "\n".join(text_lines(ran))


@pytest.mark.parametrize("file", sorted((ROOT / "playbooks").glob("*.test.yaml")), ids=lambda file: file.name)
def test_the_tests_of_the_examples_pass_and_have_no_notes(file: Path) -> None:
    ran = run_document(file, runner())
    assert ran.passed, "\n".join(text_lines(ran))
    assert [outcome.notes for outcome in ran.outcomes if outcome.notes] == []
