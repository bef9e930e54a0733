"""The outline of a playbook, and the parts that can be folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from noetl_stream.playbook.editing.names import bodies_of, branches_of, construct_of, label_of
from noetl_stream.playbook.editing.tree import (
    TextMapping,
    TextPart,
    TextScalar,
    child_of,
    find,
    items_of,
    pairs_of,
    text_of,
)

OutlineKind = Literal["section", "step", "task", "construct", "value", "entry"]


class OutlineEntry(msgspec.Struct, frozen=True):
    """A part of the outline from ``start`` to ``end``, with its name at ``name_start`` to ``name_end``."""

    name: str
    kind: OutlineKind
    detail: str
    start: int
    end: int
    name_start: int
    name_end: int
    inside: list[OutlineEntry] = []


def outline(root: TextPart | None) -> list[OutlineEntry]:
    """The outline of a playbook: its sections, steps, tasks, inputs, keychain entries and workbook entries."""
    found = []
    for pair in pairs_of(root):
        inside = [*_entries_of_section(pair.key.value, pair.value)]
        if inside or pair.key.value in ("executor", "metadata"):
            detail = text_of(child_of(pair.value, "path"))
            found.append(_entry(pair.key, "section", detail, pair.key.start, pair.end, inside))
    return found


def folds(root: TextPart | None) -> Iterator[tuple[int, int]]:
    """The start and end of each key and item that may take several lines."""
    for pair in pairs_of(root):
        yield pair.key.start, pair.end
        yield from folds(pair.value)
    for item in items_of(root):
        if item is not None:
            yield item.start, item.end
            yield from folds(item)


def _entries_of_section(section: str, part: TextPart | None) -> Iterator[OutlineEntry]:
    if section == "workflow":
        for item in items_of(part):
            if isinstance(item, TextMapping) and isinstance(name := item.get("step"), TextScalar):
                inside = [*_tasks(find(item, ("loop", "rows"))), *_tasks(item.get("tool"))]
                yield _entry(name, "step", _detail_of_step(item), item.start, item.end, inside)
    elif section == "workload":
        for pair in pairs_of(part):
            yield _entry(pair.key, "value", "", pair.key.start, pair.end)
    elif section == "keychain":
        yield from _named_entries(part, "kind")
    elif section == "workbook":
        for pair in pairs_of(child_of(part, "tasks")):
            yield _entry(pair.key, "entry", text_of(child_of(pair.value, "kind")), pair.key.start, pair.end)
        yield from _named_entries(part, "tool", "kind")


def _named_entries(entries: TextPart | None, *kind: str) -> Iterator[OutlineEntry]:
    for item in items_of(entries):
        if isinstance(item, TextMapping) and isinstance(name := item.get("name"), TextScalar):
            yield _entry(name, "entry", text_of(find(item, kind)), item.start, item.end)


def _tasks(tool: TextPart | None) -> Iterator[OutlineEntry]:
    items: list[TextPart | None] = [tool] if isinstance(tool, TextMapping) else items_of(tool)
    for item in items:
        if not isinstance(item, TextMapping):
            continue
        label, word = label_of(item), construct_of(item)
        if label is not None:
            yield _entry(label.key, "task", text_of(child_of(label.value, "kind")), item.start, item.end)
            continue
        named = item.get("name") or item.get("kind")
        if word is None:
            if isinstance(named, TextScalar):
                yield _entry(named, "task", text_of(item.get("kind")), item.start, item.end)
            continue
        name = named if isinstance(named, TextScalar) else item.pairs[0].key
        bodies = (body for branch in branches_of(item, word) for body in bodies_of(branch, word))
        inside = [one for body in bodies for one in _tasks(body)]
        yield _entry(name, "construct", word, item.start, item.end, inside)


def _detail_of_step(step: TextMapping) -> str:
    targets = [text_of(child_of(arc, "step")) for arc in items_of(find(step, ("next", "arcs")))]
    loop = "loop" if "loop" in step.names else ""
    return ", ".join(filter(None, [loop, f"→ {', '.join(dict.fromkeys(targets))}" if targets else ""]))


def _entry(
    name: TextScalar, kind: OutlineKind, detail: str, start: int, end: int, inside: list[OutlineEntry] | None = None
) -> OutlineEntry:
    name_start, name_end = name.inner
    return OutlineEntry(
        name=name.value or "(no name)",
        kind=kind,
        detail=detail,
        start=min(start, name.start),
        end=max(end, name.end),
        name_start=name_start,
        name_end=name_end,
        inside=inside or [],
    )
