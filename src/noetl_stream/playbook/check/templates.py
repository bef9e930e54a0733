"""Compiles the templates of a playbook and reports their problems at their position in the file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from noetl_stream.model.limits import Limits
from noetl_stream.playbook.check.bindings import Path, Visible
from noetl_stream.playbook.diagnostics import Location, Position, Problems, did_you_mean, listed
from noetl_stream.playbook.vocabulary import legacy
from noetl_stream.playbook.vocabulary.names import NAMESPACES
from noetl_stream.playbook.yaml.nodes import MappingKey, Node, Scalar, Sequence, descend, kind_of
from noetl_stream.playbook.yaml.positions import InText
from noetl_stream.template import BareName, Guard, Template, TemplateProblem, compile_guard, compile_template

T = TypeVar("T")

MAX_CODE_CHARS: Final = 65_536
"""Characters in ``{{ }}`` and ``{% %}`` of a playbook, aliases expanded; bounds the cost of compiling it."""

_CODE: Final = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)
_NO_NAMES: Final[frozenset[str]] = frozenset()

_NAMESPACE: Final = "|".join(sorted(NAMESPACES))
_KEY: Final = r"\.\s*(\w+)|\[\s*'([^']*)'\s*\]|\[\s*\"([^\"]*)\"\s*\]"
_PATH: Final = re.compile(rf"\b({_NAMESPACE})\b((?:\s*(?:{_KEY}))*)")


@dataclass(frozen=True, slots=True)
class TemplateRead:
    """What a template reads: a namespace, then its keys as far as known; ``at`` is the place."""

    path: Path
    at: Location


class ReadLocations:
    """The places where a value's templates read paths, as precisely as known."""

    def __init__(self, source: str, node: Node) -> None:
        self._source = source
        self._node = node
        self._found: dict[Path, Location] | None = None
        self._prefixes: dict[Path, Location] = {}

    def of(self, path: Path) -> Location:
        """The first place of ``path``, else of a longer path that starts with it, else the value itself."""
        if self._found is None:
            self._found = {}
            for scalar in _texts(self._node):
                self._note(scalar, str(scalar.value), self._found)
        return self._found.get(path) or self._prefixes.get(path, self._node)

    def _note(self, scalar: Scalar, text: str, found: dict[Path, Location]) -> None:
        for match in _PATH.finditer(text):
            line_start = text.rfind("\n", 0, match.start()) + 1
            line, column = text.count("\n", 0, match.start()) + 1, match.start() - line_start + 1
            path = (match[1], *("".join(keys) for keys in re.findall(_KEY, match[2])))
            place = InText(self._source, scalar, line, column)
            found.setdefault(path, place)
            for length in range(1, len(path)):
                self._prefixes.setdefault(path[:length], place)


@dataclass(frozen=True, slots=True)
class ReadLocation:
    """The place of one path in :class:`ReadLocations`, found on first use."""

    places: ReadLocations
    path: Path

    @property
    def mark(self) -> Position:
        return self.places.of(self.path).mark

    @property
    def pointer(self) -> str:
        return self.places.of(self.path).pointer


