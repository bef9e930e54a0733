"""Offsets and the units that editors count."""

from __future__ import annotations

import pytest

from noetl_stream.playbook.editing.tree import Lines, Units

TEXT = "a\r\n😀é: x\rlast"


@pytest.mark.parametrize(("units", "width"), [("utf-8", 6), ("utf-16", 3), ("utf-32", 2)])
def test_characters_count_as_many_units_as_the_editor_says(units: Units, width: int) -> None:
    lines = Lines(TEXT, units)
    colon = TEXT.index(":")
    assert lines.place(colon) == (1, width)
    assert lines.offset(1, width) == colon
    assert lines.place(TEXT.index("last")) == (2, 0)


def test_every_offset_between_characters_comes_back() -> None:
    for units in ("utf-8", "utf-16", "utf-32"):
        lines = Lines(TEXT, units)
        inside = [offset for offset in range(len(TEXT) + 1) if TEXT[offset - 1 : offset + 1] != "\r\n"]
        assert [lines.offset(*lines.place(offset)) for offset in inside] == inside


@pytest.mark.parametrize(("line", "character"), [(-1, 0), (0, 99), (0, -5), (99, 0), (99, 99)])
def test_a_position_outside_the_text_is_the_nearest_one(line: int, character: int) -> None:
    assert 0 <= Lines(TEXT).offset(line, character) <= len(TEXT)


def test_only_what_yaml_takes_for_a_line_break_is_one() -> None:
    assert Lines("a\u2028b\x0bc\nd").place(6) == (1, 0)
