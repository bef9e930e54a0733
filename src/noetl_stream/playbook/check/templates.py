"""Compiles the templates of a playbook and reports their problems at their position in the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from functools import cached_property, partial
from itertools import islice
from typing import Final, TypeVar

import msgspec

from noetl_stream.model.limits import Limits
from noetl_stream.playbook.check.bindings import Path, Visible
from noetl_stream.playbook.diagnostics import Location, Problems
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.vocabulary.hints import with_braces
from noetl_stream.playbook.vocabulary.other_languages import BARE_NAMES, as_choice, as_expression, expression_around
from noetl_stream.playbook.yaml.nodes import InText, Mapping, Node, Scalar, descend, kind_of, offset_of, texts_of, walk
from noetl_stream.template import Guard, Template, TemplateFinding, TemplateProblem, compile_guard, compile_template
from noetl_stream.template.compile.parsing import place_of
from noetl_stream.template.runtime.scope import SHADOWABLE

T = TypeVar("T")

MAX_CODE_CHARS: Final = 65_536
"""The most characters in ``{{ }}`` and ``{% %}`` of a playbook, aliases expanded; bounds the cost of compiling it."""

_CODE: Final = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)", re.DOTALL)
_OTHER_BRACES: Final = re.compile(
    r"(?<![{\w])\$?\{\s*((?:workload|ctx|steps|args|iter|keychain)\.[A-Za-z_][\w.]*)\s*\}(?!\})"
)
"""A path in the braces of another language: `${workload.url}`, `{workload.url}`."""
_OTHER_MARK: Final = re.compile(r"(?:\A\s*([$=])|(?<=[\w/=:@-])\$|\$(?=\{\{-?\s*keychain\b))\{\{(?!-?\s*secrets\b)")
"""Braces with the mark of another tool: `${{ … }}`, `={{ … }}`; but not a price."""
_QUOTE: Final = re.compile(r"\$(?:[^\W\d]\w{0,62})?\Z")
"""The quote `$tag$` of SQL without its last sign."""
_MOST_SHOWN: Final = 160
_MOST_MARKS: Final = 50
_OTHERS: Final = ("`null` is not", "unknown function")
_JSON_PATH: Final = re.compile(r"\$\.([A-Za-z_][\w.]*)\Z")
"""A path in the syntax of Step Functions."""
_NO_NAMES: Final[frozenset[str]] = frozenset()
NO_ALIASES: Final[MappingOf[str, str]] = {}

_KEY: Final = r"\.\s*(\w+)|\[\s*'([^']*)'\s*\]|\[\s*\"([^\"]*)\"\s*\]"
_PATH: Final = re.compile(rf"\b([A-Za-z_]\w*)\b((?:\s*(?:{_KEY}))*)")


class ReadLocations:
    """The places where a value's templates read paths, as precisely as known."""

    def __init__(self, source: str, node: Node) -> None:
        self._source = source
        self._node = node

    def find(self, path: Path) -> Location:
        """The first place of ``path``, else of a longer path with it, else of its bare name with keys, else the value
        itself.
        """
        bare = path[1:] if len(path) > 2 else path
        return self._places.get(path) or self._places.get(bare) or self._node

    @cached_property
    def _places(self) -> dict[Path, Location]:
        places: dict[Path, Location] = {}
        prefixes: dict[Path, Location] = {}
        for scalar, text in texts_of(self._node):
            for match in _PATH.finditer(text):
                path = (match[1], *("".join(keys) for keys in re.findall(_KEY, match[2])))
                place = InText(self._source, scalar, *place_of(text, match.start()))
                places.setdefault(path, place)
                for length in range(1, len(path)):
                    prefixes.setdefault(path[:length], place)
        return prefixes | places


class TemplateRead(msgspec.Struct, frozen=True):
    """A read in a template: the namespace, then its known keys."""

    path: Path
    places: ReadLocations

    @property
    def location(self) -> Location:
        return self.places.find(self.path)

    @property
    def text(self) -> str:
        """The whole text of the template; empty if its place is not known."""
        place = self.location
        return str(place.scalar.value) if isinstance(place, InText) else ""


