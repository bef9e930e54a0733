"""Labels of the tasks that sugar compiles to: the construct's own name, ``__`` and a part (LANGUAGE §12 *Sugar*).

A construct ``pick`` begins with ``pick__choose``, ``pick__while`` or ``pick__until`` and ends with ``pick__end``
(``choose``: one for each branch, ``pick__end_0`` …). ``__`` is reserved, so no name of an author's looks like this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_GENERATED: Final = re.compile(r"(?P<construct>.+)__(?P<part>choose|while|until|end(?:_\d+)?)\Z")


def begin_label(construct: str, word: str) -> str:
    """The label of the first task of a construct; ``word`` is ``choose``, ``while`` or ``until``."""
    return f"{construct}__{word}"


def end_label(construct: str, branch: int | None = None) -> str:
    """The label of the task behind the body of a construct, or behind one of its branches."""
    return f"{construct}__end" if branch is None else f"{construct}__end_{branch}"


def is_generated(label: str) -> bool:
    return _GENERATED.match(label) is not None


def name_in_file(label: str) -> str | None:
    """What the author calls the task: each task its name, a construct its own, once (for the label it begins with)."""
    found = _GENERATED.match(label)
    if found is None:
        return label
    return None if found["part"].startswith("end") else found["construct"]


def result_name(label: str) -> str | None:
    """Under which name the result at this task is kept: a task's own; the construct's where a branch or round of it
    ends; ``None`` where a construct begins."""
    found = _GENERATED.match(label) if "__" in label else None
    if found is None:
        return label
    return found["construct"] if found["part"].startswith("end") else None


def label_of(name: str, labels: Iterable[str]) -> str:
    """Where a jump to ``name`` goes: the label a construct of that name begins with, else the task itself."""
    return next((label for label in labels if is_generated(label) and name_in_file(label) == name), name)
