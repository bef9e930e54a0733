"""Compiles a playbook value to a :class:`Template` and a condition to a :class:`Guard` (LANGUAGE §2)."""

from __future__ import annotations

import re
from typing import Any, Final

from jinja2 import TemplateSyntaxError, nodes

from noetl_stream.model.limits import DEFAULT_LIMITS, UNBOUNDED, Limits
from noetl_stream.template.compile.evaluators import ENVIRONMENT, make_evaluator
from noetl_stream.template.compile.expressions import LONE_SURROGATE, SURROGATE_MESSAGE, ExpressionBinder
from noetl_stream.template.compile.parsing import (
    TEMPLATE_MARK,
    Bindings,
    Findings,
    Names,
    TextError,
    is_one_expression,
    parse,
    single_expression,
)
from noetl_stream.template.compile.statements import StatementBinder, static_cost
from noetl_stream.template.failures import TemplateFinding, TemplateProblem
from noetl_stream.template.runtime.environment import FUNCTIONS
from noetl_stream.template.runtime.evaluation import (
    Comparison,
    Evaluate,
    Expression,
    Guard,
    Template,
    TemplateText,
    Tested,
    values_of,
)
from noetl_stream.template.runtime.scope import JSON

_EXPRESSION_FUNCTIONS: Final = frozenset(FUNCTIONS) - {"namespace"}
MAX_SHOWN_CHARS: Final = 100
"""The longest condition without braces that a hint repeats."""
_GUARD_HINT: Final = "write the whole condition as one expression: {{ … }}"
_CHOICE: Final = re.compile(
    r"\s*\{%-?\s*if\s++((?:[^%]|%(?!\}))++)%\}\s*true\s*\{%-?\s*else\s*-?%\}\s*false\s*\{%-?\s*endif\s*-?%\}\s*",
    re.IGNORECASE,
)
"""A condition in the form of a statement."""
_BRACES: Final = re.compile(r"""(?:'(?=\{\{[^{}]*\}\}'))?(?:"(?=\{\{[^{}]*\}\}"))?\$?\{\{([^{}]*)\}\}['"]?""")
"""The braces around part of a condition, and the quotes around them."""


