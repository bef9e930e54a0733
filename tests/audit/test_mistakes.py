"""``check`` answers a mistake as a colleague would: what is wrong, where, and what to write instead."""

from __future__ import annotations

import pytest
from mistakes import MISTAKES

from noetl_stream.playbook.compile.compiler import check
from noetl_stream.tools.registry import kinds_of, load_tools

KINDS = kinds_of(load_tools())


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_at_its_place_with_what_to_write(name: str) -> None:
    mistake = MISTAKES[name]
    before, _, after = mistake.marked.partition("¶")
    place = (before.count("\n") + 1, len(before) - before.rfind("\n"), mistake.severity)
    found = check(before + after, KINDS, proves=True).diagnostics
    answers = [one for one in found if (one.line, one.column, one.severity) == place]
    said = "\n".join(one.render() for one in answers)
    assert [word for word in mistake.words if word not in said] == [], "\n".join(one.render() for one in found)
