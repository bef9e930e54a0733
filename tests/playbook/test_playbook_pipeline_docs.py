"""The guides about constructs and the workbook say what the compiler does."""

from __future__ import annotations

from playbook_building import workflow
from playbook_kinds import KINDS
from playbook_parts import DOCS, Part, parts

from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.vocabulary.names import is_generated

BRANCHES = DOCS / "how-to" / "branch-in-a-step.md"
REUSE = DOCS / "how-to" / "reuse-tasks.md"


def only(name: str, blocks: list[Part]) -> str:
    (text,) = (part.text for part in blocks if part.name == name)
    return text


def test_the_page_names_the_generated_tasks_as_they_are() -> None:
    tasks = compile_playbook(workflow(only("steps", parts(BRANCHES))), KINDS).steps["start"].tasks
    for label in (task.name for task in tasks if is_generated(task.name) and not task.name.endswith(("_2", "e__end"))):
        assert f"`{label}`" in BRANCHES.read_text()


def test_the_workbook_of_the_page_is_laid_over_as_it_says() -> None:
    first, second = compile_playbook(only("playbook", parts(REUSE)), KINDS).steps["start"].tasks
    assert (first.timeouts.total, first.timeouts.connect) == (30, 5)
    assert (second.timeouts.total, second.timeouts.connect) == (60, 5)
    assert second.inputs.source["params"] == {"units": "metric", "page": 2}  # type: ignore[index,call-overload]
