"""The outline of a playbook, and its folds."""

from __future__ import annotations

from pathlib import Path

from noetl_stream.playbook.editing.outline import OutlineEntry, folds, outline
from noetl_stream.playbook.editing.tree import read_tree

EXAMPLES = Path(__file__).resolve().parents[2] / "playbooks"


def shown(entries: list[OutlineEntry], depth: int = 0) -> list[str]:
    lines = []
    for one in entries:
        lines += [f"{'  ' * depth}{one.name} ({one.kind} {one.detail})", *shown(one.inside, depth + 1)]
    return lines


def test_steps_tasks_and_constructs_are_in_the_outline() -> None:
    found = shown(outline(read_tree((EXAMPLES / "choose_while_until.yaml").read_text())))
    assert found == [
        "metadata (section examples/choose_while_until)",
        "workload (section )",
        "  api_url (value )",
        "  pause_s (value )",
        "workflow (section )",
        "  morning (step )",
        "    begin (task http)",
        "    read_all (construct while)",
        "      page (task http)",
        "      urgent_of_page (task python)",
        "      by_urgency (construct choose)",
        "        put_first (task noop)",
        "        nothing_urgent (task noop)",
        "    caught_up (construct until)",
        "      pause (task wait)",
        "      look (task http)",
        "    report (task noop)",
    ]


def test_arcs_and_loops_are_details_and_entries_have_their_kind() -> None:
    text = """
keychain: [{ name: shop, kind: credential }]
workbook: { tasks: { tell: { kind: http } } }
workflow:
  - step: a
    loop: { in: [], iterator: x }
    tool: [ { get: { kind: http } }, { kind: noop } ]
    next: { arcs: [ { step: b }, { step: b } ] }
"""
    found = shown(outline(read_tree(text)))
    assert found == [
        "keychain (section )",
        "  shop (entry credential)",
        "workbook (section )",
        "  tell (entry http)",
        "workflow (section )",
        "  a (step loop, → b)",
        "    get (task http)",
        "    noop (task noop)",
    ]


def test_the_task_that_makes_the_rows_of_a_loop_is_an_entry_of_its_step() -> None:
    text = "workflow: [{step: a, loop: {rows: {name: all, kind: duckdb}, iterator: x}, tool: {kind: noop}}]"
    assert shown(outline(read_tree(text)))[1:] == ["  a (step loop)", "    all (task duckdb)", "    noop (task noop)"]


def test_a_name_lies_within_its_entry() -> None:
    pending = outline(read_tree((EXAMPLES / "saga.yaml").read_text()))
    seen = 0
    while pending:
        one = pending.pop()
        assert one.start <= one.name_start <= one.name_end <= one.end
        pending += one.inside
        seen += 1
    assert seen > 5


def test_each_key_and_item_can_be_folded() -> None:
    text = "a:\n  b:\n    - c\n    - d: |\n        e\n"
    assert {text[start:end].split()[0] for start, end in folds(read_tree(text))} == {"a:", "b:", "c", "d:"}
