"""Compiling: a playbook's value into a :class:`Template`, a condition into a :class:`Guard` (LANGUAGE §2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from jinja2 import TemplateSyntaxError, nodes

from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.template.compile.direct import NotSimple, direct_expression, direct_text
from noetl_stream.template.compile.expressions import (
    EXPRESSION_FUNCTIONS,
    HALF_A_CHARACTER,
    HALF_MESSAGE,
    Comparison,
    ExpressionBinder,
)
from noetl_stream.template.compile.findings import Bindings, Findings, Names
from noetl_stream.template.compile.parsing import TEMPLATE_MARK, TextError, is_one_expression, parse, single_expression
from noetl_stream.template.compile.sandboxed import ENVIRONMENT, Evaluate, sandboxed_expression, sandboxed_text
from noetl_stream.template.compile.statements import StatementBinder
from noetl_stream.template.failures import TemplateFinding, TemplateProblem
from noetl_stream.template.runtime.environment import FUNCTIONS
from noetl_stream.template.runtime.evaluation import Expression
from noetl_stream.template.runtime.meter import Meter
from noetl_stream.template.runtime.scope import JSON, Scope

__all__ = ["Guard", "Template", "compile_guard", "compile_template"]

Build: TypeAlias = Callable[[Scope, Meter], JSON]

_GUARD_HINT: Final = "write the whole condition as one expression, as in `{{ outcome.status == 'ok' }}`"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A compiled value: :func:`~noetl_stream.template.runtime.render.render` gives the JSON it stands for.

    Attributes:
        source: What was compiled.
        is_constant: Whether nothing in it is evaluated.
        reads: Namespaces and first keys that it reads; ``(namespace, None)`` is the whole of it or a computed key.
        paths: What it reads, each from its namespace up to the first key that is computed or is no text.
        build: Renders it; for this package.
    """

    source: JSON
    is_constant: bool
    reads: frozenset[tuple[str, str | None]]
    paths: frozenset[tuple[str, ...]]
    build: Build = field(repr=False)

    @property
    def keychain_names(self) -> frozenset[str]:
        """The entries of the keychain that it reads by name: the scope's ``keychain`` must hold them.

        That every read has a name is the check's to see, by ``paths``.
        """
        return frozenset(path[1] for path in self.paths if path[0] == "keychain" and len(path) > 1)


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A compiled condition: :func:`~noetl_stream.template.runtime.render.holds` says whether it holds.

    Attributes:
        source: Its text; ``true`` or ``false`` for a boolean.
        reads: As in :class:`Template`; so are ``paths``.
        comparisons: Paths and the text literals they are compared with: by ``==``, ``!=``, ``in [...]``.
        expression: Evaluates it; for this package.
    """

    source: str
    reads: frozenset[tuple[str, str | None]]
    paths: frozenset[tuple[str, ...]]
    comparisons: tuple[Comparison, ...]
    expression: Expression = field(repr=False)


def compile_template(
    source: JSON,
    *,
    namespaces: frozenset[str],
    bindings: Bindings,
    expressions_only: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Template:
    """Compiles any JSON value, texts in it at any depth; keys are never rendered.

    Args:
        source: A text that is exactly one ``{{ expression }}`` gives its native value, another text with ``{{ }}`` or
            ``{% %}`` a text, a text without stands for itself.
        namespaces: Those that exist here.
        bindings: What bare names mean here.
        expressions_only: Whether ``{% %}`` is refused.
        limits: Bound what is compiled; a rendering is bound by those of its scope.

    Raises:
        TemplateProblem: with every problem of every text.
    """
    functions = EXPRESSION_FUNCTIONS if expressions_only else frozenset(FUNCTIONS)
    compiler = _Compiler(Names(namespaces, bindings, functions), limits, only_output=expressions_only)
    build = compiler.build(source, ())
    if compiler.problems:
        raise TemplateProblem(compiler.problems)
    if build is None:
        return Template(source, True, frozenset(), frozenset(), _constant(source))
    return Template(source, False, compiler.reads, frozenset(compiler.paths), build)


def compile_guard(
    source: str | bool, *, namespaces: frozenset[str], bindings: Bindings, limits: Limits = DEFAULT_LIMITS
) -> Guard:
    """Compiles a condition: a boolean, or exactly one ``{{ expression }}``.

    Raises:
        TemplateProblem: with every problem of it; ``guard_not_expression`` if it is anything else.
    """
    if isinstance(source, bool):
        value = source
        constant = Expression(str(source), lambda scope, meter: value)
        return Guard(str(source).lower(), frozenset(), frozenset(), (), constant)
    compiler = _Compiler(Names(namespaces, bindings, EXPRESSION_FUNCTIONS), limits, only_output=True)
    expression = compiler.guard(source)
    if expression is None:
        raise TemplateProblem(compiler.problems)
    return Guard(source, compiler.reads, frozenset(compiler.paths), tuple(compiler.comparisons), expression)


class _Compiler:
    """Compiles the texts of one source and gathers what is found in them."""

    def __init__(self, names: Names, limits: Limits, *, only_output: bool) -> None:
        self._names: Final = names
        self._limits: Final = limits
        self._only_output: Final = only_output
        self.problems: Final[list[TemplateFinding]] = []
        self.paths: Final[set[tuple[str, ...]]] = set()
        self.comparisons: Final[list[Comparison]] = []

    @property
    def reads(self) -> frozenset[tuple[str, str | None]]:
        """The paths, cut off after their first key."""
        return frozenset((path[0], path[1] if len(path) > 1 else None) for path in self.paths)

    def build(self, source: JSON, pointer: tuple[str | int, ...]) -> Build | None:
        """What renders ``source``; ``None`` if it stands for itself."""
        most = self._limits.max_template_depth
        if len(pointer) > most:
            message = f"the value nests deeper than limits.max_template_depth ({most})"
            self.problems.append(TemplateFinding("template_syntax", message, None, pointer, 1, 1))
            return None
        if isinstance(source, str):
            expression = self._text(source, pointer) if TEMPLATE_MARK.search(source) else None
            return None if expression is None else expression.value
        if isinstance(source, dict):
            members = [(key, element, self.build(element, (*pointer, key))) for key, element in source.items()]
            if all(build is None for _, _, build in members):
                return None
            keyed = [(key, build or _constant(element)) for key, element, build in members]
            return lambda scope, meter: {key: build(scope, meter) for key, build in keyed}
        if isinstance(source, list):
            builds = [self.build(element, (*pointer, index)) for index, element in enumerate(source)]
            if all(build is None for build in builds):
                return None
            listed = [build or _constant(element) for build, element in zip(builds, source, strict=True)]
            return lambda scope, meter: [build(scope, meter) for build in listed]
        return None

    def guard(self, source: str) -> Expression | None:
        """The condition; ``None`` if there are problems."""
        findings = Findings(source, ())
        tree = self._tree(source, findings)
        if tree is not None:
            if is_one_expression(source, tree):
                return self._bound(source, tree, findings)
            message = "a guard must be true, false or exactly one `{{ expression }}`"
            findings.add("guard_not_expression", message, 0, _GUARD_HINT)
        self.problems.extend(findings.problems)
        return None

    def _text(self, text: str, pointer: tuple[str | int, ...]) -> Expression | None:
        findings = Findings(text, pointer)
        tree = self._tree(text, findings)
        if tree is not None:
            return self._bound(text, tree, findings)
        self.problems.extend(findings.problems)
        return None

    def _tree(self, text: str, findings: Findings) -> nodes.Template | None:
        limit = self._limits.max_template_chars
        if len(text) > limit:
            message = f"the template has {len(text):,} characters, limits.max_template_chars is {limit:,}"
            findings.add("template_too_long", message, 0, "keep large texts in `workload` and templates short")
            return None
        half = HALF_A_CHARACTER.search(text)
        if half is not None:
            findings.add("template_syntax", HALF_MESSAGE, half.start())
            return None
        try:
            return parse(ENVIRONMENT, text)
        except TextError as error:
            findings.add("template_syntax", error.message, error.offset)
            return None

    def _bound(self, text: str, tree: nodes.Template, findings: Findings) -> Expression | None:
        native = is_one_expression(text, tree)
        binder = ExpressionBinder(self._names, findings, self._limits)
        StatementBinder(binder, findings, only_output=self._only_output).body(tree.body)
        expression = None
        if not findings.problems:
            expression = self._evaluated(text, tree, binder, findings, native=native)
        self.paths.update(binder.paths)
        self.comparisons.extend(binder.comparisons)
        self.problems.extend(findings.problems)
        return expression

    def _evaluated(
        self, text: str, tree: nodes.Template, binder: ExpressionBinder, findings: Findings, *, native: bool
    ) -> Expression | None:
        try:
            return Expression(text, _evaluate(tree, binder, native=native))
        except SyntaxError:
            findings.add("template_syntax", "the template nests too deeply", 0)
        except TemplateSyntaxError as error:
            findings.add("template_syntax", error.message or "the template does not compile", error.lineno)
        return None


def _evaluate(tree: nodes.Template, binder: ExpressionBinder, *, native: bool) -> Evaluate:
    reads = binder.functions
    only = single_expression(tree) if native else None
    try:
        return direct_text(tree, reads) if only is None else direct_expression(only, reads)
    except NotSimple:
        return sandboxed_text(tree, reads) if only is None else sandboxed_expression(only, reads)


def _constant(source: JSON) -> Build:
    return lambda scope, meter: _copy(source)


def _copy(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _copy(element) for key, element in value.items()}
    return [_copy(element) for element in value] if isinstance(value, list) else value
