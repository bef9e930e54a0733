"""Binds the names of a template: every name becomes a read of a namespace, or a problem (LANGUAGE §2).

The resulting tree has no free names, no attribute access on namespaces, and no calls except to listed functions, macros
and methods. Reads, methods and loops become filters of the environment (``@read``, …), so that each rule is implemented
once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final

from jinja2 import nodes

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template.compile.parsing import OTHER_FILTERS, OTHER_METHODS, Findings, Names
from noetl_stream.template.failures import FindingCode, closest, shorten
from noetl_stream.template.filters.times import LATER, TIME_FILTERS, call_problem
from noetl_stream.template.filters.values import (
    FILTERS,
    MAYBE_UNDEFINED_FILTERS,
    MORE_ROWS,
    TESTS,
    TOLERANT_FILTERS,
    TOLERANT_TESTS,
    head_error,
)
from noetl_stream.template.runtime import environment
from noetl_stream.template.runtime.attribute_access import COMPUTED, Read, make_read
from noetl_stream.template.runtime.evaluation import Comparison, Tested
from noetl_stream.template.runtime.operators import METHODS

LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
SURROGATE_MESSAGE: Final = "the text contains a lone surrogate, which JSON cannot hold"
_LOOKED_THROUGH: Final = ("default", "d", environment.REQUIRE)
_NAMES_A_TEST: Final = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}


class ExpressionBinder:
    """Binds the names in the expressions of one text and collects the paths that they read.

    Attributes:
        max_depth: The deepest nesting of expressions and statements.
        names_in_text: Names that the template itself has assigned at the current position.
        paths: The paths that are read, each from its namespace to the first key that is computed or not text.
        functions: The reads of the text, by their ``@read`` index.
        comparisons: Paths and the text literals that they are compared with.
        tested: Paths and the literals of any kind that they are compared with, even under a default; ``True`` if the
            truth of a path is tested.
    """

    def __init__(self, names: Names, findings: Findings, limits: Limits = DEFAULT_LIMITS) -> None:
        self._names: Final = names
        self._findings: Final = findings
        self._limits: Final = limits
        self.max_depth: Final = limits.max_template_depth
        self._read_paths: Final[list[tuple[Any, ...]]] = []
        self._depth = 0
        self._is_too_deep = False
        self.names_in_text: set[str] = set()
        self.paths: Final[set[tuple[str, ...]]] = set()
        self.functions: Final[list[Read]] = []
        self.comparisons: Final[list[Comparison]] = []
        self.tested: Final[list[Tested]] = []

    def expression(self, node: nodes.Expr, *, tolerant: bool = False) -> nodes.Expr:
        """Binds the names in ``node``.

        Args:
            node: Changed in place where possible.
            tolerant: Whether the expression may be undefined.
        """
        self._depth += 1
        try:
            if self._depth > self.max_depth:
                self.too_deep(node)
                return constant(None, node)
            return self._bind(node, tolerant)
        finally:
            self._depth -= 1

    def too_deep(self, node: nodes.Node) -> None:
        """Reports, once, that the template is nested too deeply."""
        if self._is_too_deep:
            return
        self._is_too_deep = True
        message = f"the template is nested deeper than limits.max_template_depth ({self.max_depth})"
        self._findings.add("template_syntax", message, node.lineno)

    def _bind(self, node: nodes.Expr, tolerant: bool) -> nodes.Expr:
        match node:
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                return self._chain(node, tolerant)
            case nodes.Filter():
                return self._filter(node, tolerant)
            case nodes.Test():
                return self._test(node)
            case nodes.Call():
                return self._call(node)
            case nodes.CondExpr():
                return self._conditional(node, tolerant)
            case nodes.Compare():
                return self._compare(node)
            case nodes.And() | nodes.Or() | nodes.Not():
                self._children(node)
                for tested in (node.node,) if isinstance(node, nodes.Not) else (node.left, node.right):
                    self.note_truth(tested)
                return node
            case nodes.Concat():
                self._children(node)
                return operation(environment.CONCAT, nodes.List(node.nodes, lineno=node.lineno), node)
            case nodes.Tuple():
                self._children(node)
                return nodes.List(node.items, lineno=node.lineno)
            case nodes.Neg():
                return self._negative(node)
            case nodes.Const():
                return self._constant(node)
        self._children(node)
        return node

    def _negative(self, node: nodes.Neg) -> nodes.Expr:
        node.node = self.expression(node.node)
        value: Any = node.node.value if isinstance(node.node, nodes.Const) else None
        return constant(-value, node) if type(value) in (int, float) else node

    def _constant(self, node: nodes.Const) -> nodes.Const:
        value, most = node.value, self._limits.max_template_number_bits
        if isinstance(value, str) and LONE_SURROGATE.search(value):
            self._findings.add("template_syntax", SURROGATE_MESSAGE, node.lineno)
        elif isinstance(value, int) and value.bit_length() > most:
            message = f"the number is larger than limits.max_template_number_bits ({most:,})"
            self._findings.add("template_syntax", message, node.lineno)
        return node

    def _children(self, node: nodes.Node) -> None:
        for field, value in list(node.iter_fields()):
            if isinstance(value, list):
                setattr(node, field, [self._child(element) for element in value])
            else:
                setattr(node, field, self._child(value))

    def _child(self, value: Any) -> Any:
        if isinstance(value, nodes.Expr):
            return self.expression(value)
        if isinstance(value, nodes.Helper):
            self._children(value)
        return value

    def _chain(self, node: nodes.Expr, tolerant: bool) -> nodes.Expr:
        links: list[nodes.Getattr | nodes.Getitem] = []
        root = node
        while isinstance(root, nodes.Getattr | nodes.Getitem) and not _is_slice(root):
            links.append(root)
            root = root.node
        links.reverse()
        if isinstance(root, nodes.Name) and root.name not in self.names_in_text:
            return self._read(root, links, tolerant)
        if not isinstance(root, nodes.Name):
            root = self._cut(root) if _is_slice(root) else self.expression(root, tolerant=True)
        bound = root
        for link in links:
            link.node = bound
            if isinstance(link, nodes.Getitem):
                link.arg = self.expression(link.arg)
            bound = link
        may_be_undefined = links or isinstance(root, nodes.Name)
        return operation(environment.REQUIRE, bound, node) if may_be_undefined and not tolerant else bound

    def _cut(self, node: Any) -> nodes.Expr:
        bounds = node.arg
        given = [bounds.start, bounds.stop, bounds.step]
        nothing = constant(None, node)
        args = [nothing if bound is None else self.expression(bound) for bound in given]
        return operation(environment.CUT, self.expression(node.node), node, *args)

    def _read(self, root: nodes.Name, links: list[nodes.Getattr | nodes.Getitem], tolerant: bool) -> nodes.Expr:
        parts: list[Any] = []
        keys: list[nodes.Expr] = []
        for link in links:
            if isinstance(link, nodes.Getattr):
                parts.append(link.attr)
                continue
            key = self.expression(link.arg)
            if isinstance(key, nodes.Const):
                parts.append(key.value)
            else:
                parts.append(COMPUTED)
                keys.append(key)
        bound = self._names.resolve(root, self._findings)
        if bound is None:
            return constant(None, root)
        path = (*bound, *parts)
        self.paths.add(tuple(takewhile(lambda part: isinstance(part, str), path)))
        self.functions.append(make_read(path[0], path[1:], tolerant=tolerant))
        self._read_paths.append(path)
        return operation(environment.READ, constant(len(self._read_paths) - 1, root), root, *keys)

    def _call(self, node: nodes.Call) -> nodes.Expr:
        callee = node.node
        if isinstance(callee, nodes.Getattr):
            return self._method(node, callee)
        node.node = constant(None, node)
        self._children(node)
        self._count_spread(node)
        node.node = callee
        if not isinstance(callee, nodes.Name):
            self._findings.add("template_syntax", "only functions, macros and methods can be called", node.lineno)
        elif callee.name not in self.names_in_text and callee.name not in self._names.functions:
            self._names.report_unknown_function(callee, self._findings)
        return node

    def _method(self, node: nodes.Call, callee: nodes.Getattr) -> nodes.Expr:
        if callee.attr not in METHODS:
            close = None if self._findings.full else closest(callee.attr, sorted(METHODS))
            hint = f"did you mean `{close}`?" if close else "keys of a mapping cannot be called"
            hint = OTHER_METHODS.get(callee.attr, hint)
            self._findings.add("template_syntax", f"unknown method `{shorten(callee.attr)}`", callee.lineno, hint)
        called = operation(environment.METHOD, callee.node, callee, constant(callee.attr, callee), *node.args)
        # Jinja's parser fills both with keywords, despite their annotations.
        called.kwargs = node.kwargs  # type: ignore[assignment]
        called.dyn_args, called.dyn_kwargs = node.dyn_args, node.dyn_kwargs
        self._children(called)
        self._count_spread(called)
        return called

    def _count_spread(self, node: nodes.Call | nodes.Filter | nodes.Test) -> None:
        for field in ("dyn_args", "dyn_kwargs"):
            value = getattr(node, field)
            if value is not None:
                setattr(node, field, operation(environment.SPREAD, value, value))

    def _filter(self, node: nodes.Filter, tolerant: bool) -> nodes.Expr:
        self._check_filter(node)
        subject, args = node.node, node.args
        lenient = node.name in TOLERANT_FILTERS
        if subject is not None:
            node.node = self.expression(subject, tolerant=lenient)
        node.args = [self.expression(arg, tolerant=lenient) for arg in args]
        for keyword in node.kwargs:
            keyword.value = self.expression(keyword.value, tolerant=lenient)
        node.dyn_args, node.dyn_kwargs = self._child(node.dyn_args), self._child(node.dyn_kwargs)
        self._count_spread(node)
        if node.name in MAYBE_UNDEFINED_FILTERS and not tolerant:
            return operation(environment.REQUIRE, node, node)
        return node

    def _check_filter(self, node: nodes.Filter) -> None:
        if node.name not in FILTERS:
            self._unknown("unknown_filter", node.name, FILTERS, node)
        first = node.args[0] if node.args else None
        if node.name == "map" and isinstance(first, nodes.Const) and first.value not in FILTERS:
            self._unknown("unknown_filter", first.value, FILTERS, first)
        if node.name in TIME_FILTERS and node.dyn_args is None and node.dyn_kwargs is None:
            keywords = {str(keyword.key): _constant_or_later(keyword.value) for keyword in node.kwargs}
            problem = call_problem(node.name, [_constant_or_later(one) for one in node.args], keywords)
            if problem is not None:
                self._findings.add("template_syntax", problem[0], node.lineno, problem[1])
        rows = [*node.args, *(one.value for one in node.kwargs if one.key == "rows")] if node.name == "head" else ()
        if rows and isinstance(rows[0], nodes.Const) and (error := head_error(rows[0].value)):
            self._findings.add("template_syntax", error, node.lineno, MORE_ROWS)
        place = _NAMES_A_TEST.get(node.name)
        if place is not None and len(node.args) > place:
            named = node.args[place]
            if isinstance(named, nodes.Const) and named.value not in TESTS:
                self._unknown("unknown_test", named.value, TESTS, named)

    def _test(self, node: nodes.Test) -> nodes.Expr:
        if node.name not in TESTS:
            self._unknown("unknown_test", node.name, TESTS, node)
        subject, node.node = node.node, constant(None, node)
        self._children(node)
        self._count_spread(node)
        node.node = self.expression(subject, tolerant=node.name in TOLERANT_TESTS)
        return node

    def _unknown(self, code: FindingCode, name: Any, known: Mapping[str, Any], node: nodes.Node) -> None:
        close = None if self._findings.full else closest(str(name), known)
        hint = OTHER_FILTERS.get(str(name)) or (f"did you mean `{close}`?" if close else None)
        self._findings.add(code, f"{code.replace('_', ' ')} `{shorten(str(name))}`", node.lineno, hint)

    def _conditional(self, node: nodes.CondExpr, tolerant: bool) -> nodes.Expr:
        node.test = self.expression(node.test)
        node.expr1 = self.expression(node.expr1, tolerant=tolerant)
        if node.expr2 is not None:
            node.expr2 = self.expression(node.expr2, tolerant=tolerant)
            return node
        node.expr2 = operation(environment.MISSING, constant(None, node), node)
        return node if tolerant else operation(environment.REQUIRE, node, node)

    def _compare(self, node: nodes.Compare) -> nodes.Expr:
        """Binds a comparison; a single `in` becomes a filter, which knows the searched type."""
        self._children(node)
        left: Any = node
        for right in node.ops:
            searched = right.op in ("in", "notin")
            if right.op in ("eq", "ne"):
                self._note(left.expr, right.expr)
                self._note(right.expr, left.expr)
            elif searched and isinstance(right.expr, nodes.List):
                for element in right.expr.items:
                    self._note(left.expr, element)
            if searched and not _is_literal(right.expr):
                if len(node.ops) == 1:
                    wanted = constant(right.op == "in", node)
                    return operation(environment.CONTAINS, node.expr, node, right.expr, wanted)
                right.expr = operation(environment.SEARCH, right.expr, node)
            elif not (searched or _is_literal(left.expr) or _is_literal(right.expr)):
                left.expr = operation(environment.WEIGH, left.expr, node)
            left = right
        return node

    def path_of(self, bound: nodes.Expr | None) -> tuple[str | int, ...]:
        """The path that a bound expression reads; empty if it is anything else, or has computed keys."""
        if not (isinstance(bound, nodes.Filter) and bound.name == environment.READ):
            return ()
        path = self._read_paths[bound.node.value]  # type: ignore[union-attr]
        return path if all(type(part) in (str, int) for part in path) else ()

    def note_truth(self, bound: nodes.Expr | None) -> None:
        """Records that the truth of a bound expression is tested."""
        path = self._path_under_default(bound)
        if path:
            self.tested.append((path, True))

    def _path_under_default(self, bound: nodes.Expr | None) -> tuple[Any, ...]:
        """The path of a read, even of one that has a default."""
        while isinstance(bound, nodes.Filter) and bound.name in _LOOKED_THROUGH:
            bound = bound.node
        path = self.path_of(bound)
        return path if all(isinstance(part, str) for part in path) else ()

    def _note(self, read: nodes.Expr, literal: nodes.Expr) -> None:
        tested = self._path_under_default(read)
        if tested and isinstance(literal, nodes.Const) and literal.value is not None:
            self.tested.append((tested, literal.value))
        if not (isinstance(read, nodes.Filter) and read.name == environment.READ and isinstance(literal, nodes.Const)):
            return
        path = self._read_paths[read.node.value]  # type: ignore[union-attr]
        if isinstance(literal.value, str) and all(isinstance(part, str) for part in path):
            self.comparisons.append((path, literal.value))


def operation(name: str, first: nodes.Expr, at: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
    """Makes a call of an operation of the environment, such as ``@read``."""
    return nodes.Filter(first, name, list(args), [], None, None, lineno=at.lineno)


def constant(value: Any, at: nodes.Node) -> nodes.Const:
    return nodes.Const(value, lineno=at.lineno)


def _constant_or_later(node: nodes.Expr) -> Any:
    return node.value if isinstance(node, nodes.Const) else LATER


def _is_slice(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)


def _is_literal(node: nodes.Expr) -> bool:
    """Whether comparing with the literal costs no more than its length, which the template's length bounds."""
    return isinstance(node, nodes.Const) or (isinstance(node, nodes.List) and all(map(_is_literal, node.items)))
