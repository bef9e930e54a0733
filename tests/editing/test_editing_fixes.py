"""A quick fix makes its problem go away."""

from __future__ import annotations

from pathlib import Path

import pytest
from marked_text import KINDS

from effort import in_gate
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.editing.changes import TextFix, apply_changes, fixes
from noetl_stream.playbook.editing.tree import Lines, read_tree

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: n, path: team/n }\n"
BROKEN = Path(__file__).resolve().parents[1] / "playbook" / "broken"


def problems(text: str) -> tuple[Diagnostic, ...]:
    return check_document(text, KINDS, proves=True).diagnostics


def offered(text: str) -> list[tuple[Diagnostic, TextFix]]:
    root, lines = read_tree(text), Lines(text)
    return [
        (one, fix)
        for one in problems(text)
        for fix in fixes(text, root, lines.offset_of_mark(one.line, one.column), one.message, one.hint)
    ]


@pytest.mark.parametrize(
    ("step", "mended"),
    [
        ("{ step: a, tool: { kind: noop }, next: { arcs: [{ step: aa }] } }", "step: a }] }"),
        ("{ step: a, tool: { kind: htp, url: x } }", "kind: http,"),
        ("{ step: a, tool: { kind: http, url: x, metod: GET } }", "method: GET"),
        ("{ step: a, spec: { join: al }, tool: { kind: noop } }", "join: all }"),
        ("{ step: a, tool: { kind: noop, args: { x: '😀 {{ steps.aa }}' } } }", "'😀 {{ steps.a }}'"),
        (
            "{ step: a, next: { arcs: [{ step: a, when: \"{{ event.name == 'call.done' }}\" }] } }",
            "{{ event.name == 'step.done' }}",
        ),
        ("{ step: a, tool: { kind: noop, args: { x: 007 } } }", 'x: "007"'),
        ("{ step: a, desc: 7, tool: { kind: noop } }", 'desc: "7"'),
    ],
)
def test_a_hint_that_can_be_taken_literally_is_a_fix(step: str, mended: str) -> None:
    text = f"{HEAD}workflow:\n  - {step}\n"
    found = offered(text)
    assert found
    one, fix = found[0]
    after = apply_changes(text, [fix.change])
    assert mended in after
    assert one.message not in [left.message for left in problems(after)]


def test_a_key_that_must_go_is_removed_with_its_lines() -> None:
    executor = "executor:\n  spec:\n    profile:\n      a: 1\n    pool: x\n"
    text = f"{HEAD}{executor}workflow:\n  - {{ step: a, tool: {{ kind: noop }} }}\n"
    [(_, fix)] = offered(text)
    assert not fix.is_sure
    assert apply_changes(text, [fix.change]) == text.replace("    profile:\n      a: 1\n", "")


@pytest.mark.parametrize("file", in_gate(sorted(BROKEN.glob("*.yaml")), one_of=4), ids=lambda file: file.stem)
def test_each_fix_of_every_broken_playbook_mends_its_problem(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    for one, fix in offered(text):
        after = problems(apply_changes(text, [fix.change]))
        same = [left for left in after if (left.code, left.line, left.message) == (one.code, one.line, one.message)]
        before = [
            left for left in problems(text) if (left.code, left.line, left.message) == (one.code, one.line, one.message)
        ]
        assert len(same) < len(before), (one.render(), fix)
