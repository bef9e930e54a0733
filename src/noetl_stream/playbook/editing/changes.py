"""Changes of a text: renaming a name and its reads, and fixes that follow the hint of a problem."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

import msgspec

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.editing.names import Kind, Occurrence, Symbol, TextNames
from noetl_stream.playbook.editing.tree import TextMapping, TextPart, find, pairs_of, path_to
from noetl_stream.playbook.vocabulary.names import check_identifier, check_name

RENAMED: Final[frozenset[Kind]] = frozenset(["step", "task", "ctx", "iter", "vars"])
"""The kinds of names that can be renamed: nothing outside the playbook refers to them."""


class CannotRename(NoetlError):
    """The name at the place cannot be renamed, or the new name would mean something else."""


class TextChange(msgspec.Struct, frozen=True):
    """A change: the text that replaces the text from ``start`` to ``end``."""

    start: int
    end: int
    text: str


def renamable_at(names: TextNames, offset: int) -> Occurrence:
    """The renamable name at an offset.

    Raises:
        CannotRename: there is none, or things outside the playbook refer to it.
    """
    found = names.occurrence_at(offset)
    if found is None:
        raise CannotRename("there is no name of a step, a task or a key of ctx, iter or vars here")
    if found.symbol.kind not in RENAMED:
        raise CannotRename(f"`{found.symbol.name}` is also known outside of this text, and cannot be renamed here")
    return found


def rename(text: str, names: TextNames, offset: int, to: str) -> list[TextChange]:
    """The changes that rename the name at an offset, in file order.

    The text is read again with them: every name must then mean what it meant.

    Raises:
        CannotRename: as :func:`renamable_at`; or ``to`` is not a name, is taken, or would hide or be hidden by another.
    """
    symbol = renamable_at(names, offset).symbol
    problems = Problems("")
    check = check_name if symbol.kind in ("step", "task") else check_identifier
    if not check(to, "the new name", BareLocation(Position(1, 1)), problems):
        found = problems.sorted()[0]
        raise CannotRename(found.message, hint=found.hint)
    changes = [TextChange(one.start, one.end, to) for one in names.occurrences_of(symbol)]
    before = [(_rename_symbol(one.symbol, symbol, to), one.declares) for one in names.occurrences]
    after = [(one.symbol, one.declares) for one in TextNames.of(apply_changes(text, changes)).occurrences]
    taken = Symbol(symbol.kind, to, symbol.step)
    if to != symbol.name and (names.occurrences_of(taken) or before != after):
        hint = "choose a name that this playbook does not use"
        raise CannotRename(f"`{to}` would mean something else in a place that reads it", hint=hint)
    return changes


def apply_changes(text: str, changes: list[TextChange]) -> str:
    """Applies changes that do not overlap, in file order."""
    parts, at = [], 0
    for change in changes:
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join([*parts, text[at:]])


def _rename_symbol(symbol: Symbol, old: Symbol, to: str) -> Symbol:
    """The symbol after ``old`` was renamed; symbols of a renamed step change with it."""
    if symbol == old:
        return Symbol(symbol.kind, to, symbol.step)
    if old.kind == "step" and symbol.step == old.name:
        return Symbol(symbol.kind, symbol.name, to)
    return symbol


_OFFERS: Final = re.compile(r"(?:did you mean|use|write|write one of) ((?:`[^`\s]+`(?:, )?)+)(?=\?|\Z|;)")
_QUOTED: Final = re.compile(r"`([^`]+)`")
_TOKEN: Final = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|[\w./@-]+")
_PLAIN: Final = re.compile(r"[^,\[\]{}\n#]+")
_ALIKE: Final = 0.5
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?")


class TextFix(msgspec.Struct, frozen=True):
    """A change with its title. ``is_sure``: it is the only one that the hint names."""

    title: str
    change: TextChange
    is_sure: bool


def fixes(text: str, root: TextPart | None, at: int, message: str, hint: str | None) -> Iterator[TextFix]:
    """The fixes of a hint, if it can be taken literally.

    Args:
        at: The offset of the problem.
    """
    if hint is None:
        return
    if offered := _OFFERS.match(hint):
        words = _QUOTED.findall(offered[1])
        for word in words:
            if (change := _replace(text, at, message, word)) is not None:
                yield TextFix(f"Write `{change.text}`", change, len(words) == 1)
    elif hint.startswith("quote it"):
        if (found := _PLAIN.match(text, at)) and (plain := found[0].rstrip()) and plain[0] not in "\"' ":
            yield TextFix(f'Write "{plain}"', TextChange(at, at + len(plain), f'"{plain}"'), True)
    elif hint == "write a number without quotes":
        token = _TOKEN.match(text, at)
        if token and _NUMBER.fullmatch(inner := token[0].strip("\"'")):
            yield TextFix(f"Write {inner}", TextChange(at, token.end(), inner), True)
    elif re.match(r"remove (?:it|one)\b", hint) and (change := _remove(text, root, at)):
        yield TextFix(f"Remove `{text[at : at + 40].split(':')[0].strip()}`", change, False)


def _replace(text: str, at: int, message: str, word: str) -> TextChange | None:
    """Replaces the wrong word by ``word``: a similar word of the message, else the word at the problem."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    token = _TOKEN.match(text, at)
    named = sorted(_QUOTED.findall(message), key=lambda name: -SequenceMatcher(None, name, word).ratio())
    for name in named:
        if SequenceMatcher(None, name, word).ratio() < _ALIKE:
            break
        found = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])").search(text, at, end)
        if found and name != word:
            return TextChange(found.start(), found.end(), word)
        last, new = name.rpartition(".")[2], word.rpartition(".")[2]
        found = re.compile(rf"\b{re.escape(last)}\b").search(text, at, end)
        if found and last != new:  # the bare name of a path
            return TextChange(found.start(), found.end(), new)
    if token is None or token[0].strip("\"'") == word:
        return None
    quotes = 1 if token[0][0] in "\"'" else 0
    return TextChange(at + quotes, token.end() - quotes, word)


def _remove(text: str, root: TextPart | None, at: int) -> TextChange | None:
    """Removes the key at an offset and its value, with their lines or their comma."""
    path, is_key = path_to(root, at)
    around = find(root, path[:-1]) if is_key else None
    pair = next((one for one in pairs_of(around) if one.key.start <= at <= one.key.end), None)
    if pair is None or not isinstance(around, TextMapping) or len(around.pairs) == 1:
        return None
    start, end = pair.key.start, pair.end
    if text[around.start : around.start + 1] == "{":
        behind = re.compile(r"\s*,\s*").match(text, end)
        if behind:
            return TextChange(start, behind.end(), "")
        before = re.compile(r",\s*\Z").search(text, around.start, start)
        return TextChange(before.start() if before else start, end, "")
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", end)
    if text[line_start:start].strip():  # the first key after a dash
        following = around.pairs[1].key.start
        return TextChange(start, following, "")
    return TextChange(line_start, len(text) if line_end < 0 else line_end + 1, "")
