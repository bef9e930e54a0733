"""Evaluates bound trees: simple expressions, such as guards, as Python closures (HOT_PATH §5 *Cheap state*), any other
tree as code compiled by Jinja, run in the sandbox.

Both have the same values and errors, which a test with random expressions verifies.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from jinja2 import Template, nodes

from noetl_stream.template.compile.parsing import single_expression
from noetl_stream.template.compile.statements import static_cost
from noetl_stream.template.filters.base import METER, SCOPE
from noetl_stream.template.filters.values import TESTS, TOLERANT_FILTERS, TOLERANT_TESTS, or_default
from noetl_stream.template.runtime import environment, operators
from noetl_stream.template.runtime.attribute_access import Read, require, text_of
from noetl_stream.template.runtime.evaluation import Evaluate, values_of
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import Scope

ENVIRONMENT: Final = environment.TemplateEnvironment()
"""The only Jinja environment, never changed after import."""

_RESULT: Final = "result"

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
_UNCOUNTED_TESTS: Final = frozenset({*TOLERANT_TESTS, "none"})


class NotSimple(Exception):
    """Raised for an expression that needs the sandbox."""


def make_evaluator(tree: nodes.Template, reads: Sequence[Read], *, native: bool) -> Evaluate:
    """Makes the function that evaluates ``tree`` to its text, or, if ``native``, its only expression to its value.

    Raises:
        SyntaxError: Python cannot compile it because it is nested too deeply.
    """
    only = single_expression(tree) if native else None
    try:
        return direct_text(tree, reads) if only is None else direct_expression(only, reads)
    except NotSimple:
        return sandboxed_text(tree, reads) if only is None else sandboxed_expression(only, reads)


def direct_expression(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    """Makes the function that evaluates ``node`` to its native value.

    Raises:
        NotSimple: The expression needs the sandbox.
    """
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
            first, second = direct_expression(left, reads), direct_expression(right, reads)
            return lambda scope, meter: first(scope, meter) and second(scope, meter)
        case nodes.Or(left=left, right=right):
            first, second = direct_expression(left, reads), direct_expression(right, reads)
            return lambda scope, meter: first(scope, meter) or second(scope, meter)
        case nodes.Add(left=left, right=right):
            both = direct_expression(left, reads), direct_expression(right, reads)
            return lambda scope, meter: operators.add(meter, *values_of(both, scope, meter))
        case nodes.Not(node=negated):
            value = direct_expression(negated, reads)
            return lambda scope, meter: not value(scope, meter)
        case nodes.List(items=items):
            return _list(items, reads)
        case nodes.Dict(items=items):
            pairs = [direct_expression(part, reads) for pair in items for part in (pair.key, pair.value)]
            return lambda scope, meter: _paired(values_of(pairs, scope, meter))
        case nodes.CondExpr(test=test, expr1=left, expr2=nodes.Expr() as right):
            chosen = direct_expression(test, reads)
            first, second = direct_expression(left, reads), direct_expression(right, reads)
            return lambda scope, meter: first(scope, meter) if chosen(scope, meter) else second(scope, meter)
    raise NotSimple


def direct_text(tree: nodes.Template, reads: Sequence[Read]) -> Evaluate:
    """Makes the function that evaluates a text with simple expressions.

    Raises:
        NotSimple: The expression needs the sandbox.
    """
    pieces: list[Evaluate] = []
    for statement in tree.body:
        if not isinstance(statement, nodes.Output):
            raise NotSimple
        pieces += [_piece(node, reads) for node in statement.nodes]
    return lambda scope, meter: "".join(values_of(pieces, scope, meter))


def _piece(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    if isinstance(node, nodes.TemplateData):
        text = node.data

        def static(scope: Scope, meter: Meter) -> str:
            meter.write(len(text))
            return text

        return static
    value = direct_expression(node, reads)
    return lambda scope, meter: text_of(value(scope, meter), scope.references, meter)


def _filter(node: nodes.Filter, reads: Sequence[Read]) -> Evaluate:
    if node.kwargs or node.dyn_args or node.dyn_kwargs or node.node is None:
        raise NotSimple
    if node.name == environment.READ:
        return _read(node, reads)
    if node.name == environment.MISSING:
        return lambda scope, meter: environment.NO_ELSE
    value = direct_expression(node.node, reads)
    if node.name == environment.REQUIRE:
        return lambda scope, meter: require(value(scope, meter))
    if node.name == environment.WEIGH:
        return lambda scope, meter: meter.weigh(value(scope, meter))
    if node.name == environment.SEARCH:
        return lambda scope, meter: meter.search(value(scope, meter))
    if node.name == environment.CONTAINS:
        container, wanted = [direct_expression(arg, reads) for arg in node.args]
        parts = value, container, wanted
        return lambda scope, meter: operators.contains(meter, *[part(scope, meter) for part in parts])
    if node.name in TOLERANT_FILTERS and len(node.args) <= 2:
        given = [direct_expression(arg, reads) for arg in node.args]
        return lambda scope, meter: or_default(value(scope, meter), *[arg(scope, meter) for arg in given])
    raise NotSimple


def _read(node: nodes.Filter, reads: Sequence[Read]) -> Evaluate:
    read = reads[node.node.value]  # type: ignore[union-attr]
    keys = [direct_expression(key, reads) for key in node.args]
    if not keys:
        return read
    return lambda scope, meter: read(scope, meter, *[key(scope, meter) for key in keys])


def _test(node: nodes.Test, reads: Sequence[Read]) -> Evaluate:
    if node.name not in _UNCOUNTED_TESTS or node.args or node.kwargs or node.dyn_args or node.dyn_kwargs:
        raise NotSimple
    value, test = direct_expression(node.node, reads), TESTS[node.name]
    return lambda scope, meter: test(value(scope, meter))


def _compare(node: nodes.Compare, reads: Sequence[Read]) -> Evaluate:
    if len(node.ops) != 1:
        raise NotSimple
    operand = node.ops[0]
    left = direct_expression(node.expr, reads)
    if isinstance(operand.expr, nodes.Const) and operand.op == "eq":
        literal = operand.expr.value
        return lambda scope, meter: left(scope, meter) == literal
    compare, right = _COMPARISONS[operand.op], direct_expression(operand.expr, reads)
    return lambda scope, meter: compare(left(scope, meter), right(scope, meter))


def _list(items: Sequence[nodes.Expr], reads: Sequence[Read]) -> Evaluate:
    if all(isinstance(item, nodes.Const) for item in items):
        constants = [item.value for item in items if isinstance(item, nodes.Const)]
        return lambda scope, meter: constants
    elements = [direct_expression(item, reads) for item in items]
    return lambda scope, meter: values_of(elements, scope, meter)


def _paired(values: Sequence[Any]) -> dict[Any, Any]:
    """The dictionary of keys and values in turn."""
    return dict(zip(values[::2], values[1::2], strict=True))


def sandboxed_expression(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    """Makes the function that evaluates ``node`` in the sandbox to its native value.

    Raises:
        SyntaxError: Python cannot compile it because it is nested too deeply.
    """
    assign = nodes.Assign(nodes.Name(_RESULT, "store", lineno=1), node, lineno=1)
    template = _compile([assign])
    variables = {**environment.FUNCTIONS, environment.READS: tuple(reads)}

    def evaluate(scope: Scope, meter: Meter) -> Any:
        context = ENVIRONMENT.context_class(ENVIRONMENT, {**variables, SCOPE: scope, METER: meter}, None, {})
        for _ in template.root_render_func(context):
            pass
        return context.vars[_RESULT]

    return evaluate


def sandboxed_text(tree: nodes.Template, reads: Sequence[Read]) -> Evaluate:
    """Makes the function that evaluates ``tree`` in the sandbox to its text.

    Raises:
        SyntaxError: Python cannot compile it because it is nested too deeply.
    """
    chars, _ = static_cost(tree.body)
    template = _compile(tree.body)
    variables = {**environment.FUNCTIONS, environment.READS: tuple(reads)}

    def evaluate(scope: Scope, meter: Meter) -> Any:
        meter.write(chars)
        context = ENVIRONMENT.context_class(ENVIRONMENT, {**variables, SCOPE: scope, METER: meter}, None, {})
        return "".join(template.root_render_func(context))

    return evaluate


def _compile(body: list[nodes.Node]) -> Template:
    tree = nodes.Template(body, lineno=1)
    tree.set_environment(ENVIRONMENT)
    try:
        code = ENVIRONMENT.compile(tree)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from None
    return Template.from_code(ENVIRONMENT, code, {})
