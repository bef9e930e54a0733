"""The differences between two playbooks."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import Mapping
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.ports.operations.playbooks import (
    ChangedArcDocument,
    ChangedNamesDocument,
    PlaybookDiffDocument,
    PlaybookDocument,
    PlaybookWithSourceDocument,
)

NO_NEWLINE = "\n\\ No newline at end of file\n"
CONTEXT: Final = 3
MAX_COMPARED: Final = 4_000_000
"""The most pairs of lines that are compared, from the first differing line to the last: comparing takes more than
linear time. Above, one part is shown as replaced by the other.
"""

Steps = dict[str, dict[str, Any]]


def playbook_diff(
    before: PlaybookWithSourceDocument | None, after: PlaybookDocument | None, text: str, name: str = ""
) -> PlaybookDiffDocument:
    """Differences between a version, ``None`` for nothing, and ``text``: that of ``after``, or one called ``name``."""
    old = before.source if before is not None else ""
    first, second = ("/dev/null" if one is None else f"{one.path}@{one.known_as}" for one in (before, after))
    return PlaybookDiffDocument(
        same=before is not None and old == text,
        before=None if before is None else before.entry,
        after=after,
        text="".join(unified_diff(old, text, first, second if after is not None else name)),
        steps=changed_steps(old, text),
        arcs=changed_arcs(old, text),
    )


def unified_diff(before: str, after: str, before_name: str, after_name: str) -> Iterator[str]:
    """The lines of a unified diff, each with its line end; empty if the texts are equal."""
    old, new = _lines(before), _lines(after)
    head = _equal(old, new)
    tail = _equal(old[head:][::-1], new[head:][::-1])
    if (len(old) - head - tail) * (len(new) - head - tail) <= MAX_COMPARED:
        yield from difflib.unified_diff(old, new, before_name, after_name)
        return
    lead, trail = old[max(0, head - CONTEXT) : head], old[len(old) - tail :][:CONTEXT]
    parts = [side[head : len(side) - tail] for side in (old, new)]
    at, sizes = head - len(lead) + 1, [len(lead) + len(part) + len(trail) for part in parts]
    yield from (f"--- {before_name}\n", f"+++ {after_name}\n", f"@@ -{at},{sizes[0]} +{at},{sizes[1]} @@\n")
    for mark, lines in ((" ", lead), ("-", parts[0]), ("+", parts[1]), (" ", trail)):
        yield from (mark + line for line in lines)


def changed_steps(before: str, after: str) -> ChangedNamesDocument:
    """The names of the steps ``added``, ``removed`` and ``changed``. Layout and comments do not count."""
    old, new = _steps(before), _steps(after)
    return ChangedNamesDocument(
        added=[name for name in new if name not in old],
        removed=[name for name in old if name not in new],
        changed=[name for name in new if name in old and new[name] != old[name]],
    )


def changed_arcs(before: str, after: str) -> list[ChangedArcDocument]:
    """The arcs that differ, in the order of ``after``, removed ones last.

    Arcs between the same two steps are compared in their order; equal ones are paired first.
    """
    old, new = _arcs(_steps(before)), _arcs(_steps(after))
    found: list[ChangedArcDocument] = []
    gone: list[ChangedArcDocument] = []
    for source, to in dict.fromkeys([*new, *old]):
        changed = partial(ChangedArcDocument, source=source, to=to)
        was, now = list(old.get((source, to), ())), []
        for arc in new.get((source, to), ()):
            if arc in was:
                was.remove(arc)
            else:
                now.append(arc)
        for arc, earlier in zip_longest(now, was[: len(now)]):
            when = earlier["when"] if earlier else None
            found.append(changed(change="changed" if earlier else "added", when=arc["when"], was=when))
        gone += [changed(change="removed", when=None, was=arc["when"]) for arc in was[len(now) :]]
    return [*found, *gone]


def _equal(old: list[str], new: list[str]) -> int:
    """The number of equal lines at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(old), len(new)))


def _lines(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest + NO_NEWLINE] if rest else [])


def _steps(text: str) -> Steps:
    """The steps by name as plain values; empty for a text that is not a playbook."""
    source = read_source(text, Problems(""))
    workflow = source.root.get("workflow") if source and isinstance(source.root, Mapping) else None
    steps = workflow.plain() if workflow else None
    named = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    return {str(step["step"]): step for step in named if "step" in step}


def _arcs(steps: Steps) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The arcs by the steps they connect, each with a ``when``, a text or ``None``."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name, step in steps.items():
        router = step.get("next")
        arcs = router.get("arcs") if isinstance(router, dict) else None
        for arc in arcs if isinstance(arcs, list) else ():
            if isinstance(arc, dict) and "step" in arc:
                when = arc.get("when")
                shown = arc | {"when": when if when is None else str(when)}
                found.setdefault((name, str(arc["step"])), []).append(shown)
    return found
