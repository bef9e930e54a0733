"""Renames what a playbook declares, in all places that read it, or says why that would change its meaning."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.editing.names import Kind, Occurrence, Symbol, TextNames
from noetl_stream.playbook.editing.tree import read_tree
from noetl_stream.playbook.vocabulary.names import check_identifier, check_name

RENAMED: Final[frozenset[Kind]] = frozenset(["step", "task", "ctx", "iter", "vars"])
"""What can be renamed: what nothing outside of the playbook refers to."""


class CannotRename(NoetlError):
    """What is at the place has no name that can change, or the new name would mean something else."""


class TextChange(msgspec.Struct, frozen=True):
    """What replaces the text from ``start`` to ``end``."""

    start: int
    end: int
    text: str


def renamable(names: TextNames, offset: int) -> Occurrence:
    """The name at an offset.

    Raises:
        CannotRename: there is none, or things outside of the playbook refer to it.
    """
    found = names.at(offset)
    if found is None:
        raise CannotRename("there is no name of a step, a task or a key of ctx, iter or vars here")
    if found.symbol.kind not in RENAMED:
        raise CannotRename(f"`{found.symbol.name}` is also known outside of this text, and cannot be renamed here")
    return found


def rename(text: str, names: TextNames, offset: int, to: str) -> list[TextChange]:
    """The changes that give the name at an offset another spelling, in file order.

    The text is read again with them: every name must then mean what it meant.

    Raises:
        CannotRename: as :func:`renamable`; or ``to`` is not a name, is taken, or would hide or be hidden by another.
    """
    symbol = renamable(names, offset).symbol
    problems = Problems("")
    check = check_name if symbol.kind in ("step", "task") else check_identifier
    if not check(to, "the new name", BareLocation(Position(1, 1)), problems):
        found = problems.sorted()[0]
        raise CannotRename(found.message, hint=found.hint)
    changes = [TextChange(one.start, one.end, to) for one in names.of(symbol)]
    renamed = changed(text, changes)
    before = [(_renamed(one.symbol, symbol, to), one.declares) for one in names.occurrences]
    after = [(one.symbol, one.declares) for one in TextNames(renamed, read_tree(renamed)).occurrences]
    taken = Symbol(symbol.kind, to, symbol.step)
    if to != symbol.name and (names.of(taken) or before != after):
        raise CannotRename(
            f"`{to}` would mean something else in a place that reads it",
            hint="choose a name that this playbook does not use",
        )
    return changes


def changed(text: str, changes: list[TextChange]) -> str:
    """The text with changes that do not overlap, in file order."""
    parts, at = [], 0
    for change in changes:
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join([*parts, text[at:]])


def _renamed(symbol: Symbol, old: Symbol, to: str) -> Symbol:
    """What a symbol is called after ``old`` has its new name; what belongs to a renamed step goes with it."""
    if symbol == old:
        return Symbol(symbol.kind, to, symbol.step)
    if old.kind == "step" and symbol.step == old.name:
        return Symbol(symbol.kind, symbol.name, to)
    return symbol
