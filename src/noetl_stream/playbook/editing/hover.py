"""Hover texts: the meaning of the name or key at a place, in the words of the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from noetl_stream.playbook.editing.completion import Language
from noetl_stream.playbook.editing.names import Kind, Symbol, TextNames, task_mappings
from noetl_stream.playbook.editing.tree import (
    Lines,
    Step,
    TextList,
    TextMapping,
    TextPart,
    TextScalar,
    child_of,
    find,
    path_to,
    text_of,
)
from noetl_stream.playbook.model.task import LANGUAGE_KEYS
from noetl_stream.playbook.vocabulary.names import NAMESPACE_WORDS

MAX_SHOWN_PLACES: Final = 8

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_TITLES: Final[dict[Kind, str]] = {
    "step": "step",
    "task": "task",
    "ctx": "`ctx`: state of the execution",
    "iter": "`iter`: of this iteration",
    "vars": "`vars`: of this run of the step",
    "args": "`args`: of the arc into the step",
    "workload": "`workload`: input of the playbook",
    "keychain": "keychain entry",
    "entry": "workbook entry",
    "playbook": "playbook",
    "schema": "registered schema",
}


class HoverText(msgspec.Struct, frozen=True):
    """Markdown about the text from ``start`` to ``end``."""

    start: int
    end: int
    text: str


def hover(names: TextNames, lines: Lines, offset: int, language: Language) -> HoverText | None:
    """The hover text of the name, namespace, kind or key at an offset."""
    found = names.occurrence_at(offset)
    if found is not None and (not found.declares or found.symbol.kind not in ("args", "ctx", "iter", "vars")):
        return HoverText(found.start, found.end, "\n\n".join(_about(names, lines, found.symbol)))
    path, is_key = path_to(names.root, offset)
    part = find(names.root, path)
    if is_key:
        around = find(names.root, path[:-1])
        pairs = around.pairs if isinstance(around, TextMapping) else []
        key = next((pair.key for pair in pairs if pair.key.start <= offset <= pair.key.end), None)
        known = language.words.about(names.root, path)
        if key is not None and known:
            return HoverText(key.start, key.end, f"**{key.value}**\n\n" + "\n\n".join(known))
    if found is not None:
        return HoverText(found.start, found.end, "\n\n".join(_about(names, lines, found.symbol)))
    if not isinstance(part, TextScalar) or is_key:
        return None
    if path[-1:] == ("kind",) and (kinds := _about_kind(names.root, path, language)):
        return HoverText(part.start, part.end, kinds)
    word = next(
        (one for one in _WORD.finditer(lines.text, part.start, part.end) if one.start() <= offset <= one.end()), None
    )
    scope = names.scope_of(part)
    if word and scope and word[0] in scope.space and word[0] in NAMESPACE_WORDS:
        return HoverText(word.start(), word.end(), f"**{word[0]}**\n\n{NAMESPACE_WORDS[word[0]]}")
    return None


def _about_kind(root: TextPart | None, path: tuple[Step, ...], language: Language) -> str:
    """The text about a tool kind: its inputs."""
    keys = language.words.keys_at(root, path[:-1], also_there=True) if len(path) > 1 else []
    own = [key for key in keys if key.name not in LANGUAGE_KEYS]
    inputs = [f"- `{key.name}`: {key.description}" if key.description else f"- `{key.name}`" for key in own]
    return f"**{text_of(find(root, path))}**\n\n" + "\n".join(inputs) if inputs else ""


def _about(names: TextNames, lines: Lines, symbol: Symbol) -> Iterator[str]:
    yield f"**{symbol.name}** ({_TITLES[symbol.kind]}{f' of step `{symbol.step}`' if symbol.kind == 'task' else ''})"
    about = names.about(symbol)
    if symbol.kind == "step":
        if desc := text_of(child_of(about, "desc")):
            yield desc
        kinds = [text_of(child_of(task, "kind")) for task in task_mappings(child_of(about, "tool"))]
        if kinds:
            yield f"Runs {', '.join(f'`{kind}`' for kind in kinds)}."
        if (loop := child_of(about, "loop")) is not None:
            yield f"Once for each item of `{_spelling(lines, _items_of(loop))}`."
    elif symbol.kind in ("task", "entry", "keychain"):
        if kind := text_of(child_of(about, "kind")) or text_of(find(about, ("tool", "kind"))):
            yield f"Kind: `{kind}`."
    elif symbol.kind == "iter" and isinstance(about, TextMapping) and "iterator" in about.names:
        yield f"An item of `{_spelling(lines, _items_of(about))}`."
    elif symbol.kind == "workload":
        yield f"Default: {_type_of(about)}{f' `{_spelling(lines, about)}`' if isinstance(about, TextScalar) else ''}."
    elif about is not None or names.occurrences_of(symbol):
        yield from _set_in(names, lines, symbol)


def _items_of(loop: TextPart) -> TextPart | None:
    """What a loop runs over."""
    return child_of(loop, "in") or child_of(loop, "rows")


def _set_in(names: TextNames, lines: Lines, symbol: Symbol) -> Iterator[str]:
    """The lines where a key is set, with the values."""
    places = [one for one in names.occurrences_of(symbol) if one.declares]
    if not places:
        yield "Nothing in this playbook sets it."
        return
    shown = [
        f"- line {lines.place(one.start)[0] + 1}: `{_spelling(lines, one.about)}`" for one in places[:MAX_SHOWN_PLACES]
    ]
    yield "Set in:\n" + "\n".join(shown)


def _type_of(part: TextPart | None) -> str:
    if isinstance(part, TextMapping):
        return "a mapping"
    if isinstance(part, TextList):
        return "a list"
    if not isinstance(part, TextScalar) or (not part.style and part.value in ("null", "~", "")):
        return "null"
    if part.style:
        return "text"
    if part.value in ("true", "false"):
        return "a boolean"
    return "a number" if re.fullmatch(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?", part.value) else "text"


def _spelling(lines: Lines, part: TextPart | None) -> str:
    """The beginning of a part as it is written."""
    if part is None:
        return "null"
    written = " ".join(lines.text[part.start : part.end].split()).replace("`", "'")
    return written if len(written) <= 80 else f"{written[:79]}…"
