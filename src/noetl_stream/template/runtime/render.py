"""Renders a compiled template, evaluates a guard, and looks up a single path, in a scope."""

from __future__ import annotations

from jinja2 import Undefined

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.template.compile.compiler import Guard, Template
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.access import plain
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.reads import make_read
from noetl_stream.template.runtime.scope import ABSENT, JSON, Scope


class NoValue:
    """The value of a path that is absent or undefined."""


def render(template: Template, scope: Scope) -> JSON:
    """The value of ``template`` as new plain JSON, never rendered again.

    Raises:
        ExpressionError: An expression cannot be evaluated, or rendering exceeds one of ``scope.limits``.
        ReferenceNeeded: A value that it reads must be loaded first.
    """
    return template.build(scope, Meter(scope.limits))


def holds(guard: Guard, scope: Scope) -> bool:
    """Whether ``guard`` is true: its value is not false, null, absent, zero or empty.

    Raises:
        ExpressionError: It cannot be evaluated, or its value is text.
        ReferenceNeeded: A value that it reads must be loaded first.
    """
    return guard.expression.truth(scope, Meter(scope.limits))


def value_at(path: tuple[str, ...], scope: Scope) -> JSON | NoValue:
    """The plain value of ``path``, whose first part is a namespace.

    Raises:
        ReferenceNeeded: It is in a result that must be loaded first.
    """
    meter = Meter(DEFAULT_LIMITS)
    try:
        found = make_read(path[0], path[1:], tolerant=True)(scope, meter)
        return NoValue() if found is ABSENT or isinstance(found, Undefined) else plain(found, scope.references, meter)
    except EvaluationFailure:
        return NoValue()
