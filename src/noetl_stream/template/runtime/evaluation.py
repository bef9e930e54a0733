"""Compiled templates and guards, and their evaluation in a scope."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from operator import call
from typing import Any, Final, TypeAlias

import msgspec
from jinja2 import TemplateError, Undefined

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.template.failures import EvaluationFailure, ExpressionError, ValueNeeded, add_needed
from noetl_stream.template.runtime.attribute_access import make_read, plain
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import ABSENT, JSON, Scope

Evaluate: TypeAlias = Callable[[Scope, Meter], Any]
"""The function that gives the value of an expression, or the text of a template, in a scope."""

Comparison: TypeAlias = tuple[tuple[str, ...], str]
Tested: TypeAlias = tuple[tuple[str, ...], str | float]

_RAISED_BY_EXPRESSIONS: Final = (
    *(EvaluationFailure, TemplateError, PayloadRefused),
    *(ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(NameError, RuntimeError, TypeError, ValueError),
)
"""Errors of Jinja's code, its filters and Python's operators for unsuitable values."""

_NUMBER: Final = re.compile(r"\s*[+-]?[0-9]{1,18}((?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?)\s*")
"""The pattern of a number in text, short enough to be finite; the group is there if it is not a whole number."""

_WRONG_CALL: Final = re.compile(r"^(?:\w+\.)*_?(?:sync_)?(?:do_|test_|is_|or_)?(\w+)\(\) (?=missing|takes|got)")
"""The pattern of Python's message for a call with wrong arguments; the group is the name that templates use."""


def values_of(parts: Iterable[Evaluate], scope: Scope, meter: Meter) -> list[Any]:
    """Evaluates all parts.

    Raises:
        ValueNeeded: A value must be loaded first, with all others that must be.
    """
    remaining = iter(parts)
    try:
        return [part(scope, meter) for part in remaining]
    except ValueNeeded as needed:
        add_needed(needed, map(call, remaining, repeat(scope), repeat(meter)))
        raise


class Expression:
    """A text and the function that evaluates it.

    Args:
        text: The text as written, for error messages.
        evaluate: Returns the value of the text, which may not be plain JSON.
        cost: Operations of the expression's own nodes, each evaluated once.
    """

    __slots__ = ("_cost", "_evaluate", "text")

    def __init__(self, text: str, evaluate: Evaluate, cost: int = 1) -> None:
        self.text: Final = text
        self._evaluate: Final = evaluate
        self._cost: Final = cost

    def value(self, scope: Scope, meter: Meter) -> JSON:
        """Evaluates the text to a value of plain JSON.

        Raises:
            ExpressionError: The text cannot be evaluated.
            ReferenceNeeded: A value that it reads must be loaded first.
        """
        try:
            meter.spend(self._cost)
            return plain(self._evaluate(scope, meter), scope.references, meter)
        except _RAISED_BY_EXPRESSIONS as error:
            raise self._error(error) from error

    def truth(self, scope: Scope, meter: Meter) -> bool:
        """Evaluates whether the value of the text is true.

        Raises:
            ExpressionError: The text cannot be evaluated, or its value is text: ``"false"`` would be true.
            ReferenceNeeded: A value that it reads must be loaded first.
        """
        try:
            meter.spend(self._cost)
            result = self._evaluate(scope, meter)
            if result is True or result is False:
                return result is True
            if not isinstance(result, str):
                return bool(plain(result, scope.references, meter))
        except _RAISED_BY_EXPRESSIONS as error:
            raise self._error(error) from error
        hint = "compare it, as in `== 'yes'`"
        raise ExpressionError("the guard is text, which is neither true nor false", expression=self.text, hint=hint)

    def _error(self, error: Exception) -> ExpressionError:
        if isinstance(error, EvaluationFailure):
            return ExpressionError(error.message, expression=self.text, hint=error.hint, missing=error.missing)
        if isinstance(error, RecursionError):
            message = "the value or the template is nested too deeply"
        elif isinstance(error, MemoryError):
            message = "not enough memory for the value"
        elif isinstance(error, ZeroDivisionError):
            message = "division by zero"
        else:
            message = (str(error) or type(error).__name__).rstrip(".")
        return ExpressionError(_WRONG_CALL.sub(r"`\1` ", message), expression=self.text)


