"""Evaluates any bound tree as code compiled by Jinja, run in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from jinja2 import Template, nodes

from noetl_stream.template.compile.statements import static_cost
from noetl_stream.template.filters.base import METER, SCOPE
from noetl_stream.template.runtime.environment import FUNCTIONS, READS, TemplateEnvironment
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.reads import Read
from noetl_stream.template.runtime.scope import Scope

Evaluate: TypeAlias = Callable[[Scope, Meter], Any]
"""The value of an expression, or the text of a template, in a scope."""

ENVIRONMENT: Final = TemplateEnvironment()
"""The only environment, never changed after import."""

_RESULT: Final = "result"


def sandboxed_expression(node: nodes.Expr, reads: Sequence[Read]) -> Evaluate:
    """Evaluates ``node`` to its native value.

    Raises:
        SyntaxError: Python cannot compile it because it is nested too deeply.
    """
    assign = nodes.Assign(nodes.Name(_RESULT, "store", lineno=1), node, lineno=1)
    template = _compiled([assign])
    variables = {**FUNCTIONS, READS: tuple(reads)}

    def evaluate(scope: Scope, meter: Meter) -> Any:
        context = ENVIRONMENT.context_class(ENVIRONMENT, {**variables, SCOPE: scope, METER: meter}, None, {})
        for _ in template.root_render_func(context):
            pass
        return context.vars[_RESULT]

    return evaluate


def sandboxed_text(tree: nodes.Template, reads: Sequence[Read]) -> Evaluate:
    """Evaluates ``tree`` to its text.

    Raises:
        SyntaxError: Python cannot compile it because it is nested too deeply.
    """
    chars, _ = static_cost(tree.body)
    template = _compiled(tree.body)
    variables = {**FUNCTIONS, READS: tuple(reads)}

    def evaluate(scope: Scope, meter: Meter) -> Any:
        meter.write(chars)
        context = ENVIRONMENT.context_class(ENVIRONMENT, {**variables, SCOPE: scope, METER: meter}, None, {})
        return "".join(template.root_render_func(context))

    return evaluate


def _compiled(body: list[nodes.Node]) -> Template:
    tree = nodes.Template(body, lineno=1)
    tree.set_environment(ENVIRONMENT)
    try:
        code = ENVIRONMENT.compile(tree)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError(str(error)) from None
    return Template.from_code(ENVIRONMENT, code, {})
