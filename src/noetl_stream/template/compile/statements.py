"""Binds the statements of a template (``{% for %}``, ``{% set %}``, …) and tracks the names that they assign."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from jinja2 import nodes

from noetl_stream.template.compile.expressions import ExpressionBinder, constant, operation
from noetl_stream.template.compile.parsing import Findings
from noetl_stream.template.runtime.environment import CHARGE, CONTAINS, ITERATE
from noetl_stream.template.runtime.scope import NAMESPACES

_STATEMENT_NAMES: Final[dict[type[nodes.Node], str]] = {
    nodes.FromImport: "from",
    nodes.ScopedEvalContextModifier: "autoescape",
}
"""The names of statements that differ from the name of their node."""

NODES_PER_OPERATION: Final = 4
"""The number of nodes of a body that count as one operation. Filters, calls and loops in it count themselves."""


class StatementBinder:
    """Rewrites the statements of one text.

    Args:
        expressions: Binds the expressions in them.
        findings: Receives the problems.
        only_output: Whether ``{% %}`` is an error (LANGUAGE §2: the server evaluates expressions only).
    """

    def __init__(self, expressions: ExpressionBinder, findings: Findings, *, only_output: bool) -> None:
        self._expressions: Final = expressions
        self._findings: Final = findings
        self._only_output: Final = only_output
        self._depth = 0

    def body(self, statements: Sequence[nodes.Node]) -> None:
        """Binds a sequence of statements, in order."""
        self._depth += 1
        if self._depth > self._expressions.max_depth:
            self._expressions.too_deep(statements[0])
        else:
            for statement in statements:
                self._statement(statement)
        self._depth -= 1

    def _statement(self, node: Any) -> None:
        if isinstance(node, nodes.Scope):
            (node,) = node.body  # `autoescape`, the only statement Jinja wraps
        bind: Callable[[Any], Any] = self._expressions.expression
        if isinstance(node, nodes.Output):
            node.nodes = [child if isinstance(child, nodes.TemplateData) else bind(child) for child in node.nodes]
            return
        if self._only_output:
            self._refuse("`{% %}` is not allowed here", node, "use `{{ expressions }}` only: the server renders this")
            return
        match node:
            case nodes.For():
                self._for(node)
            case nodes.If():
                self._if(node)
            case nodes.Assign():
                node.node = bind(node.node)
                self._assign(node.target)
            case nodes.AssignBlock():
                node.filter = None if node.filter is None else bind(node.filter)
                with self._inner():
                    self.body(node.body)
                self._assign(node.target)
            case nodes.Macro():
                self._declare(node.name, node)
                self._callable(node, {"caller", "varargs", "kwargs"})
            case nodes.CallBlock():
                self._call_block(node)
            case nodes.FilterBlock():
                node.filter = bind(node.filter)
                with self._inner():
                    self.body(node.body)
            case nodes.With():
                node.values = [bind(value) for value in node.values]
                with self._inner():
                    for target in node.targets:
                        self._assign(target)
                    self.body(node.body)
            case _:
                name = _STATEMENT_NAMES.get(type(node), type(node).__name__.lower())
                self._refuse(f"statement `{name}` is not allowed", node, "templates cannot use other templates")

    def _refuse(self, message: str, node: nodes.Node, hint: str) -> None:
        self._findings.add("statement_not_allowed", message, node.lineno, hint)

    def _for(self, node: Any) -> None:
        chars, cost = static_cost([*node.body, *([node.test] if node.test else [])])
        bound = self._expressions.expression(node.iter)
        node.iter = operation(ITERATE, bound, node, constant(chars, node), constant(cost, node))
        with self._inner():
            self._assign(node.target)
            node.test = None if node.test is None else self._expressions.expression(node.test)
            self._expressions.names_in_text.add("loop")
            self.body(node.body)
        if node.recursive:
            # The arguments of its recursive calls are not known here.
            node.body = [_charge(chars, cost, node), *node.body]
        with self._inner():
            self.body(node.else_)

    def _if(self, node: Any) -> None:
        names = self._expressions.names_in_text
        before, after = set(names), set(names)
        for branch in (node, *node.elif_):
            branch.test = self._expressions.expression(branch.test)
        for body in (node.body, *(branch.body for branch in node.elif_), node.else_):
            self._expressions.names_in_text = set(before)
            self.body(body)
            after |= self._expressions.names_in_text
        self._expressions.names_in_text = after

    def _call_block(self, node: Any) -> None:
        call = self._expressions.expression(node.call)
        if isinstance(call, nodes.Call):
            node.call = call
        else:
            self._findings.add("template_syntax", "`{% call %}` needs a macro", node.lineno)
        self._callable(node, set())

    def _callable(self, node: Any, given: set[str]) -> None:
        chars, cost = static_cost(node.body)
        with self._inner():
            parameters: set[str] = set()
            for arg in node.args:
                if arg.name in parameters:
                    self._refuse(f"duplicate parameter `{arg.name}`", arg, "use another name")
                parameters.add(arg.name)
                self._assign(arg)
            self._expressions.names_in_text |= given
            node.defaults = [self._expressions.expression(default) for default in node.defaults]
            self.body(node.body)
        node.body = [_charge(chars, cost, node), *node.body]

    def _assign(self, target: nodes.Node) -> None:
        if isinstance(target, nodes.Tuple | nodes.List):
            for item in target.items:
                self._assign(item)
        elif isinstance(target, nodes.Name):
            self._declare(target.name, target)
        elif isinstance(target, nodes.NSRef) and target.name not in self._expressions.names_in_text:
            self._refuse(f"cannot assign to `{target.name}.{target.attr}`", target, "values are read-only")

    def _declare(self, name: str, at: nodes.Node) -> None:
        if name in NAMESPACES:
            self._refuse(f"cannot assign to the namespace `{name}`", at, "use another name")
        self._expressions.names_in_text.add(name)

    @contextmanager
    def _inner(self) -> Iterator[None]:
        outer = self._expressions.names_in_text
        self._expressions.names_in_text = set(outer)
        try:
            yield
        finally:
            self._expressions.names_in_text = outer


def static_cost(statements: Sequence[nodes.Node]) -> tuple[int, int]:
    """The cost of running these statements once: characters of their own text, and operations."""
    pending, chars, count = list(statements), 0, 0
    while pending:
        node = pending.pop()
        # `in` costs as much as it did as a comparison, which had a node more: budgets decide what is parked.
        count += 2 if isinstance(node, nodes.Filter) and node.name == CONTAINS else 1
        if isinstance(node, nodes.TemplateData):
            chars += len(node.data)
        pending.extend(node.iter_child_nodes())
    return chars, 1 + count // NODES_PER_OPERATION


def _charge(chars: int, cost: int, at: nodes.Node) -> nodes.ExprStmt:
    return nodes.ExprStmt(operation(CHARGE, constant(chars, at), at, constant(cost, at)), lineno=at.lineno)