class TemplateText(msgspec.Struct, frozen=True):
    """A template or guard as text, which another process can compile again.

    Attributes:
        source: The value or condition as written.
        is_guard: Whether the text is a condition.
        namespaces, bindings, expressions_only: As they were given to the compiler.
    """

    source: JSON
    is_guard: bool
    namespaces: frozenset[str]
    bindings: Mapping[str, tuple[str, ...] | None]
    expressions_only: bool = True


class Template(msgspec.Struct, frozen=True, eq=False):
    """A compiled value, for :func:`render`.

    Attributes:
        source: The value as written.
        is_constant: Whether the value contains no templates.
        reads: Namespaces and first keys that it reads; ``(namespace, None)`` is the whole namespace or a computed key.
        paths: The paths that it reads, each from its namespace to the first key that is computed or not text.
        text: The text it was compiled from.
        steps: The keys of ``steps`` in ``reads``.
        build: The function that renders it; internal to this package.
        path: The path that it reads as a whole, from the namespace on; empty if it is anything else.
    """

    source: JSON
    is_constant: bool
    reads: frozenset[tuple[str, str | None]]
    paths: frozenset[tuple[str, ...]]
    text: TemplateText
    steps: tuple[str | None, ...]
    build: Evaluate
    path: tuple[str | int, ...] = ()


class Guard(msgspec.Struct, frozen=True, eq=False):
    """A compiled condition, for :func:`holds`.

    Attributes:
        source: The condition as written; ``true`` or ``false`` for a boolean.
        reads: As in :class:`Template`.
        paths: As in :class:`Template`.
        comparisons: Paths and the text literals that they are compared with by ``==``, ``!=`` or ``in [...]``.
        tested: The same with texts, numbers and booleans, also of a path with a default; ``True`` where the truth of a
            path is asked.
        text: As in :class:`Template`.
        steps: As in :class:`Template`.
        expression: The expression to evaluate; internal to this package.
    """

    source: str
    reads: frozenset[tuple[str, str | None]]
    paths: frozenset[tuple[str, ...]]
    comparisons: tuple[Comparison, ...]
    tested: tuple[Tested, ...]
    text: TemplateText
    steps: tuple[str | None, ...]
    expression: Expression


class NoValue:
    """The value of a path that is absent or undefined."""


_FREE: Final = Meter()
"""The meter of constants, which cost nothing."""


def render(template: Template, scope: Scope) -> JSON:
    """Renders ``template`` to new plain JSON, never rendered again.

    Raises:
        ExpressionError: An expression cannot be evaluated, or rendering exceeds one of ``scope.limits``.
        ReferenceNeeded: A value that it reads must be loaded first.
        OverBudget: The evaluation costs more than is left of ``scope.budget``.
    """
    return template.build(scope, _FREE if template.is_constant else Meter(scope.limits, scope.budget))


def render_each(templates: Mapping[str, Template], scope: Scope) -> dict[str, JSON]:
    """The value of each template. Raises like :func:`render`, with all that must be loaded first."""
    if not templates:
        return {}
    remaining = iter(templates.items())
    try:
        return {key: render(template, scope) for key, template in remaining}
    except ValueNeeded as needed:
        add_needed(needed, map(render, (template for _, template in remaining), repeat(scope)))
        raise


def render_number(template: Template, scope: Scope) -> JSON:
    """Renders a number: text that is a number (``'1'``, a header's value) becomes that number, and any other value is
    returned as it is. Raises like :func:`render`.
    """
    value = render(template, scope)
    written = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if written is None:
        return value
    return float(written[0]) if written[1] else int(written[0])


def holds(guard: Guard, scope: Scope) -> bool:
    """Whether ``guard`` is true: its value is not false, null, absent, zero or empty.

    Raises:
        ExpressionError: The expression cannot be evaluated, or its value is text.
        ReferenceNeeded: A value that it reads must be loaded first.
        OverBudget: The evaluation costs more than is left of ``scope.budget``.
    """
    return guard.expression.truth(scope, Meter(scope.limits, scope.budget))


def value_at(path: tuple[str, ...], scope: Scope) -> JSON | NoValue:
    """The plain value of ``path``, whose first part is a namespace.

    Raises:
        ReferenceNeeded: The value is in a result that must be loaded first.
        OverBudget: The value costs more than is left of ``scope.budget``.
    """
    meter = Meter(DEFAULT_LIMITS, scope.budget)
    try:
        value = make_read(path[0], path[1:], tolerant=True)(scope, meter)
        return NoValue() if value is ABSENT or isinstance(value, Undefined) else plain(value, scope.references, meter)
    except (EvaluationFailure, PayloadRefused):
        return NoValue()
