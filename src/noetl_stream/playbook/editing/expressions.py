"""The paths that the templates of a text read, at their offsets, even in an unfinished template."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from noetl_stream.playbook.editing.tree import TextScalar


class ReadKey(msgspec.Struct, frozen=True):
    """One part of a path that a template reads, with its offsets in the file."""

    name: str
    start: int
    end: int


ReadPath = tuple[ReadKey, ...]

MAX_EXPRESSION_CHARS: Final = 2_000
"""The most characters of an expression that can be completed."""

_OPENING: Final = re.compile(r"\{\{|\{%|\{#")
_RAW: Final = re.compile(r"\{%-?\s*raw\s*-?%\}")
_END_OF_RAW: Final = re.compile(r"\{%-?\s*endraw\s*-?%\}|\Z")
_STRINGS: Final = {
    '"': r"\\\"(?P<s1>(?:(?!\\\").)*)(?:\\\"|\Z)|'(?P<s2>[^'\"]*)(?:'|\Z)",
    "'": r"''(?P<s1>(?:(?!'').)*)(?:''|\Z)|\"(?P<s2>(?:\\.|[^\"\\])*)(?:\"|\Z)",
    "": r"\"(?P<s1>(?:\\.|[^\"\\])*)(?:\"|\Z)|'(?P<s2>(?:\\.|[^'\\])*)(?:'|\Z)",
}
_TOKENS: Final = {
    quote: re.compile(
        rf"\s+|(?P<text>{strings})|(?P<name>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)|(?P<sign>==|\}}\}}|%\}}|-[%}}]\}}|.)",
        re.S,
    )
    for quote, strings in _STRINGS.items()
}
"""The patterns of tokens, by the quotes around the template."""
_WORDS: Final = frozenset(
    ["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None"]
)
_STATEMENTS: Final = _WORDS | {
    *("for", "endfor", "elif", "endif", "set", "endset", "with", "endwith", "macro", "endmacro"),
    *("call", "endcall", "filter", "endfilter", "recursive"),
}
_DEFINES: Final = re.compile(r"\{%-?\s*+(?:for|set|with|macro)\b([^%=}]*+)")
_NAME: Final = re.compile(r"\w+")
_OPEN: Final = {"(": ")", "[": "]", "{": "}"}


def reads_in(text: str, scalar: TextScalar) -> Iterator[ReadPath]:
    """The paths that a value's templates read. Names that a template defines itself are left out."""
    start, end = scalar.inner
    if "{" not in scalar.value or scalar.style == "*":
        return
    own = {name for found in _DEFINES.finditer(text, start, end) for name in _names_defined(found[1])}
    at = start
    while opening := _OPENING.search(text, at, end):
        at = opening.end()
        if raw := _RAW.match(text, opening.start(), end):
            closed = _END_OF_RAW.search(text, raw.end(), end)
            at = closed.end() if closed else end
        elif opening[0] == "{#":
            closing = text.find("#}", at, end)
            at = end if closing < 0 else closing + 2
        else:
            words = _WORDS if opening[0] == "{{" else _STATEMENTS
            paths, at = _paths(text, (at, end), scalar.style if scalar.style in ("'", '"') else "", words)
            yield from (path for path in paths if path[0].name not in own)


def expression_before(text: str, offset: int) -> str | None:
    """The expression around an offset, up to the offset; ``None`` outside of templates."""
    before = text[max(0, offset - MAX_EXPRESSION_CHARS) : offset]
    opened = max(before.rfind("{{"), before.rfind("{%"))
    closed = max(before.rfind("}}"), before.rfind("%}"))
    return before[opened + 2 :] if opened >= 0 and opened >= closed else None


def _names_defined(words: str) -> list[str]:
    """The names that the beginning of a statement defines: those before ``in``, else all."""
    names = _NAME.findall(words)
    return names[: names.index("in")] if "in" in names else names


def _paths(text: str, span: tuple[int, int], quote: str, words: Collection[str]) -> tuple[list[ReadPath], int]:
    """The paths in one template from after its opening, and its end.

    Args:
        span: The start and the latest end of the template.
        quote: The quotes around the template.
        words: The words that are not names.
    """
    at, end = span
    paths: list[ReadPath] = []
    path: list[ReadKey] = []
    brackets: list[str] = []
    before, waits_for = "", ""  # the last sign or word; the parts that may continue a path
    token = _TOKENS[quote]
    while at < end and (found := token.match(text, at, end)):
        at = found.end()
        if found.lastgroup is None:
            continue
        group = found.lastgroup if found.lastgroup in ("name", "number", "sign") else "text"
        here = found[0]
        if group == "sign" and not brackets and here in ("}}", "%}", "-}}", "-%}"):
            break
        if group == "sign" and len(here) > 1 and here != "==":
            at = found.start() + 1  # a closing brace of a mapping, and what follows it
            here = here[0]
        if group == "name" and path and waits_for == "name":
            path.append(ReadKey(here, found.start(), at))
            waits_for = ""
        elif group == "text" and path and waits_for == "text":
            inner = found["s1"] if found["s1"] is not None else found["s2"]
            start = found.start("s1") if found["s1"] is not None else found.start("s2")
            path.append(ReadKey(inner, start, start + len(inner)))
            waits_for = "]"
        elif path and not waits_for and here == ".":
            waits_for = "name"
        elif path and not waits_for and here == "[":
            waits_for = "text"
            brackets.append("]")
            before = here
            continue
        else:
            if here == "]" and waits_for == "]":
                waits_for = ""
                brackets.pop()
                before = here
                continue
            if path and not (here == "=" and len(path) == 1 and ")" in brackets):
                paths.append(tuple(path))
            path, waits_for = [], ""
            if group == "name" and here not in words and before not in ("|", ".", "is"):
                path = [ReadKey(here, found.start(), at)]
            elif here in _OPEN:
                brackets.append(_OPEN[here])
            elif brackets and here == brackets[-1]:
                brackets.pop()
        if not (before == "is" and here == "not"):
            before = here
    if path:
        paths.append(tuple(path))
    return paths, at
