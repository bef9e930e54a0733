"""Rendering: a compiled template or guard and a scope in, plain JSON or a decision out."""

from __future__ import annotations

from noetl_stream.template.compile.compiler import Guard, Template
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import JSON, Scope


def render(template: Template, scope: Scope) -> JSON:
    """The value of ``template``, as a copy in plain JSON values. What comes out is never rendered again.

    Raises:
        ExpressionError: if an expression in it cannot be evaluated, or all together exceed one of ``scope.limits``.
        ReferenceNeeded: if a value that it reads must be loaded first.
    """
    return template.build(scope, Meter(scope.limits))


def holds(guard: Guard, scope: Scope) -> bool:
    """Whether ``guard`` holds: its value is neither false, null, absent, zero nor empty.

    Raises:
        ExpressionError: if it cannot be evaluated, or gives text.
        ReferenceNeeded: if a value that it reads must be loaded first.
    """
    return guard.expression.truth(scope, Meter(scope.limits))
