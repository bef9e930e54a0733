"""The certain values of guards before any execution: true, false, or neither.

A guard is evaluated with the certain values; a guard that reads another value is unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from jinja2 import nodes

from noetl_stream.model.outcome import Payload, Reference
from noetl_stream.template import ABSENT, Budget, ExpressionError, Guard, OverBudget, ReferenceNeeded, Scope, holds
from noetl_stream.template.compile.evaluators import ENVIRONMENT
from noetl_stream.template.compile.parsing import TextError, parse, single_expression
from noetl_stream.template.runtime.scope import LazyResult, OutcomeEnvelope

UNKNOWN: Final = LazyResult(Payload(reference=Reference("", "unknown", 0)))
"""An unknown value: reading it raises :class:`ReferenceNeeded`."""

_SPENT_PER_GUARD: Final = 10_000
_OPPOSITES: Final = {
    "eq": "ne",
    "ne": "eq",
    "lt": "gteq",
    "gteq": "lt",
    "gt": "lteq",
    "lteq": "gt",
    "in": "notin",
    "notin": "in",
}


class Partial(dict[str, Any]):
    """A partly known namespace: other keys are :data:`UNKNOWN`, except those known to be undefined."""

    def __init__(self, known: Mapping[str, Any], undefined: Collection[str] = ()) -> None:
        super().__init__(known)
        self._undefined = undefined

    def __missing__(self, key: str) -> Any:
        if key in self._undefined:
            raise KeyError(key)
        return UNKNOWN


class Asked(NamedTuple):
    """A guard as the text of its syntax tree, with the texts of guards that hold exactly when it does not.

    The opposite of ``a`` is ``not a``, of ``a < b`` also ``a >= b``: two guards are opposite if the text of one is an
    opposite of the other.
    """

    tree: str
    opposite: frozenset[str] = frozenset()


class Opposites:
    """The opposites of guards. Each text is parsed once."""

    def __init__(self) -> None:
        self._known: dict[str, Asked] = {}

    def parse(self, guard: Guard | None) -> Asked:
        """The opposites of ``guard``; an omitted one has none."""
        if guard is None:
            return Asked("")
        if guard.source not in self._known:
            self._known[guard.source] = _parse_guard(guard.source)
        return self._known[guard.source]


class Facts(msgspec.Struct, frozen=True):
    """The facts that are certain where guards are evaluated.

    Attributes:
        unset: Keys of ``ctx`` that no rule can have set.
        unrun: Steps that cannot have run.
        asked: The opposites of guards.
    """

    unset: frozenset[str] = frozenset()
    unrun: frozenset[str] = frozenset()
    asked: Opposites = msgspec.field(default_factory=Opposites)

    def value(self, guard: Guard | None, **namespaces: Mapping[str, Any]) -> bool | None:
        """The guard's value in all runs; ``None`` if it varies. An omitted guard is true.

        Args:
            namespaces: ``event`` or ``token``, where the guard can read it.
        """
        if guard is None:
            return True
        if any(key is None and name not in namespaces for name, key in guard.reads):
            return None  # a namespace as a whole, or by a computed key
        known: dict[str, Any] = {name: UNKNOWN for name, _ in guard.reads}
        known["ctx"] = Partial({}, self.unset)
        known["steps"] = Partial(dict.fromkeys(self.unrun.intersection(guard.steps), ABSENT))
        try:
            return holds(guard, Scope(known | namespaces, budget=Budget(_SPENT_PER_GUARD)))
        except (ReferenceNeeded, ExpressionError, OverBudget):
            return None


def ended_event(name: str, step: str) -> Mapping[str, Any]:
    """The known part of the namespace ``event`` after the end of ``step``, by the event's name."""
    failed = name == "step.failed"
    return OutcomeEnvelope(
        name=name,
        step=step,
        status="error" if failed else "success",
        result=ABSENT if failed else UNKNOWN,
        error=UNKNOWN if failed else ABSENT,
        loop=UNKNOWN,
    )


def _parse_guard(source: str) -> Asked:
    try:
        expression = single_expression(parse(ENVIRONMENT, source))
    except TextError:
        expression = None
    if expression is None:
        return Asked("")
    inner = expression.node if isinstance(expression, nodes.Not) else None
    found = (nodes.Not(expression), inner, _opposite_of(expression))
    return Asked(repr(expression), frozenset(repr(one) for one in found if one is not None))


def _opposite_of(expression: nodes.Expr) -> nodes.Expr | None:
    """The comparison that holds when this one does not; ``None`` for any other expression."""
    if not isinstance(expression, nodes.Compare) or len(expression.ops) != 1:
        return None
    [operand] = expression.ops
    return nodes.Compare(expression.expr, [nodes.Operand(_OPPOSITES[operand.op], operand.expr)])