def compile_template(
    source: JSON,
    *,
    namespaces: frozenset[str],
    bindings: Bindings,
    expressions_only: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> Template:
    """Compiles a JSON value with templates at any depth. Keys are never rendered.

    Args:
        source: A text that is exactly one ``{{ expression }}`` renders to its native value, any other text with
            ``{{ }}`` or ``{% %}`` to text. Other text is constant.
        namespaces: The namespaces that can be read.
        bindings: The paths of bare names.
        expressions_only: Whether ``{% %}`` is an error.
        limits: Limits on the source; rendering is bound by the limits of its scope.

    Raises:
        TemplateProblem: The source has problems; holds all of them.
    """
    functions = _EXPRESSION_FUNCTIONS if expressions_only else frozenset(FUNCTIONS)
    text = TemplateText(source, False, namespaces, bindings, expressions_only)
    compiler = _Compiler(Names(namespaces, bindings, functions), limits, only_output=expressions_only)
    build = compiler.build(source, ())
    if compiler.problems:
        raise TemplateProblem(compiler.problems)
    return Template(
        source,
        build is None,
        reads=compiler.reads,
        paths=frozenset(compiler.paths),
        text=text,
        steps=compiler.steps,
        build=build or _constant(source),
        path=compiler.path if isinstance(source, str) else (),
    )


def compile_guard(
    source: str | bool, *, namespaces: frozenset[str], bindings: Bindings, limits: Limits = DEFAULT_LIMITS
) -> Guard:
    """Compiles a condition: a boolean, or exactly one ``{{ expression }}``.

    Raises:
        TemplateProblem: The condition has problems; ``guard_not_expression`` if it is anything else.
    """
    text = TemplateText(source, True, namespaces, bindings)
    if isinstance(source, bool):
        value = source
        constant = Expression(str(source), lambda scope, meter: value)
        nothing: frozenset[Any] = frozenset()
        return Guard(
            str(source).lower(),
            reads=nothing,
            paths=nothing,
            comparisons=(),
            tested=(),
            text=text,
            steps=(),
            expression=constant,
        )
    compiler = _Compiler(Names(namespaces, bindings, _EXPRESSION_FUNCTIONS), limits, only_output=True)
    expression = compiler.text(source, is_guard=True)
    if expression is None:
        raise TemplateProblem(compiler.problems)
    return Guard(
        source,
        reads=compiler.reads,
        paths=frozenset(compiler.paths),
        comparisons=tuple(compiler.comparisons),
        tested=tuple(compiler.tested),
        text=text,
        steps=compiler.steps,
        expression=expression,
    )


def compile_text(text: TemplateText) -> Template | Guard:
    """Compiles the text of a template or guard again, independently of the present limits on sources.

    Raises:
        TemplateProblem: The text was compiled by another version.
    """
    if text.is_guard:
        return compile_guard(text.source, namespaces=text.namespaces, bindings=text.bindings, limits=UNBOUNDED)
    return compile_template(
        text.source,
        namespaces=text.namespaces,
        bindings=text.bindings,
        expressions_only=text.expressions_only,
        limits=UNBOUNDED,
    )


class _Compiler:
    """Compiles the texts of one source and collects their reads and problems."""

    def __init__(self, names: Names, limits: Limits, *, only_output: bool) -> None:
        self._names: Final = names
        self._limits: Final = limits
        self._only_output: Final = only_output
        self.problems: Final[list[TemplateFinding]] = []
        self.paths: Final[set[tuple[str, ...]]] = set()
        self.comparisons: Final[list[Comparison]] = []
        self.tested: Final[list[Tested]] = []
        self.path: tuple[str | int, ...] = ()

    @property
    def reads(self) -> frozenset[tuple[str, str | None]]:
        """The paths that the templates read, cut after their first key."""
        return frozenset((path[0], path[1] if len(path) > 1 else None) for path in self.paths)

    @property
    def steps(self) -> tuple[str | None, ...]:
        """The keys of ``steps`` that the templates read."""
        return tuple(key for namespace, key in self.reads if namespace == "steps")

    def build(self, source: JSON, pointer: tuple[str | int, ...]) -> Evaluate | None:
        """The function that renders ``source``; ``None`` if it is constant."""
        most = self._limits.max_template_depth
        if len(pointer) > most:
            message = f"the value nests deeper than limits.max_template_depth ({most})"
            self.problems.append(TemplateFinding("template_syntax", message, None, pointer, 1, 1))
            return None
        if isinstance(source, str):
            expression = self.text(source, pointer) if TEMPLATE_MARK.search(source) else None
            return None if expression is None else expression.value
        if isinstance(source, dict):
            members = [(key, element, self.build(element, (*pointer, key))) for key, element in source.items()]
            if all(build is None for _, _, build in members):
                return None
            keys = [key for key, _, _ in members]
            keyed = [build or _constant(element) for _, element, build in members]
            return lambda scope, meter: dict(zip(keys, values_of(keyed, scope, meter), strict=True))
        if isinstance(source, list):
            builds = [self.build(element, (*pointer, index)) for index, element in enumerate(source)]
            if all(build is None for build in builds):
                return None
            listed = [build or _constant(element) for build, element in zip(builds, source, strict=True)]
            return lambda scope, meter: values_of(listed, scope, meter)
        return None

    def text(self, text: str, pointer: tuple[str | int, ...] = (), *, is_guard: bool = False) -> Expression | None:
        """The expression or template in ``text``; ``None`` if it has problems."""
        findings = Findings(text, pointer)
        tree = self._tree(text, findings)
        expression = None
        if tree is not None:
            native = is_one_expression(text, tree)
            if is_guard and not native:
                message = "a guard must be true, false or a single `{{ expression }}`"
                has_more = "{%" in text or "\n" in text or len(text) > MAX_SHOWN_CHARS
                whole = " ".join(_BRACES.sub(r" \1 ", text).replace("$.", "").split())
                if (choice := _CHOICE.fullmatch(text)) is not None:
                    whole = choice[1].removesuffix("-").rstrip()
                    has_more = "\n" in whole
                hint = _GUARD_HINT if has_more or not whole else f"write when: {_quoted(whole)}"
                findings.add("guard_not_expression", message, 0, hint)
            else:
                expression = self._bind(text, tree, findings, native=native)
        self.problems.extend(findings.problems)
        return expression

    def _tree(self, text: str, findings: Findings) -> nodes.Template | None:
        limit = self._limits.max_template_chars
        if len(text) > limit:
            message = f"the template has {len(text):,} characters; the limit is {limit:,} (limits.max_template_chars)"
            findings.add("template_too_long", message, 0, "move large texts to `workload`")
            return None
        surrogate = LONE_SURROGATE.search(text)
        if surrogate is not None:
            findings.add("template_syntax", SURROGATE_MESSAGE, surrogate.start())
            return None
        try:
            return parse(ENVIRONMENT, text)
        except TextError as error:
            findings.add("template_syntax", error.message, error.offset)
            return None

    def _bind(self, text: str, tree: nodes.Template, findings: Findings, *, native: bool) -> Expression | None:
        binder = ExpressionBinder(self._names, findings, self._limits)
        StatementBinder(binder, findings, only_output=self._only_output).body(tree.body)
        self.paths.update(binder.paths)
        self.comparisons.extend(binder.comparisons)
        if native:
            binder.note_truth(single_expression(tree))
        self.tested.extend(binder.tested)
        self.path = binder.path_of(single_expression(tree)) if native else ()
        if findings.problems:
            return None
        _, cost = static_cost(tree.body)
        try:
            return Expression(text, make_evaluator(tree, binder.functions, native=native), cost)
        except SyntaxError:
            findings.add("template_syntax", "the template nests too deeply", 0)
        except TemplateSyntaxError as error:
            findings.add("template_syntax", error.message or "the template does not compile", error.lineno)
        return None


def _quoted(condition: str) -> str:
    """A condition in braces in YAML, in quotes that it does not contain."""
    text = f"{{{{ {condition} }}}}"
    return f"'{text}'" if '"' in text and "'" not in text else '"' + text.replace('"', '\\"') + '"'


def _constant(source: JSON) -> Evaluate:
    return lambda scope, meter: _copy(source)


def _copy(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _copy(element) for key, element in value.items()}
    return [_copy(element) for element in value] if isinstance(value, list) else value
