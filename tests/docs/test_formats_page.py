"""The page about what a step stores shows what the code stores."""

from __future__ import annotations

import re

from formats_page import PAGE, blocks, page


def test_the_page_shows_what_a_step_stores() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python tests/docs/formats_page.py` and read what changed"


def test_every_block_is_on_the_page() -> None:
    assert re.findall(r"<!-- stored: (\w+) -->", PAGE.read_text(encoding="utf-8")) == list(blocks())
