"""Every YAML block of the page on pipelines is what the checker accepts, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playbook_building import workflow
from playbook_kinds import KINDS

from noetl_stream.playbook.compile.compiler import check, compile_playbook
from noetl_stream.playbook.vocabulary.names import is_generated

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```yaml (\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def whole(part: str) -> str:
    return BLOCKS[part] if part == "playbook" else workflow(BLOCKS[part])


@pytest.mark.parametrize("part", BLOCKS)
def test_a_block_of_the_page_is_accepted_without_a_word(part: str) -> None:
    assert [item.render() for item in check(whole(part), KINDS, file=part).diagnostics] == []


def test_the_page_names_the_generated_tasks_as_they_are() -> None:
    tasks = compile_playbook(whole("steps"), KINDS).steps["start"].tasks
    for label in (task.name for task in tasks if is_generated(task.name) and not task.name.endswith(("_2", "e__end"))):
        assert f"`{label}`" in PAGE


def test_the_workbook_of_the_page_is_laid_over_as_it_says() -> None:
    first, second = compile_playbook(whole("playbook"), KINDS).steps["start"].tasks
    assert (first.timeouts.total, first.timeouts.connect) == (30, 5)
    assert (second.timeouts.total, second.timeouts.connect) == (60, 5)
    assert second.inputs.source["params"] == {"units": "metric", "page": 2}  # type: ignore[index,call-overload]


def test_all_blocks_of_the_page_are_tested() -> None:
    assert PAGE.count("```yaml") == len(BLOCKS)
