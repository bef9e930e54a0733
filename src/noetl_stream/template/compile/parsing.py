"""Parses text to Jinja's syntax tree with exact positions, and collects the problems of a text while it is compiled.

A node's ``lineno`` is an offset into the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from jinja2 import TemplateSyntaxError, nodes
from jinja2.lexer import Lexer, TokenStream
from jinja2.sandbox import SandboxedEnvironment

from noetl_stream.template.failures import FindingCode, TemplateFinding, closest, shorten
from noetl_stream.template.runtime.scope import NAMESPACES

TEMPLATE_MARK: Final = re.compile(r"\{\{|\{%")
"""The marks that make a text a template."""

# An unclosed part extends to the end of the text, so that each pattern reads a character once.
_CODE: Final = re.compile(r"\{\{.*?(?:\}\}|\Z)|\{%.*?(?:%\}|\Z)|\{#.*?(?:#\}|\Z)|\r", re.DOTALL)
_QUOTED: Final = re.compile(r"""'(?:\\.|[^'\\])*(?:'|\\?\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z)|\r""", re.DOTALL)
_OTHER_SYNTAX: Final = {
    r"unexpected char '\?'": "`?` is not an operator: write `value if condition else other`",
    r"unexpected char '&'": "`&&` is not an operator: write `and`",
    r"expected token 'name', got '\|'": "`||` is not an operator: write `or`, or `default(…)` for what may be absent",
    r"unexpected char '!'": "`!` is not an operator: write `not`",
    r"(unexpected|.*got) '='": "`=` is not an operator here: compare with `==`",
    r"unexpected char '\$'": "`$` is not part of a name: write the path, such as `workload.url`",
    r"expected token 'name', got 'integer'": "`is` asks for a test, such as `defined`: compare values with `==`",
    r"unexpected char '`'": "text stands in quotes, and is joined with `~`",
    r"unexpected char '[\u2018\u2019\u201c\u201d]'": "text stands in straight quotes, ' or \"",
    r"unexpected '\}'": "an expression ends with two braces, `}}`",
    r"unexpected char [\"']['\"]": "the quote that opens here is not closed",
    r"expected token ':', got '\}'": "braces open a mapping: of another template, write the expression alone",
    r"expected token ',', got 'for'": "a list is not made with `for`: write `rows | map(attribute='name') | list`",
}
"""The advice for another language's syntax, by a pattern of Jinja's message."""
_OTHER_WORDS: Final = {
    r"\blambda\b": "there is no `lambda`: write `rows | map(attribute='name')` or `rows | selectattr('size', '>', 3)`",
    r"=>": "there are no functions `x => …`: write `rows | map(attribute='name')` or `rows | selectattr('ok')`",
    r"\b[fr]['\"]": "a text has no prefix: join texts with `~`, as in `'a' ~ workload.url`",
}
"""The advice for words of other languages, by a pattern of a text that does not parse."""
_TOKEN_NAMES: Final = {"'end of print statement'": "`}}`", "'end of statement block'": "`%}`"}
_STAND_INS: Final = range(0xE000, 0x110000)


class TextError(Exception):
    """A syntax error of a template and its offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message: Final = message
        self.offset: Final = offset


class ParsingEnvironment(SandboxedEnvironment):
    """A Jinja environment that parses with offsets instead of line numbers."""

    def _tokenize(
        self, source: str, name: str | None, filename: str | None = None, state: str | None = None
    ) -> TokenStream:
        tokens = _with_offsets(self.lexer, source)
        return TokenStream(self.lexer.wrap(tokens, name, filename), name, filename)


def parse(environment: ParsingEnvironment, text: str) -> nodes.Template:
    """Parses ``text`` to a syntax tree.

    Raises:
        TextError: The text does not parse.
    """
    prepared, stand_in = _hide_carriage_returns(text)
    try:
        tree = environment._parse(prepared, None, None)  # noqa: SLF001  `parse` hides the line in a traceback
    except TemplateSyntaxError as error:
        raise TextError(_plain_message(error.message or "invalid template", text), error.lineno) from None
    except RecursionError:
        raise TextError("the template is nested too deeply", 0) from None
    except (ValueError, OverflowError) as error:
        raise TextError(f"invalid template: {error}", 0) from None
    if stand_in:
        _show_carriage_returns(tree, stand_in)
    return tree


def place_of(text: str, offset: int) -> tuple[int, int]:
    """The line and column of an offset in the text, both from 1."""
    before = text[: min(offset, len(text))].replace("\r\n", " \n")
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _plain_message(message: str, text: str) -> str:
    for jinja_name, token in _TOKEN_NAMES.items():
        message = message.replace(jinja_name, token)
    of_words = next((advice for pattern, advice in _OTHER_WORDS.items() if re.search(pattern, text)), message)
    found = next((advice for pattern, advice in _OTHER_SYNTAX.items() if re.match(pattern, message)), of_words)
    return found.rstrip(".")


def _with_offsets(lexer: Lexer, source: str) -> Iterator[tuple[int, str, str]]:
    position = 0
    tokens = lexer.tokeniter(source, None, None)
    while True:
        try:
            _line, token, text = next(tokens)
        except StopIteration:
            return
        except TemplateSyntaxError as error:
            error.lineno = _next_visible(source, position)
            raise
        # Only white space and its control marks lie between two tokens, so the next match is the token.
        found = source.find(text, position)
        offset = found if found >= 0 else position
        yield offset, token, text
        position = offset + len(text)


def _next_visible(source: str, position: int) -> int:
    while position < len(source) and source[position].isspace():
        position += 1
    return min(position, max(len(source) - 1, 0))


def _hide_carriage_returns(text: str) -> tuple[str, str]:
    # Jinja turns every line break into "\n". To keep "\r\n" in a body, "\r" is replaced during parsing by a character
    # that the text does not contain. In code, outside quotes, it is white space.
    if "\r" not in text:
        return text, ""
    stand_in = next(chr(code) for code in _STAND_INS if chr(code) not in text)

    def replace_in_code(match: re.Match[str]) -> str:
        return " " if match[0] == "\r" else match[0].replace("\r", stand_in)

    def replace_in_text(match: re.Match[str]) -> str:
        return stand_in if match[0] == "\r" else _QUOTED.sub(replace_in_code, match[0])

    return _CODE.sub(replace_in_text, text), stand_in


def _show_carriage_returns(tree: nodes.Template, stand_in: str) -> None:
    pending: list[nodes.Node] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, nodes.TemplateData):
            node.data = node.data.replace(stand_in, "\r")
        elif isinstance(node, nodes.Const) and isinstance(node.value, str):
            node.value = node.value.replace(stand_in, "\r")
        pending.extend(node.iter_child_nodes())


def is_one_expression(text: str, tree: nodes.Template) -> bool:
    """Whether the text is exactly one ``{{ expression }}``, surrounding white space ignored."""
    stripped = text.strip()
    return stripped.startswith("{{") and stripped.endswith("}}") and single_expression(tree) is not None


def single_expression(tree: nodes.Template) -> nodes.Expr | None:
    """The expression of a tree that prints one expression and only white space around it."""
    printed: list[Any] = []
    for statement in tree.body:
        if not isinstance(statement, nodes.Output):
            return None
        printed += [node for node in statement.nodes if not _is_blank(node)]
    return printed[0] if len(printed) == 1 and not isinstance(printed[0], nodes.TemplateData) else None


def _is_blank(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.TemplateData) and not node.data.strip()


Bindings: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""Bare names with their paths: ``{"total": ("ctx", "total")}``; ``None`` for a name that is not bound."""

MAX_PROBLEMS: Final = 50
"""The most problems reported for one text."""

_NAME_CHARS: Final = 80
_WHERE_ALLOWED: Final = {
    "outcome": "use `outcome` in task policies only; elsewhere read the task's result, or `<task>.outcome`",
    "event": "use `event` in the arcs of `next` only",
    "keychain": "use `keychain` in tool inputs only",
    "token": "use `token` in admission guards only",
    "_prev": "use `_prev` inside a pipeline only",
    "_task": "use `_task` in the inputs and policy of a task only",
    "_attempt": "use `_attempt` in the inputs and policy of a task only",
    "results": "use `results` inside a pipeline only",
    "iter": "use `iter` inside a pipeline or in an inner loop only",
    "args": "use `args` inside a step only",
    "vars": "use `vars` inside a pipeline or in the arcs of its step only",
    **dict.fromkeys(("ctx", "steps"), "nothing has run yet where this is asked: use `workload`"),
}
_OTHER_FUNCTIONS: Final = {
    **{word: f"write it as a filter: `x | {name}`" for word, name in (("len", "length"), ("str", "string"))},
    **{
        word: f"write it as a filter: `x | {word}`"
        for word in (
            *("int", "float", "abs", "round", "sum", "min", "max"),
            *("sorted", "list", "lower", "upper", "join", "default"),
        )
    },
    "sorted": "write it as a filter: `x | sort`",
    "bool": "compare instead: `x == true`, or `x | string == 'true'` of text",
    **dict.fromkeys(
        ("now", "utcnow", "today", "datetime", "timestamp", "date"),
        "a template has no clock, since it is evaluated again: write `execution.started`, or `execution.due` of what a "
        "schedule starts, with `| date_format('%Y-%m-%d')` for the day",
    ),
    **dict.fromkeys(
        ("env", "lookup", "var", "env_var"),
        "no environment is visible: pass it in as `workload.<name>`, or a secret as `keychain.<entry>`, declared as "
        "keychain: [ { name: <entry>, kind: env, variable: <entry> } ]",
    ),
    **dict.fromkeys(
        ("secret", "secrets", "vault"),
        "write `keychain.<entry>`, and declare it as keychain: [ { name: <entry>, kind: credential } ]",
    ),
    **dict.fromkeys(("uuid", "uuid4", "random", "rand"), "a template has no random source: use `execution_id`"),
    "ref": "name the table itself, <name>; of the result of a step, duckdb makes one: "
    'tables: { <name>: "{{ <name>.data }}" }',
    **dict.fromkeys(("output", "outputs", "result", "fromJSON", "xcom_pull"), "write `steps.<name>`"),
    **dict.fromkeys(
        ("success", "failure", "always", "failed"),
        "a guard of an arc reads how its step ended: `event.name == 'step.done'`, `event.name == 'step.failed'`; "
        "an arc that always leads on has no `when`",
    ),
    "toJSON": "write it as a filter: `x | tojson`",
    **dict.fromkeys(
        ("config", "source", "this", "macro"), "this is not a dbt model: write the name of the table itself"
    ),
    "print": "a value is written by its name alone",
}
"""The replacements for functions of other languages."""
OTHER_FILTERS: Final = {
    **dict.fromkeys(
        ("strftime", "date", "dateformat", "format_date", "datetimeformat"), "write `date_format('%Y-%m-%d')`"
    ),
    **dict.fromkeys(("strptime", "to_datetime", "parse_date", "as_datetime"), "write `date_parse`"),
    **dict.fromkeys(("to_json", "json", "dump", "json_encode"), "write `tojson`"),
    **dict.fromkeys(
        ("from_json", "fromjson", "parse_json", "from_yaml"),
        "a body of JSON is read as a value already; parse text in a python task",
    ),
    **dict.fromkeys(("to_int", "number"), "write `int`, or `| float`"),
    **dict.fromkeys(
        ("regex_replace", "regex_search", "regex_findall", "match", "search"),
        "templates have no regular expressions: use a python task, or `replace('a', 'b')` for plain text",
    ),
    **dict.fromkeys(("to_nice_json", "to_yaml", "to_nice_yaml", "pprint"), "write `tojson`"),
    **dict.fromkeys(("bool", "to_bool"), "compare instead: `x == true`, or `x | string == 'true'` of text"),
    **dict.fromkeys(("combine", "merge"), "write `dict(a, **b)`, or a python task"),
    **dict.fromkeys(("ds", "ts", "ds_nodash"), "write `date_format('%Y-%m-%d')`"),
    "split": "write `text.split(',')`",
    "url_encode": "write `urlencode`",
    "size": "write `length`",
}
"""Filters of other tools, with their replacements."""

OTHER_METHODS: Final = {
    "json": "the body of a response is parsed already: read `.data`",
    **dict.fromkeys(("append", "push", "extend"), "a list is not changed: write `x + [y]`"),
    **dict.fromkeys(("length", "len", "size", "count"), "write it as a filter: `x | length`"),
    **dict.fromkeys(("map", "filter"), "write it as a filter: `x | map(attribute='name')`, `x | selectattr('ok')`"),
    **dict.fromkeys(("toLowerCase", "toUpperCase"), "write it as a filter: `x | lower`, `x | upper`"),
    **dict.fromkeys(("toString", "to_string"), "write it as a filter: `x | string`"),
    "includes": "write `y in x`",
    "contains": "write `y in x`",
    "trim": "write it as a filter: `x | trim`",
    **dict.fromkeys(
        ("strftime", "isoformat", "date", "toISOString", "toLocaleDateString", "to_date_string", "format_date"),
        "a time is text: write it as a filter: `x | date_format('%Y-%m-%d')`",
    ),
    **dict.fromkeys(("add_days", "addDays", "plusDays", "subtract"), "write it as a filter: `x | date_add(1, 'day')`"),
    **dict.fromkeys(("subString", "substring", "substr", "slice"), "write a slice: `x[0:3]`"),
    "replaceAll": "write `x.replace('a', 'b')`, which replaces all",
    "concat": "write `x ~ y` of texts, `x + y` of lists",
}
"""The replacements for methods of other languages."""
_OTHER_LANGUAGES: Final = {"null": "none", "nil": "none", "undefined": "none", "TRUE": "true", "FALSE": "false"}


class Findings:
    """The problems of one text with their positions, up to :data:`MAX_PROBLEMS`."""

    def __init__(self, text: str, pointer: tuple[str | int, ...]) -> None:
        self._text: Final = text
        self._pointer: Final = pointer
        self._problems: Final[list[TemplateFinding]] = []

    @property
    def problems(self) -> list[TemplateFinding]:
        """The problems, in text order."""
        return sorted(self._problems, key=lambda problem: (problem.line, problem.column))

    @property
    def full(self) -> bool:
        """Whether further problems are dropped."""
        return len(self._problems) >= MAX_PROBLEMS

    def add(
        self, code: FindingCode, message: str, offset: int, hint: str | None = None, *, name: str | None = None
    ) -> None:
        """Adds a problem at ``offset`` of the text; ``name`` is the name that is not defined."""
        if not self.full:
            line, column = place_of(self._text, offset)
            self._problems.append(TemplateFinding(code, message, hint, self._pointer, line, column, name=name))


class Names(msgspec.Struct, frozen=True):
    """The names that can be used at one place of a playbook."""

    namespaces: frozenset[str]
    bindings: Bindings
    functions: frozenset[str]

    def resolve(self, node: nodes.Name, findings: Findings) -> tuple[str, ...] | None:
        """The path of a name; ``None``, after reporting it, if it has none."""
        name = node.name
        if name in self.namespaces:
            return (name,)
        bound = self.bindings.get(name)
        shown = shorten(name, _NAME_CHARS)
        # `token` is a namespace in admission guards only; elsewhere a playbook may use the name.
        if name in NAMESPACES and not (name == "token" and bound):
            _report_unavailable(name, f"`{name}` is not available here", node, findings)
        elif bound is None:
            if not findings.full:
                message = f"`{shown}` is not defined"
                hint = None if name in self.bindings else self._unbound_hint(name)
                findings.add("unbound_name", message, node.lineno, hint, name=name)
        elif bound[0] not in self.namespaces:
            message = f"`{shown}` means `{'.'.join(bound)}`, which is not available here"
            _report_unavailable(bound[0], message, node, findings)
        else:
            return bound
        return None

    def report_unknown_function(self, callee: nodes.Name, findings: Findings) -> None:
        name, known = shorten(callee.name, _NAME_CHARS), ", ".join(f"`{name}()`" for name in sorted(self.functions))
        if callee.name in self.bindings or callee.name in NAMESPACES:
            findings.add("template_syntax", f"`{name}` is not a function", callee.lineno)
        else:
            message, hint = f"unknown function `{name}`", _OTHER_FUNCTIONS.get(name) or f"functions: {known}"
            findings.add("unbound_name", message, callee.lineno, hint, name=callee.name)

    def _unbound_hint(self, name: str) -> str:
        if name in _OTHER_LANGUAGES:
            return f"write `{_OTHER_LANGUAGES[name]}`"
        close = closest(name, sorted({*self.bindings, *self.namespaces}))
        guess = f"did you mean `{close}`? if not, " if close else ""
        name = shorten(name, _NAME_CHARS)
        return f"{guess}write `workload.{name}`, `ctx.{name}` or `args.{name}` for a value from outside"


def _report_unavailable(namespace: str, message: str, node: nodes.Node, findings: Findings) -> None:
    findings.add("namespace_not_here", message, node.lineno, _WHERE_ALLOWED.get(namespace))
