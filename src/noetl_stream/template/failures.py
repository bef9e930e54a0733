"""Errors of templates: problems found by the compiler, and failures of evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from noetl_stream.errors import NoetlError
from noetl_stream.model.outcome import Reference

SHOWN_CHARS: Final = 120
"""The most characters of an expression in an error message."""

MESSAGE_CHARS: Final = 400
"""The most characters of an error message, which may contain keys of the data."""

_COMPARED_NAMES: Final = 500
_COMPARED_CHARS: Final = 64

FindingCode = Literal[
    "template_syntax",
    "template_too_long",
    "statement_not_allowed",
    "unbound_name",
    "namespace_not_here",
    "unknown_filter",
    "unknown_test",
    "guard_not_expression",
]


class TemplateFinding(msgspec.Struct, frozen=True):
    """One problem of a template.

    Attributes:
        pointer: Keys and indices from the compiled source to the text with the problem; ``()`` is the source itself.
        line: Line within that text, from 1.
        column: Column within that line, from 1, in characters.
        name: The name that is not defined, for ``unbound_name``.
    """

    code: FindingCode
    message: str
    hint: str | None
    pointer: tuple[str | int, ...]
    line: int
    column: int
    name: str | None = None


class TemplateProblem(NoetlError):
    """A template that does not compile, with all its problems.

    Args:
        problems: At least one, in source order.
    """

    def __init__(self, problems: Sequence[TemplateFinding]) -> None:
        first = problems[0]
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(first.message + more, hint=first.hint)
        self.problems: Final = tuple(problems)


class ExpressionError(NoetlError):
    """A template or guard that failed to evaluate (LANGUAGE §2).

    ``message`` names the first undefined part, such as ``ctx.approved``, or the failed operation. ``expression`` is the
    text of the template. ``missing`` is the path of the key that a mapping lacks, if that is the reason.
    """

    def __init__(self, message: str, *, expression: str = "", hint: str | None = None, missing: str = "") -> None:
        text, short = shorten(expression), shorten(message, MESSAGE_CHARS)
        super().__init__(f"{short} in {text}" if text else short, hint=hint and shorten(hint, MESSAGE_CHARS))
        self.expression: Final = expression
        self.missing: Final = missing


class ValueNeeded(Exception):
    """A template read a value that must be loaded first: load it, add it to the scope and render again.

    Attributes:
        more: Further values that the rendering is known to need, by name, in the order in which it reads them.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"value {name} must be loaded first")
        self.name: Final = name
        self.more: Final[dict[str, ValueNeeded]] = {}

    @property
    def all(self) -> Sequence[ValueNeeded]:
        """All values to load: this one and the further ones."""
        return (self, *self.more.values())


class ReferenceNeeded(ValueNeeded):
    """A template read a value in the object store."""

    def __init__(self, reference: Reference) -> None:
        super().__init__(reference.key)
        self.reference: Final = reference


class EvaluationFailure(Exception):
    """An error during evaluation; becomes an :class:`ExpressionError` with the expression's text."""

    def __init__(self, message: str, *, hint: str | None = None, missing: str = "") -> None:
        super().__init__(message)
        self.message: Final = message
        self.hint: Final = hint
        self.missing: Final = missing


def shorten(text: str, max_chars: int = SHOWN_CHARS) -> str:
    """``text`` on one line, cut to ``max_chars``."""
    joined = " ".join(text[: 4 * max_chars].split())
    return joined if len(joined) <= max_chars else f"{joined[:max_chars]}…"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to ``name``, or ``None``. Compares a limited number of short names, to bound the cost."""
    if len(name) > _COMPARED_CHARS:
        return None
    from difflib import get_close_matches  # only for a mistake

    short = [other for other in islice(known, _COMPARED_NAMES) if len(other) <= _COMPARED_CHARS]
    return next(iter(get_close_matches(name, short, n=1)), None)


_END: Final = object()


def add_needed(needed: ValueNeeded, following: Iterator[Any]) -> None:
    """Adds to ``needed`` the values that must be loaded for the rest of a rendering.

    Args:
        following: A :class:`map`, which continues with the next value after an exception. Each is needed whatever the
            other values are.
    """
    while True:
        try:
            if next(following, _END) is _END:
                return
        except ValueNeeded as other:
            needed.more.update((one.name, one) for one in other.all if one.name != needed.name)
        except Exception:
            return