class Templates:
    """Compiles the templates of one file within its limits."""

    def __init__(self, source: str, problems: Problems, limits: Limits) -> None:
        self._source = source
        self._problems = problems
        self._limits = limits
        self._code_chars = 0

    def template(self, node: Node, visible: Visible, *, on_server: bool = False) -> Template:
        """The value of ``node`` as a template; an empty one, after reporting, if it has problems.

        Args:
            on_server: Whether the server renders it, which allows expressions only (LANGUAGE §2).
        """
        source, namespaces, limits = node.plain(), visible.namespaces, self._limits
        for key in _template_keys(node):
            message = f"keys are not rendered: `{key.name}` stays as written"
            self._problems.warn("template_not_rendered", message, key, "use templates in values only")

        def compiled(bindings: Mapping[str, Path]) -> Template:
            return compile_template(
                source, namespaces=namespaces, bindings=bindings, expressions_only=on_server, limits=limits
            )

        return self._compiled(compiled, node, visible) or EMPTY

    def guard(self, node: Node, visible: Visible) -> Guard | None:
        """The guard of ``node``; ``None``, after reporting, if it has problems."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str | bool):
            message = f"`when` must be a boolean or one {{{{ expression }}}}, not {kind_of(node)}"
            self._problems.error("guard_not_expression", message, node)
            return None
        text, namespaces, limits = node.value, visible.namespaces, self._limits

        def compiled(bindings: Mapping[str, Path]) -> Guard:
            return compile_guard(text, namespaces=namespaces, bindings=bindings, limits=limits)

        return self._compiled(compiled, node, visible)

    def _compiled(self, compiled: Callable[[Mapping[str, Path]], T], node: Node, visible: Visible) -> T | None:
        if not self._may_compile(node):
            return None
        try:
            result = compiled(visible.bindings)
        except TemplateProblem as problem:
            self._report(problem, node, visible)
            return None
        if visible.shadowed and not self._problems.is_truncated:
            # Compile again without the ambiguous names to learn which of them are used, and where.
            try:
                compiled(visible.unambiguous)
            except TemplateProblem as problem:
                self._warn_shadowed(problem, node, visible)
        return result

    def _may_compile(self, node: Node) -> bool:
        before = self._code_chars
        self._code_chars += sum(len(code) for text in _texts(node) for code in _CODE.findall(str(text.value)))
        if before <= MAX_CODE_CHARS < self._code_chars:
            message = f"the playbook's templates have more than {MAX_CODE_CHARS:,} characters (max_code_chars)"
            self._problems.error("limit_exceeded", message, node, "move part of the workflow to another playbook")
        return self._code_chars <= MAX_CODE_CHARS

    def reads(self, paths: Iterable[Path], node: Node) -> list[TemplateRead]:
        """The paths that a compiled template reads, with their places."""
        places = ReadLocations(self._source, node)
        return [TemplateRead(path, ReadLocation(places, path)) for path in sorted(paths)]

    def find(self, path: Path, node: Node) -> Location:
        """The place where the templates of ``node`` read a path."""
        return ReadLocations(self._source, node).of(path)

    def _report(self, failure: TemplateProblem, node: Node, visible: Visible) -> None:
        for problem in failure.problems:
            hint = problem.hint
            if isinstance(problem, BareName):
                hint = _hint_for(problem.name, visible) or hint
            at = self._place(node, problem.pointer, problem.line, problem.column)
            self._problems.error(problem.code, problem.message, at, hint)

    def _warn_shadowed(self, failure: TemplateProblem, node: Node, visible: Visible) -> None:
        for problem in failure.problems:
            if isinstance(problem, BareName) and problem.name in visible.shadowed:
                first, *others = (".".join(path) for path in visible.shadowed[problem.name])
                message = f"`{problem.name}` means `{first}` here, but could also be {listed(others)}"
                at = self._place(node, problem.pointer, problem.line, problem.column)
                self._problems.warn("shadowed_name", message, at, f"write `{first}`, or the one you mean")

    def _place(self, node: Node, pointer: tuple[str | int, ...], line: int, column: int) -> Location:
        part = descend(node, pointer)
        if not isinstance(part, Scalar):
            return part
        return InText(self._source, part, line, column)


EMPTY: Final = compile_template(None, namespaces=_NO_NAMES, bindings={})
"""The template of null, used in place of one that failed to compile so that checking can continue."""

NO_ARGS: Final = compile_template({}, namespaces=_NO_NAMES, bindings={})


def constant(value: float | int) -> Template:
    """The template of a constant number."""
    return compile_template(value, namespaces=_NO_NAMES, bindings={})


def _hint_for(name: str, visible: Visible) -> str | None:
    """A suggestion for an unbound name."""
    match visible.elsewhere.get(name):
        case ("results", task):
            return f"outside its step, read the task's result as `steps.<step>.results.{task}` or `event.result`"
        case None:
            return legacy.BARE_NAMES.get(name) or did_you_mean(name, [*visible.bindings, *visible.namespaces])
        case path:
            return f"`{name}` means `{'.'.join(path)}`, which is not available here"


def _template_keys(node: Node) -> Iterator[MappingKey]:
    """Keys at any depth that look like templates."""
    if isinstance(node, Scalar):
        return
    if not isinstance(node, Sequence):
        yield from (key for key in node.keys.values() if "{{" in key.name)
    for part in node.items if isinstance(node, Sequence) else node.values.values():
        yield from _template_keys(part)


def _texts(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        if isinstance(node.value, str):
            yield node
        return
    for part in node.items if isinstance(node, Sequence) else node.values.values():
        yield from _texts(part)
