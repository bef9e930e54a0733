"""What `playbook diff` says of two texts."""

from __future__ import annotations

import pytest

from noetl_stream.client.differences import changed_steps, unified_diff

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
    assert changed_steps(BEFORE, AFTER) == {"added": ["arrive"], "removed": ["leave"], "changed": ["change"]}
    assert changed_steps(BEFORE, BEFORE) == {"added": [], "removed": [], "changed": []}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "text", "workflow: 1", "workflow: {a: 1}", "workflow: [1, {a: 1}, null]", "a: 1"]
)
def test_a_text_that_is_not_a_playbook_has_no_steps(text: str) -> None:
    assert changed_steps(text, BEFORE)["added"] == ["keep", "change", "leave"]


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