class Templates:
    """Compiles the templates of one file within its limits.

    Args:
        known_as: The replacements for names that keys of other tools would declare; empty if such a key is replaced
            itself.

    Attributes:
        source: The text of the file.
        unbound: The unbound bare names found so far.
    """

    def __init__(
        self, source: str, problems: Problems, limits: Limits, known_as: MappingOf[str, str] = NO_ALIASES
    ) -> None:
        self.source: Final = source
        self._known_as = known_as
        self._problems = problems
        self._limits = limits
        self._code_chars = 0
        self.unbound: Final[set[str]] = set()

    def template(self, node: Node, visible: Visible, *, on_server: bool = False) -> Template:
        """Compiles the value of ``node`` as a template; an empty one, after reporting, if it has problems."""
        for key in (key for part in walk(node) if isinstance(part, Mapping) for key in part.keys.values()):
            if "{{" in key.name:
                message = f"keys are not rendered: `{key.name}` stays as written"
                self._problems.warn("template_not_rendered", message, key, "use templates in values only")

        for scalar, text in texts_of(node):
            if (found := _OTHER_BRACES.search(text)) is not None and not self._problems.has_error_on(scalar.mark.line):
                at = InText(self.source, scalar, *place_of(text, found.start()))
                message = f"`{found[0]}` is not a template: it stays as written"
                whole = with_braces(text)
                hint = shown_text(whole) if whole else f"write `{{{{ {found[1]} }}}}`"
                self._problems.warn("template_not_rendered", message, at, hint)
            elif text[:2] in ('f"', "f'") and "{" in text and not self._problems.has_error_on(scalar.mark.line):
                message = "a text has no prefix: the `f` stays in the text"
                self._problems.warn("template_not_rendered", message, scalar, shown_text(with_braces(text) or text))
            if marks := _other_marks(text):
                mark = text[marks[0]]
                message = f"`{mark}{{{{ }}}}` is the form of another tool: the `{mark}` stays in the text"
                whole = "".join(sign for offset, sign in enumerate(text) if offset not in marks)
                self._problems.warn("template_not_rendered", message, scalar, shown_text(whole))
            if (found := _JSON_PATH.match(text)) is not None and visible.step:
                message = f"`{text}` is text: no path of JSON is read here"
                hint = f'write "{{{{ workload.{found[1]} }}}}", or the result of a step: "{{{{ <step>.{found[1]} }}}}"'
                self._problems.warn("template_not_rendered", message, scalar, hint)
        compiled = partial(compile_template, node.plain(), expressions_only=on_server)
        return self._compile(compiled, node, visible) or EMPTY

    def guard(self, node: Node, visible: Visible) -> Guard | None:
        """Compiles the guard of ``node``; ``None``, after reporting, if it has problems."""
        if not isinstance(node, Scalar) or not isinstance(node.value, str | bool):
            message = f"`when` must be a boolean or one {{{{ expression }}}}, not {kind_of(node)}"
            self._problems.error("guard_not_expression", message, node)
            return None
        return self._compile(partial(compile_guard, node.value), node, visible)

    def _compile(self, compiled: Callable[..., T], node: Node, visible: Visible) -> T | None:
        if not self._may_compile(node):
            return None
        namespaces = visible.namespaces - {name for name in SHADOWABLE if name in visible.bindings}
        try:
            result = compiled(namespaces=namespaces, bindings=visible.bindings, limits=self._limits)
        except TemplateProblem as problem:
            self._report(problem, node, visible)
            return None
        if visible.shadowed and not self._problems.is_truncated:
            # Compile again without the ambiguous names to learn which of them are used, and where.
            try:
                compiled(namespaces=namespaces, bindings=visible.unambiguous, limits=self._limits)
            except TemplateProblem as problem:
                self._warn_shadowed(problem, node, visible)
        return result

    def _may_compile(self, node: Node) -> bool:
        before = self._code_chars
        self._code_chars += sum(len(code) for _, text in texts_of(node) for code in _CODE.findall(text))
        if before <= MAX_CODE_CHARS < self._code_chars:
            message = f"the playbook's templates have more than {MAX_CODE_CHARS:,} characters (max_code_chars)"
            self._problems.error("limit_exceeded", message, node, "move part of the workflow to another playbook")
        return self._code_chars <= MAX_CODE_CHARS

    def places(self, node: Node) -> ReadLocations:
        """The places where the templates of ``node`` read paths."""
        return ReadLocations(self.source, node)

    def _report(self, failure: TemplateProblem, node: Node, visible: Visible) -> None:
        unknown: tuple[int, int, int] | None = None
        is_dashed = False
        for problem in failure.problems:
            hint, read = problem.hint, _text_at(node, problem)
            is_method = problem.message.startswith("unknown method") or bool(problem.name and is_dashed)
            if unknown and is_method and unknown[0] == problem.line and unknown[1] < problem.column < unknown[2]:
                continue  # a method of an undefined name
            if problem.code in ("template_syntax", "statement_not_allowed") or problem.message.startswith(_OTHERS):
                hint = hint if hint and "did you mean" in hint else _in_this_language(node, problem, visible) or hint
            if problem.code == "namespace_not_here" and problem.message.startswith("`event`"):
                hint = _step_before(read, visible) or hint
            if problem.code == "template_syntax" and "two braces" in problem.message:
                part = descend(node, problem.pointer)
                whole = _ONE_BRACE.sub("}}", str(part.plain()))
                hint = shown_text(whole) if len(whole) <= _MOST_SHOWN and "\n" not in whole else hint
            if problem.name is not None:
                end = read.find("}}")
                unknown = (problem.line, problem.column, problem.column + (end if end >= 0 else len(read)))
                self.unbound.add(problem.name)
                known = self._known_as.get(problem.name)
                if known == "":
                    continue
                if not problem.message.startswith(_OTHERS) or hint == problem.hint:
                    hint = filled_with(known or _hint_for(problem.name, visible) or hint, read, visible)
                hint = _of_name(problem.name, node, problem, visible) or _without_dollar(node, problem, hint)
                with_dash = _DASHED.match(read)
                if with_dash and with_dash[0] in visible.bindings:
                    hint = f"write `{with_dash[0].replace('-', '_')}`: a dash subtracts"
                    unknown, is_dashed = (problem.line, problem.column, problem.column + len(with_dash[0])), True
            if problem.code in ("namespace_not_here", "unbound_name") and len(visible.namespaces) == 1:
                [alone] = visible.namespaces
                hint = hint if f"`{alone}." in (hint or "") else _READS_ALONE.get(alone, hint)
            self._problems.error(problem.code, problem.message, self._place(node, problem), hint)

    def _warn_shadowed(self, failure: TemplateProblem, node: Node, visible: Visible) -> None:
        for problem in failure.problems:
            if problem.name is not None and problem.name in visible.shadowed:
                first, *others = (".".join(path) for path in visible.shadowed[problem.name])
                meant = "the namespace of that name" if problem.name in others else list_names(others)
                message = f"`{problem.name}` means `{first}` here, but could also be {meant}"
                hint = f"write `{first}`, or the one you mean"
                self._problems.warn("shadowed_name", message, self._place(node, problem), hint)

    def _place(self, node: Node, problem: TemplateFinding) -> Location:
        part = descend(node, problem.pointer)
        return InText(self.source, part, problem.line, problem.column) if isinstance(part, Scalar) else part


