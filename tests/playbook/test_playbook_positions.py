"""A position in a scalar's text is mapped to the file, however the scalar is written."""

from __future__ import annotations

import pytest
from playbook_building import found, pipeline

from noetl_stream.playbook.diagnostics import Position, Problems
from noetl_stream.playbook.yaml.nodes import InText, Mapping, Scalar
from noetl_stream.playbook.yaml.source import read_source

SPELLINGS = [
    "plain text X here",
    "'single ''quoted'' X'",
    '"double \\"quoted\\" \\u00e9 \\x41 X"',
    '"joined \\\n    lines X"',
    '"folded\n\n    lines X"',
    "plain\n    folded X",
    "|\n    literal\n      indented X\n",
    "|1\n    literal\n   X\n",
    "|-\n\n    after a blank line\n\n    X",
    ">\n    folded\n    lines\n\n    more X\n",
    ">-\n    folded\n      kept X\n",
    "&anchor plain X",
    "!!str 'tagged X'",
    "|  # with a comment\n    X\n",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_character_of_the_text_is_found_where_it_is_written(spelling: str) -> None:
    text = f"a:\n  key: {spelling}\n"
    source = read_source(text, Problems("<yaml>"))
    assert source is not None and isinstance(source.root, Mapping)
    outer = source.root.values["a"]
    assert isinstance(outer, Mapping)
    scalar = outer.values["key"]
    assert isinstance(scalar, Scalar) and isinstance(scalar.value, str)
    before = scalar.value[: scalar.value.index("X")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    offset = text.index("X")
    expected = Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
    assert InText(source.text, scalar, line, column).mark == expected


def test_a_problem_in_a_block_of_sql_has_its_own_line() -> None:
    text = pipeline(
        """
        - kind: postgres
          command: |
            select *
            from {{ workload.table }}
            where id = {{ missing }}
        """
    )
    [problem] = found(text, "unbound_name")
    line = text.splitlines()[problem.line - 1]
    assert line[problem.column - 1 :].startswith("missing }}")


def test_a_problem_deep_in_an_input_has_the_pointer_of_its_text() -> None:
    [problem] = found(pipeline('- { kind: http, url: a, params: { list: [1, "{{ missing }}"] } }'), "unbound_name")
    assert problem.pointer == "/workflow/0/tool/0/params/list/1"
