"""How work grows with what it is given: calls of functions are counted, so that no figure depends on a machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import log
from types import FrameType
from typing import Any, Final

Act = Callable[[], object]
Door = Callable[[int], Act]
"""What is done with an input of so many parts. Making the input is not counted."""

TIMES: Final = 10


def calls_in(act: Act) -> int:
    """The calls that an act makes in this thread, of functions of Python and of C."""
    count = 0

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def assert_near_linear(door: Door, parts: int) -> None:
    """Ten times the input is at most ten times the work, and what a sort or a search in a tree adds."""
    door(2)()  # what is made once, at the first use
    little, much = calls_in(door(parts)), calls_in(door(TIMES * parts))
    most = TIMES * log(TIMES * parts) / log(parts)
    assert much <= most * little, (
        f"{parts} parts: {little:,} calls; {TIMES} times as many: {much:,}, at most {most:.1f} times"
    )