EMPTY: Final = compile_template(None, namespaces=_NO_NAMES, bindings={})
"""The template of null, used in place of one that failed to compile so that checking can continue."""

NO_ARGS: Final = compile_template({}, namespaces=_NO_NAMES, bindings={})


def constant(value: float | int) -> Template:
    return compile_template(value, namespaces=_NO_NAMES, bindings={})


def batches_of(task: str, rows: int) -> Template:
    """The template of the table that a task has made, in parts of so many rows."""
    text = f"{{{{ results.{task}.table | batch({rows}) }}}}"
    return compile_template(text, namespaces=frozenset(["results"]), bindings={})


def _other_marks(text: str) -> list[int]:
    """The offsets of the first marks of other tools before braces. One that ends a quote `$tag$` of SQL is none."""
    offsets = [found.end() - 3 for found in islice(_OTHER_MARK.finditer(text), _MOST_MARKS)]
    return [offset for offset in offsets if not _ends_quote(text, offset)]


def _ends_quote(text: str, offset: int) -> bool:
    """Whether the sign at ``offset`` ends a quote `$tag$` that occurs again behind it."""
    opened = _QUOTE.search(text, max(offset - _MOST_SHOWN, 0), offset)
    return opened is not None and text.find(f"{opened[0]}$", offset + 1) >= 0


_CALLED: Final = re.compile(r"[\w.]*\s*\([^()'\"]*['\"]([\w.-]+)")


def _text_at(node: Node, problem: TemplateFinding) -> str:
    """The text of a template from a problem on."""
    part = descend(node, problem.pointer)
    text = part.value if isinstance(part, Scalar) and isinstance(part.value, str) else ""
    return text[offset_of(text, problem.line, problem.column) :]


def shown_text(text: str) -> str:
    """The hint to write a text, in quotes."""
    quote = "'" if '"' in text else '"'
    return f"write {quote}{text}{quote}" if len(text) <= _MOST_SHOWN and "\n" not in text else "write {{ }}"


