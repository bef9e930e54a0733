"""Evaluates simple bound expressions, such as guards, as Python closures (HOT_PATH §5 *Cheap state*).

Values and errors are the same as those of :mod:`.sandboxed`, which a test with random expressions verifies. Expressions
that :func:`_closure` does not cover go to the sandbox.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from jinja2 import nodes

from noetl_stream.template.compile.sandboxed import Evaluate
from noetl_stream.template.filters.tests import is_defined, is_none
from noetl_stream.template.filters.values import TOLERANT_FILTERS, or_default
from noetl_stream.template.runtime import operators
from noetl_stream.template.runtime.access import require, text_of
from noetl_stream.template.runtime.environment import MISSING, NO_ELSE, READ, REQUIRE, SEARCH, WEIGH
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.reads import Read
from noetl_stream.template.runtime.scope import Scope

_COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda element, container: element in container,
    "notin": lambda element, container: element not in container,
}
_TESTS: Final[dict[str, Callable[[Any], bool]]] = {
    "defined": is_defined,
    "undefined": lambda value: not is_defined(value),
    "none": is_none,
}


class NotSimple(Exception):
    """The expression needs the sandbox."""


def direct_expression(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    """Evaluates ``node`` to its native value.

    Raises:
        NotSimple: The expression needs the sandbox.
    """
    return _closure(node, reads)


def direct_text(tree: nodes.Template, reads: Sequence[Read]) -> Evaluate:
    """Evaluates a text with simple expressions.

    Raises:
        NotSimple: The expression needs the sandbox.
    """
    pieces: list[Evaluate] = []
    for statement in tree.body:
        if not isinstance(statement, nodes.Output):
            raise NotSimple
        pieces += [_piece(node, reads) for node in statement.nodes]
    return lambda scope, meter: "".join([piece(scope, meter) for piece in pieces])


def _piece(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    if isinstance(node, nodes.TemplateData):
        text = node.data

        def static(scope: Scope, meter: Meter) -> str:
            meter.write(len(text))
            return text

        return static
    value = _closure(node, reads)
    return lambda scope, meter: text_of(value(scope, meter), scope.references, meter)


def _closure(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    match node:
        case nodes.Const(value=constant):
            return lambda scope, meter: constant
        case nodes.Filter():
            return _filter(node, reads)
        case nodes.Test():
            return _test(node, reads)
        case nodes.Compare():
            return _compare(node, reads)
        case nodes.And(left=left, right=right):
            return _and(_closure(left, reads), _closure(right, reads))
        case nodes.Or(left=left, right=right):
            return _or(_closure(left, reads), _closure(right, reads))
        case nodes.Not(node=negated):
            value = _closure(negated, reads)
            return lambda scope, meter: not value(scope, meter)
        case nodes.Add(left=left, right=right):
            return _add(_closure(left, reads), _closure(right, reads))
        case nodes.List(items=items):
            return _list(items, reads)
        case nodes.Dict(items=items):
            return _dict(items, reads)
        case nodes.CondExpr(test=test, expr1=first, expr2=nodes.Expr() as second):
            return _conditional(_closure(test, reads), _closure(first, reads), _closure(second, reads))
    raise NotSimple


def _filter(node: nodes.Filter, reads: Sequence[Read]) -> Evaluate:
    if node.kwargs or node.dyn_args or node.dyn_kwargs or node.node is None:
        raise NotSimple
    if node.name == READ:
        return _read(node, reads)
    if node.name == MISSING:
        return lambda scope, meter: NO_ELSE
    value = _closure(node.node, reads)
    if node.name == REQUIRE:
        return lambda scope, meter: require(value(scope, meter))
    if node.name == WEIGH:
        return lambda scope, meter: meter.weigh(value(scope, meter))
    if node.name == SEARCH:
        return lambda scope, meter: meter.search(value(scope, meter))
    if node.name in TOLERANT_FILTERS and len(node.args) <= 2:
        given = [_closure(arg, reads) for arg in node.args]
        return lambda scope, meter: or_default(value(scope, meter), *[arg(scope, meter) for arg in given])
    raise NotSimple


def _read(node: nodes.Filter, reads: Sequence[Read]) -> Evaluate:
    read = reads[node.node.value]  # type: ignore[union-attr]
    keys = [_closure(key, reads) for key in node.args]
    if not keys:
        return read
    return lambda scope, meter: read(scope, meter, *[key(scope, meter) for key in keys])


def _test(node: nodes.Test, reads: Sequence[Read]) -> Evaluate:
    test = _TESTS.get(node.name)
    if test is None or node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise NotSimple
    value, chosen = _closure(node.node, reads), test
    return lambda scope, meter: chosen(value(scope, meter))


def _compare(node: nodes.Compare, reads: Sequence[Read]) -> Evaluate:
    if len(node.ops) != 1:
        raise NotSimple
    operand = node.ops[0]
    left = _closure(node.expr, reads)
    if isinstance(operand.expr, nodes.Const) and operand.op == "eq":
        literal = operand.expr.value
        return lambda scope, meter: left(scope, meter) == literal
    compare, right = _COMPARISONS[operand.op], _closure(operand.expr, reads)
    return lambda scope, meter: compare(left(scope, meter), right(scope, meter))


def _and(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope, meter: left(scope, meter) and right(scope, meter)


def _or(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope, meter: left(scope, meter) or right(scope, meter)


def _add(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda scope, meter: operators.add(meter, left(scope, meter), right(scope, meter))


def _list(items: Sequence[nodes.Expr], reads: Sequence[Read]) -> Evaluate:
    if all(isinstance(item, nodes.Const) for item in items):
        constants = [item.value for item in items if isinstance(item, nodes.Const)]
        return lambda scope, meter: constants
    elements = [_closure(item, reads) for item in items]
    return lambda scope, meter: [element(scope, meter) for element in elements]


def _dict(items: Sequence[nodes.Pair], reads: Sequence[Read]) -> Evaluate:
    pairs = [(_closure(pair.key, reads), _closure(pair.value, reads)) for pair in items]
    return lambda scope, meter: {key(scope, meter): value(scope, meter) for key, value in pairs}


def _conditional(test: Evaluate, first: Evaluate, second: Evaluate) -> Evaluate:
    return lambda scope, meter: first(scope, meter) if test(scope, meter) else second(scope, meter)
