"""The page about what `check` proves: each example gives exactly the findings shown below it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from net_playbooks import PROVED
from playbook_building import workflow

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.net.unfold import MAX_FIRINGS, MAX_FIRINGS_PER_QUESTION, MAX_TRANSITIONS
from noetl_stream.tools.registry import kinds_of, load_tools

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "findings.md").read_text(encoding="utf-8")


class Example(NamedTuple):
    steps: str
    shown: str


EXAMPLES = [
    Example(*found) for found in re.findall(r"```yaml findings\n(.*?)```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
]


@pytest.mark.parametrize("example", EXAMPLES, ids=[re.findall(r"\[(\w+)\]", one.shown)[0] for one in EXAMPLES])
def test_an_example_gives_the_findings_shown_below_it(example: Example) -> None:
    found = check(workflow(example.steps), kinds_of(load_tools()), file="flow.yaml", proves=True).diagnostics
    assert "\n".join(one.render() for one in found) + "\n" == example.shown


def test_the_path_is_shown_as_json() -> None:
    found = check(workflow(EXAMPLES[0].steps), kinds_of(load_tools()), proves=True).diagnostics
    [shown] = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert json.loads(json.dumps(found[0].to_json()["path"])) == json.loads(shown)


def test_the_page_has_every_code_and_every_bound() -> None:
    assert set(re.findall(r"^### `(\w+)`", TEXT, re.MULTILINE)) == PROVED
    assert f"At most {MAX_FIRINGS:,} firings" in TEXT
    assert f"{MAX_FIRINGS_PER_QUESTION:,} of them" in TEXT and f"{MAX_TRANSITIONS:,} transitions" in TEXT