def _in_this_language(node: Node, problem: TemplateFinding, visible: Visible) -> str | None:
    """The hint for an expression of another language: the whole expression as a template; ``None`` if unknown."""
    part = descend(node, problem.pointer)
    text = part.value if isinstance(part, Scalar) and isinstance(part.value, str) else ""
    if problem.code == "statement_not_allowed":
        choice = as_choice(text)
        return f"write {choice}" if choice and len(choice) <= _MOST_SHOWN else None
    around = expression_around(text, offset_of(text, problem.line, problem.column))
    written = text[slice(*around)].strip() if around else ""
    mended = as_expression(written, visible.bindings, visible.step) if len(written) <= _MOST_SHOWN else written
    return f"write {{{{ {mended} }}}}" if mended != written else None


def _without_dollar(node: Node, problem: TemplateFinding, hint: str | None) -> str | None:
    """A hint about a name in ``${{ }}``, with the whole text without ``$``."""
    part = descend(node, problem.pointer)
    text = part.value if isinstance(part, Scalar) and isinstance(part.value, str) else ""
    around = expression_around(text, offset_of(text, problem.line, problem.column))
    found = re.match(r"write `([\w.]+)`", hint or "")
    if hint is None or found is None or around is None or text[around[0] - 3 : around[0] - 2] != "$":
        return hint
    before, after = text[: around[0] - 3], text[around[1] + 2 :]
    return f"{shown_text(f'{before}{{{{ {found[1]} }}}}{after}')}{hint[found.end() :]}"


_READS_ALONE: Final[MappingOf[str, str | None]] = {
    "schedule": "a schedule reads `schedule` alone, such as `schedule.due | date_format('%Y-%m-%d')` for the day; "
    "what else it needs, the playbook reads itself",
    "event": "a trigger reads `event` alone; what else it needs, the playbook reads itself",
}
"""The hints for names in documents whose templates read one namespace."""
_ONE_BRACE: Final = re.compile(r"(?<!\})\}(?!\})")
_DASHED: Final = re.compile(r"\w+(?:-\w+)+")
_COUNTS: Final = {"index": "iter.index + 1", "index0": "iter.index", "length": "iter.count"}
"""The members of Jinja's `loop`, with their equivalents here."""


def _of_name(name: str, node: Node, problem: TemplateFinding, visible: Visible) -> str | None:
    """The hint for a name by its surroundings: a key in brackets without quotes, a key of Jinja's `loop`."""
    read = _text_at(node, problem)
    part = descend(node, problem.pointer)
    text = part.value if isinstance(part, Scalar) and isinstance(part.value, str) else ""
    offset = offset_of(text, problem.line, problem.column)
    holder = re.search(r"[\w.]+\[$", text[max(offset - _MOST_SHOWN, 0) : offset])
    if holder is not None and read[len(name) : len(name) + 1] == "]":
        return f"a key stands in quotes: {holder[0]}'{name}']"
    found = re.match(r"loop\.(\w+)", read)
    word = _COUNTS.get(found[1]) if found and visible.iter.iterators else None
    return f"write `{word}`" if word else None


def _step_before(read: str, visible: Visible) -> str | None:
    """The hint for the result of an event that is read in a step, where there is only one other step."""
    others = [name for name, path in visible.bindings.items() if path == ("steps", name) and name != visible.step]
    found = re.match(r"event\.result((?:\.\w+)*)", read)
    return f"write `{others[0]}{found[1]}`" if found and len(others) == 1 else None


_BODIES: Final = frozenset(["body", "json"])


def filled_with(hint: str | None, read: str, visible: Visible) -> str | None:
    """A hint about a name, with the key that is read of it, and the iterator of the loop around."""
    if hint is None or "<" not in hint:
        return hint
    called, path = _CALLED.match(read), _PATH.match(read)
    keys = re.findall(_KEY, path[2]) if path else []
    passed = ("parameters", "outputs", *(("value", "json") if read.startswith("var.") else ()))
    names = [name for parts in keys if (name := "".join(parts)) not in passed]
    key = called[1] if called else names[0] if names else ""
    if "`steps.<name>`" in hint and names[1:2] and names[1] in _BODIES:
        key = f"{key}.data"
    iterator = visible.iter.iterators[0] if visible.iter.iterators else ""
    for token, word in (("<name>", key), ("<entry>", key), ("<iterator>", iterator)):
        hint = hint.replace(token, word) if word else hint
    return hint


def _hint_for(name: str, visible: Visible) -> str | None:
    match visible.elsewhere.get(name):
        case ("results", task):
            kept = f"steps.{visible.step}.results.{task}"
            return f"outside the pipeline, write `{kept}`, or `event.result` for the last task"
        case None:
            return BARE_NAMES.get(name) or did_you_mean(name, [*visible.bindings, *visible.namespaces])
        case path:
            return f"`{name}` means `{'.'.join(path)}`, which is not available here"
