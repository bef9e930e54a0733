"""A text that is no YAML is answered at the line of the mistake, which is often above where the parser gave up."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.mistakes import first_mistake
from noetl_stream.playbook.yaml.source import read_source

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: m, path: m/m }
workflow:
  - step: a
    tool:
      kind: http
      url: http://x
      headers: { A: "b", C: d }
    next:
      arcs:
        - step: b
  - step: b
    tool:
      - name: sum
        kind: python
        code: |
          x = 1
          return x
      - kind: noop
"""
WRONG = {
    "a key without a space": ("kind: http", "kind:http", (7, 7), "write kind: http"),
    "a key without a colon": ("kind: http", "kind http", (7, 7), "write kind: http"),
    "a word without a colon": ("arcs:", "arcs", (11, 7), "write arcs:"),
    "a comma that is missing": ('"b", C', '"b" C', (9, 25), 'write headers: { A: "b", C: d }'),
    "a comma behind a number": ('"b", C', "1 C", (9, 23), "write headers: { A: 1, C: d }"),
    "a brace that closes nothing": ("C: d }", "C: d } }", (9, 33), "remove it: line 9 has one too many"),
    "a brace that is open": ("C: d }", "C: d", (9, 16), 'write headers: { A: "b", C: d }'),
    "a bracket for a brace": ("C: d }", "C: d ]", (9, 16), 'write headers: { A: "b", C: d }'),
    "a brace open over lines": ('{ A: "b", C: d }', "{\n        A: b", (9, 16), "write `}` at the end of line 10"),
    "a quote that is open": ("url: http://x", "url: 'http://x", (8, 12), "write url: 'http://x'"),
    "a quote open in braces": ('A: "b"', 'A: "b', (9, 21), 'close it with " on its line'),
    "text behind quotes": ("url: http://x", 'url: "http://x"/y', (8, 22), "write url: 'http://x/y'"),
    "code that is not indented": ("          x = 1", "        x = 1", (18, 9), "to column 11"),
    "code that leaves its block": ("          return", "      return", (19, 7), "to column 11"),
    "a key one column right": ("      url:", "       url:", (8, 8), "move it to column 7"),
    "a key between two levels": ("      url:", "     url:", (8, 6), "to column 5, beside line 6"),
    "a dash one column left": ("  - step: b\n    tool", " - step: b\n    tool", (13, 2), "move it to column 3"),
    "a dash that is missing": ("  - step: b\n    tool", "  step: b\n    tool", (13, 3), "put `- ` before `step`"),
    "a key beside a list": ("      - kind: noop", "      spec: {}", (20, 7), "column 9, or move it to column 5"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_text_that_is_no_yaml_is_answered_where_the_mistake_is(name: str) -> None:
    before, after, place, hint = WRONG[name]
    problems = Problems("x")
    assert RIGHT.count(before) == 1 or "step: b" in before
    assert read_source(RIGHT.replace(before, after), problems) is None
    [found] = problems.sorted()
    assert (found.line, found.column) == place, found.render()
    assert hint in (found.hint or ""), found.render()


def test_an_item_without_its_dash_is_read_as_the_next_one() -> None:
    problems = Problems("x")
    source = read_source("a:\n  - name: x\n    kind: y\n    name: z\n    kind: y\n    v: 1\n  - name: w\n", problems)
    [found] = problems.sorted()
    assert (found.line, found.column, found.hint) == (4, 5, "put `- ` before `name`")
    assert source is not None
    assert source.root.plain() == {"a": [{"name": "x", "kind": "y"}, {"name": "z", "kind": "y", "v": 1}, {"name": "w"}]}


def test_no_line_of_yaml_is_taken_for_a_mistake() -> None:
    read = 0
    for folder in ("playbooks", "docs", "tests"):
        for path in sorted((ROOT / folder).rglob("*.yaml")):
            if read_source(path.read_bytes(), Problems("x")) is not None:
                assert first_mistake(path.read_text("utf-8")) is None, path
                read += 1
    assert read > 100
