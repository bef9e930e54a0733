"""What a keystroke costs, as calls of functions: much less than a check, and in proportion to the text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from marked_text import KINDS, language, names_of

from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.editing.completion import complete

EXAMPLE = (Path(__file__).resolve().parents[2] / "playbooks" / "paginate_to_postgres.yaml").read_text()
HEAD, WORKFLOW = EXAMPLE[: EXAMPLE.index("workflow:\n") + 10], EXAMPLE[EXAMPLE.index("workflow:\n") + 10 :]


def playbook(copies: int) -> str:
    """A playbook whose steps are those of an example, so many times."""
    steps = [name.split()[0] for name in WORKFLOW.split("- step: ")[1:]]
    parts = []
    for number in range(copies):
        part = WORKFLOW
        for step in steps:
            part = part.replace(f"step: {step}", f"step: {step}_{number}").replace(
                f"steps.{step}", f"steps.{step}_{number}"
            )
        parts.append(part)
    return HEAD + "".join(parts)


def calls(work: Callable[[], object]) -> int:
    """How many functions are called, those of C included."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def keystroke(text: str) -> Callable[[], object]:
    """What an editor may ask after a letter: a completion, and what is under the cursor."""
    offset = text.rindex("{{") + 3

    def ask() -> object:
        return complete(text, offset, language()), names_of(text).occurrence_at(offset)

    return ask


def test_a_keystroke_in_three_thousand_lines_is_a_small_part_of_a_check() -> None:
    text = playbook(20)
    assert 3_000 < len(text.splitlines()) < 4_000
    keystroke(playbook(1))()  # what is kept for good is not counted
    check_document(playbook(1), KINDS)
    assert calls(keystroke(text)) * 4 < calls(lambda: check_document(text, KINDS))


def test_the_work_of_a_keystroke_grows_no_faster_than_the_text() -> None:
    keystroke(playbook(1))()
    assert calls(keystroke(playbook(20))) < 2.2 * calls(keystroke(playbook(10)))
