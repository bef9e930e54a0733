"""What `playbook diff` says of two texts."""

from __future__ import annotations

import json

import pytest

from noetl_stream.operations.differences import changed_arcs, changed_steps, unified_diff
from noetl_stream.ports.operations.playbooks import ChangedArcDocument, ChangedNamesDocument

BEFORE = """\
workflow:
  - step: keep
    tool: {kind: noop, args: {a: 1}}
  - step: change
    tool: {kind: noop}
  - step: leave
    tool: {kind: noop}
"""
AFTER = """\
# laid out anew
workflow:
  - step: arrive
    tool: {kind: noop}
  - step: change
    tool: {kind: noop}
    next: {arcs: [{step: keep}]}
  - step: keep
    tool:
      kind: noop
      args:
        a: 1   # as before
"""


def test_steps_are_compared_by_what_they_say() -> None:
    assert changed_steps(BEFORE, AFTER) == ChangedNamesDocument(["arrive"], ["leave"], ["change"])
    assert changed_steps(BEFORE, BEFORE) == ChangedNamesDocument([], [], [])


def routing(*arcs: dict[str, object]) -> str:
    return json.dumps({"workflow": [{"step": "a", "next": {"arcs": list(arcs)}}]})


def test_arcs_are_compared_by_the_steps_they_connect_and_in_their_order() -> None:
    b, c = {"step": "b", "when": "{{ ctx.x }}"}, {"step": "c"}
    before, after = routing(b, b | {"args": {"n": 1}}, c), routing(c, b, b | {"when": True}, {"step": "d"})
    assert changed_arcs(before, after) == [
        ChangedArcDocument(source="a", to="b", change="changed", when="True", was="{{ ctx.x }}"),
        ChangedArcDocument(source="a", to="d", change="added", when=None, was=None),
    ]
    assert changed_arcs(routing(b, c), routing(c)) == [
        ChangedArcDocument(source="a", to="b", change="removed", when=None, was="{{ ctx.x }}")
    ]
    assert changed_arcs("workflow: [{step: a, next: {arcs: 1}}]", "workflow: [{step: a, next: {arcs: [1]}}]") == []


def test_texts_too_long_to_compare_line_by_line_are_shown_as_replaced_between_what_is_equal() -> None:
    before, after = ([f"{side} {number}\n" for number in range(3000)] for side in ("old", "new"))
    lines = list(unified_diff("".join(["same\n", *before, "end\n"]), "".join(["same\n", *after, "end\n"]), "x", "y"))
    assert lines[2:5] == ["@@ -1,3002 +1,3002 @@\n", " same\n", "-old 0\n"]
    assert lines[3003:3005] == ["-old 2999\n", "+new 0\n"] and lines[-1] == " end\n" and len(lines) == 6005


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "text", "workflow: 1", "workflow: {a: 1}", "workflow: [1, {a: 1}, null]", "a: 1"]
)
def test_a_text_that_is_not_a_playbook_has_no_steps(text: str) -> None:
    assert changed_steps(text, BEFORE).added == ["keep", "change", "leave"]


def test_equal_texts_have_no_diff() -> None:
    assert list(unified_diff("a\nb\n", "a\nb\n", "x", "y")) == []


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("a\nb\n", "a\nc\n", [" a\n", "-b\n", "+c\n"]),
        ("a\n", "a", ["-a\n", "+a\n\\ No newline at end of file\n"]),
        ("a\r\n", "a\n", ["-a\r\n", "+a\n"]),
        ("a\x85b\n", "a\x85c\n", ["-a\x85b\n", "+a\x85c\n"]),
        ("", "a\n", ["+a\n"]),
    ],
)
def test_every_difference_of_the_bytes_is_shown(before: str, after: str, lines: list[str]) -> None:
    head, tail, _, *body = unified_diff(before, after, "x@1", "x@2")
    assert (head, tail) == ("--- x@1\n", "+++ x@2\n")
    assert body == lines
