"""What a path of a template stands for in a scope, for people who ask why a guard does not hold."""

from __future__ import annotations

from jinja2 import Undefined

from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.template.failures import EvaluationFailure
from noetl_stream.template.runtime.access import plain
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.reads import make_read
from noetl_stream.template.runtime.scope import ABSENT, JSON, Scope


class NotThere:
    """Stands for a path whose value is absent or undefined."""


def value_at(path: tuple[str, ...], scope: Scope) -> JSON | NotThere:
    """The plain value of ``path``, whose first part is a namespace.

    Raises:
        ReferenceNeeded: it stands in a result that must be loaded first.
    """
    meter = Meter(DEFAULT_LIMITS)
    try:
        found = make_read(path[0], path[1:], tolerant=True)(scope, meter)
        return NotThere() if found is ABSENT or isinstance(found, Undefined) else plain(found, scope.references, meter)
    except EvaluationFailure:
        return NotThere()
