"""Binds the names of a template: every name becomes a read of a namespace, every problem is found (LANGUAGE §2).

The tree that comes out holds no free name, no dot on a namespace and no call but to listed functions, macros and
methods; reads, methods and loops are filters of the environment (``@read``, …), so that each rule has one home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Final, TypeAlias

from jinja2 import nodes

from noetl_stream.template.environment import CONCAT, FUNCTIONS, METHOD, MISSING, READ, REQUIRE
from noetl_stream.template.failures import BareName, Problem
from noetl_stream.template.filters import (
    FILTERS,
    MAYBE_UNDEFINED_FILTERS,
    TESTS,
    TOLERANT_FILTERS,
    TOLERANT_TESTS,
)
from noetl_stream.template.limits import TEMPLATE_LIMITS
from noetl_stream.template.methods import METHODS
from noetl_stream.template.parsing import place_of
from noetl_stream.template.reading import COMPUTED, Read, make_read
from noetl_stream.template.scope import NAMESPACES

Bindings: TypeAlias = Mapping[str, tuple[str, ...]]
"""Bare names and the paths they mean: ``{"total": ("ctx", "total")}``."""

Comparison: TypeAlias = tuple[tuple[str, ...], str]

_WHERE_ALLOWED: Final = {
    "outcome": "`outcome` exists in task policy only; elsewhere read the task's result, or `<task>.outcome`",
    "event": "`event` exists in the arcs of `next` only",
    "keychain": "`keychain` exists in tool inputs only",
    "token": "`token` exists in admission guards only",
    "_prev": "`_prev` exists inside a pipeline only",
    "_task": "`_task` exists in the inputs and the policy of a task only",
    "_attempt": "`_attempt` exists in the inputs and the policy of a task only",
    "results": "`results` exists inside a pipeline only",
    "iter": "`iter` exists inside a pipeline, and in an inner loop",
    "args": "`args` exists inside a step only",
    "vars": "`vars` exists inside a step run and in its arcs only",
}
_OTHER_LANGUAGES: Final = {"null": "none", "nil": "none", "undefined": "none", "TRUE": "true", "FALSE": "false"}
_NAMES_A_TEST: Final = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1}


_MOST_COMPARED: Final = 20
"""Unbound names of one text for which the nearest known one is looked for, which takes a while ..."""
_MOST_NAMES: Final = 500
"""... among so many."""


@dataclass(frozen=True, slots=True)
class Names:
    """What names mean in one place of a playbook."""

    namespaces: frozenset[str]
    bindings: Bindings
    functions: frozenset[str]


class Findings:
    """Problems of one text, with their places."""

    def __init__(self, text: str, pointer: tuple[str | int, ...]) -> None:
        self._text: Final = text
        self._pointer: Final = pointer
        self._problems: Final[list[Problem]] = []

    @property
    def problems(self) -> list[Problem]:
        """What was found, in the order of the text."""
        return sorted(self._problems, key=lambda problem: (problem.line, problem.column))

    def add(self, code: str, message: str, offset: int, hint: str | None = None) -> None:
        """Notes a problem at ``offset`` of the text."""
        self._problems.append(Problem(code, message, hint, self._pointer, *place_of(self._text, offset)))

    def add_bare_name(self, name: str, message: str, offset: int, hint: str) -> None:
        """Notes a name that is bound nowhere."""
        place = place_of(self._text, offset)
        self._problems.append(BareName("unbound_name", message, hint, self._pointer, *place, name))


class ExpressionBinder:
    """Rewrites expressions of one text and collects what they read.

    Attributes:
        names_in_text: Names that the template itself assigns, where the binder stands now.
        paths: What is read, each from its namespace up to the first key that is computed or is no text.
        functions: The reads of the text, by the index that ``@read`` carries.
        comparisons: Literals that paths are compared with.
    """

    def __init__(self, names: Names, findings: Findings) -> None:
        self._names: Final = names
        self._findings: Final = findings
        self._read_paths: Final[list[tuple[Any, ...]]] = []
        self._depth = 0
        self._compared = 0
        self.names_in_text: set[str] = set()
        self.paths: Final[set[tuple[str, ...]]] = set()
        self.functions: Final[list[Read]] = []
        self.comparisons: Final[list[Comparison]] = []

    def expression(self, node: nodes.Expr, *, tolerant: bool = False) -> nodes.Expr:
        """``node`` with its names bound.

        Args:
            node: Is changed in place where that is possible.
            tolerant: Whether the expression may come out undefined.
        """
        self._depth += 1
        try:
            if self._depth > TEMPLATE_LIMITS.max_template_depth:
                self.too_deep(node)
                return nodes.Const(None, lineno=node.lineno)
            return self._bound(node, tolerant)
        finally:
            self._depth -= 1

    def too_deep(self, node: nodes.Node) -> None:
        """Notes that the template nests too deeply."""
        limit = TEMPLATE_LIMITS.max_template_depth
        message = f"the template nests deeper than the limit `max_template_depth` ({limit})"
        self._findings.add("template_syntax", message, node.lineno)

    def _bound(self, node: nodes.Expr, tolerant: bool) -> nodes.Expr:
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
            case nodes.Concat():
                self._children(node)
                return self._operation(CONCAT, nodes.List(node.nodes, lineno=node.lineno), node)
            case nodes.Tuple():
                self._children(node)
                return nodes.List(node.items, lineno=node.lineno)
            case nodes.Neg():
                return self._negative(node)
        self._children(node)
        return node

    def _negative(self, node: nodes.Neg) -> nodes.Expr:
        node.node = self.expression(node.node)
        value: Any = node.node.value if isinstance(node.node, nodes.Const) else None
        return nodes.Const(-value, lineno=node.lineno) if type(value) in (int, float) else node

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

    def _operation(self, name: str, first: nodes.Expr, at: nodes.Node, *args: nodes.Expr) -> nodes.Filter:
        return nodes.Filter(first, name, list(args), [], None, None, lineno=at.lineno)

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
            root = self._sliced(root) if _is_slice(root) else self.expression(root, tolerant=True)
        bound = root
        for link in links:
            link.node = bound
            if isinstance(link, nodes.Getitem):
                link.arg = self.expression(link.arg)
            bound = link
        may_be_undefined = links or isinstance(root, nodes.Name)
        return self._operation(REQUIRE, bound, node) if may_be_undefined and not tolerant else bound

    def _sliced(self, node: Any) -> nodes.Expr:
        node.node = self.expression(node.node)
        self._children(node.arg)
        return node  # type: ignore[no-any-return]

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
        meant = self._meaning(root)
        if meant is None:
            return nodes.Const(None, lineno=root.lineno)
        path = (*meant, *parts)
        self.paths.add(tuple(takewhile(lambda part: isinstance(part, str), path)))
        self.functions.append(make_read(path[0], path[1:], tolerant=tolerant))
        self._read_paths.append(path)
        return self._operation(READ, nodes.Const(len(self._read_paths) - 1, lineno=root.lineno), root, *keys)

    def _meaning(self, node: nodes.Name) -> tuple[str, ...] | None:
        name = node.name
        if name in self._names.namespaces:
            return (name,)
        bound = self._names.bindings.get(name)
        # `token` is a namespace of admission guards alone; elsewhere a playbook may use the name.
        if name in NAMESPACES and not (name == "token" and bound):
            self._not_here(name, f"`{name}` cannot be used here", node)
        elif bound is None:
            hint = self._unbound_hint(name)
            self._findings.add_bare_name(name, f"`{name}` is bound to nothing", node.lineno, hint)
        elif bound[0] not in self._names.namespaces:
            self._not_here(bound[0], f"`{name}` means `{'.'.join(bound)}`, which cannot be used here", node)
        else:
            return bound
        return None

    def _not_here(self, namespace: str, message: str, node: nodes.Node) -> None:
        self._findings.add("namespace_not_here", message, node.lineno, _WHERE_ALLOWED.get(namespace))

    def _unbound_hint(self, name: str) -> str:
        if name in _OTHER_LANGUAGES:
            return f"write `{_OTHER_LANGUAGES[name]}`"
        close: list[str] = []
        if self._compared < _MOST_COMPARED:
            self._compared += 1
            close = get_close_matches(name, sorted({*self._names.bindings, *self._names.namespaces})[:_MOST_NAMES], n=1)
        known = f"did you mean `{close[0]}`? otherwise " if close else ""
        return f"{known}write `workload.{name}`, `ctx.{name}` or `args.{name}` for what comes from outside"

    def _call(self, node: nodes.Call) -> nodes.Expr:
        callee = node.node
        if isinstance(callee, nodes.Getattr):
            return self._method(node, callee)
        node.node = nodes.Const(None, lineno=node.lineno)
        self._children(node)
        node.node = callee
        if not isinstance(callee, nodes.Name):
            self._findings.add("template_syntax", "only functions, macros and methods can be called", node.lineno)
        elif callee.name not in self.names_in_text and callee.name not in self._names.functions:
            self._unknown_function(callee)
        return node

    def _unknown_function(self, callee: nodes.Name) -> None:
        name, known = callee.name, ", ".join(f"`{name}()`" for name in sorted(self._names.functions))
        if name in self._names.bindings or name in NAMESPACES:
            self._findings.add("template_syntax", f"`{name}` is a value, it cannot be called", callee.lineno)
        else:
            message = f"there is no function `{name}`"
            self._findings.add_bare_name(name, message, callee.lineno, f"the functions are {known}")

    def _method(self, node: nodes.Call, callee: nodes.Getattr) -> nodes.Expr:
        if callee.attr not in METHODS:
            close = get_close_matches(callee.attr, sorted(METHODS), n=1)
            hint = f"did you mean `{close[0]}`?" if close else "a dot reads a key, and a key is no function"
            self._findings.add("template_syntax", f"there is no method `{callee.attr}`", callee.lineno, hint)
        called = self._operation(
            METHOD, callee.node, callee, nodes.Const(callee.attr, lineno=callee.lineno), *node.args
        )
        # Jinja's own parser fills both with keywords, whatever their annotations say.
        called.kwargs = node.kwargs  # type: ignore[assignment]
        called.dyn_args, called.dyn_kwargs = node.dyn_args, node.dyn_kwargs
        self._children(called)
        return called

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
        if node.name in MAYBE_UNDEFINED_FILTERS and not tolerant:
            return self._operation(REQUIRE, node, node)
        return node

    def _check_filter(self, node: nodes.Filter) -> None:
        if node.name not in FILTERS:
            self._unknown("filter", node.name, FILTERS, node)
        first = node.args[0] if node.args else None
        if node.name == "map" and isinstance(first, nodes.Const) and first.value not in FILTERS:
            self._unknown("filter", first.value, FILTERS, first)
        place = _NAMES_A_TEST.get(node.name)
        if place is not None and len(node.args) > place:
            named = node.args[place]
            if isinstance(named, nodes.Const) and named.value not in TESTS:
                self._unknown("test", named.value, TESTS, named)

    def _test(self, node: nodes.Test) -> nodes.Expr:
        if node.name not in TESTS:
            self._unknown("test", node.name, TESTS, node)
        subject, node.node = node.node, nodes.Const(None, lineno=node.lineno)
        self._children(node)
        node.node = self.expression(subject, tolerant=node.name in TOLERANT_TESTS)
        return node

    def _unknown(self, what: str, name: Any, known: Mapping[str, Any], node: nodes.Node) -> None:
        close = get_close_matches(str(name), list(known), n=1)
        hint = f"did you mean `{close[0]}`?" if close else None
        self._findings.add(f"unknown_{what}", f"there is no {what} `{name}`", node.lineno, hint)

    def _conditional(self, node: nodes.CondExpr, tolerant: bool) -> nodes.Expr:
        node.test = self.expression(node.test)
        node.expr1 = self.expression(node.expr1, tolerant=tolerant)
        if node.expr2 is not None:
            node.expr2 = self.expression(node.expr2, tolerant=tolerant)
            return node
        node.expr2 = self._operation(MISSING, nodes.Const(None, lineno=node.lineno), node)
        return node if tolerant else self._operation(REQUIRE, node, node)

    def _compare(self, node: nodes.Compare) -> nodes.Expr:
        self._children(node)
        left = node.expr
        for operand in node.ops:
            right = operand.expr
            if operand.op in ("eq", "ne"):
                self._note(left, right)
                self._note(right, left)
            elif operand.op in ("in", "notin") and isinstance(right, nodes.List):
                for element in right.items:
                    self._note(left, element)
            left = right
        return node

    def _note(self, read: nodes.Expr, literal: nodes.Expr) -> None:
        if not (isinstance(read, nodes.Filter) and read.name == READ and isinstance(literal, nodes.Const)):
            return
        path = self._read_paths[read.node.value]  # type: ignore[union-attr]
        if isinstance(literal.value, str) and all(isinstance(part, str) for part in path):
            self.comparisons.append((path, literal.value))


def _is_slice(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)


EXPRESSION_FUNCTIONS: Final = frozenset(FUNCTIONS) - {"namespace"}
