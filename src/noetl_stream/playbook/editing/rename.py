"""Renames a name of a playbook wherever it is read, or says why that would change its meaning."""

from __future__ import annotations

from typing import Final

import msgspec

from noetl_stream.errors import NoetlError
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.editing.names import Kind, Occurrence, Symbol, TextNames
from noetl_stream.playbook.editing.tree import read_tree
from noetl_stream.playbook.vocabulary.names import check_identifier, check_name

RENAMED: Final[frozenset[Kind]] = frozenset(["step", "task", "ctx", "iter", "vars"])
"""The kinds of names that can be renamed: nothing outside of the playbook refers to them."""


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
        CannotRename: there is none, or things outside of the playbook refer to it.
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
    renamed = apply_changes(text, changes)
    before = [(_rename_symbol(one.symbol, symbol, to), one.declares) for one in names.occurrences]
    after = [(one.symbol, one.declares) for one in TextNames(renamed, read_tree(renamed)).occurrences]
    taken = Symbol(symbol.kind, to, symbol.step)
    if to != symbol.name and (names.occurrences_of(taken) or before != after):
        raise CannotRename(
            f"`{to}` would mean something else in a place that reads it",
            hint="choose a name that this playbook does not use",
        )
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
