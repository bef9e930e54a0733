"""What can go wrong with a template: problems found when it is compiled, failures when it is evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Final

from noetl_stream.errors import NoetlError
from noetl_stream.model.reference import Reference

SHOWN_CHARS: Final = 120
"""How much of an expression an error message shows."""

MESSAGE_CHARS: Final = 400
"""How long what is said about it may be: keys of the data stand in it, and data may be large."""

_COMPARED_NAMES: Final = 500
_COMPARED_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class TemplateFinding:
    """One thing wrong with a template.

    Attributes:
        code: ``template_syntax``, ``unbound_name``, ``namespace_not_here``, ``statement_not_allowed``,
            ``template_too_long``, ``unknown_filter``, ``unknown_test`` or ``guard_not_expression``.
        pointer: Keys and indices that lead from the compiled source to the text at fault; ``()`` is the source itself.
        line: Line within that text, from 1.
        column: Column within that line, from 1, in characters.
    """

    code: str
    message: str
    hint: str | None
    pointer: tuple[str | int, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class BareName(TemplateFinding):
    """A name that is bound nowhere (``unbound_name``), with the name itself."""

    name: str


class TemplateProblem(NoetlError):
    """A template that cannot be compiled, with every problem found in it.

    Args:
        problems: At least one, in the order of the source.
    """

    def __init__(self, problems: Sequence[TemplateFinding]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.message + more, hint=first.hint)
        self.problems: Final = tuple(problems)


class ExpressionError(NoetlError):
    """A template or guard that could not be evaluated (LANGUAGE §2).

    ``message`` names the first missing part, such as ``ctx.approved``, or what failed. ``expression`` is the template's
    text.
    """

    def __init__(self, message: str, *, expression: str = "", hint: str | None = None) -> None:
        shown, said = shorten(expression), shorten(message, MESSAGE_CHARS)
        super().__init__(f"{said} in {shown}" if shown else said, hint=hint and shorten(hint, MESSAGE_CHARS))
        self.expression: Final = expression


class ReferenceNeeded(Exception):
    """A template read a value that is kept in the object store: load it, add it to the scope, render again."""

    def __init__(self, reference: Reference) -> None:
        super().__init__(f"the value {reference.key} must be loaded first")
        self.reference: Final = reference


class EvaluationFailure(Exception):
    """Raised while an expression is evaluated; becomes an :class:`ExpressionError` with the expression's text."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message: Final = message
        self.hint: Final = hint


def shorten(text: str, most_chars: int = SHOWN_CHARS) -> str:
    """``text`` on one line, cut to what fits an error message."""
    joined = " ".join(text[: 4 * most_chars].split())
    return joined if len(joined) <= most_chars else f"{joined[:most_chars]}…"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like ``name``, if one is; of many or long names only some are looked at."""
    if len(name) > _COMPARED_CHARS:
        return None
    short = [other for other in islice(known, _COMPARED_NAMES) if len(other) <= _COMPARED_CHARS]
    return next(iter(get_close_matches(name, short, n=1)), None)
