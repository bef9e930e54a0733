"""Regular expressions take time in proportion to the text: no pattern can try one text in many ways.

Each repetition without bound must be left by the next character alone: what follows it cannot begin with a character
that it repeats. A possessive repetition (``*+``) gives nothing back and needs no such end. Patterns that take linear
time for another reason are listed with it. Users cannot write patterns: no filter, knob or setting takes one.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from operator import or_
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

import pytest

import noetl_stream

UNBOUNDED: Final = 64
"""A repetition of at least so many characters."""

ALPHABET: Final = frozenset(map(chr, range(128))) | {"\u00e9", "\u4e03", "\u2028"}

_OWN_TEXT: Final = "reads texts of this project"
_TO_THE_END: Final = "the end of the text ends it too, so that it never fails"

LINEAR: Final[dict[str, str]] = {
    "cli.examples._SECTION": _OWN_TEXT,
    "gateway.http.openapi._ROLE": _OWN_TEXT,
    "playbook.check.templates._CODE": _TO_THE_END,
    "playbook.vocabulary.names._GENERATED": "reads names of at most 128 characters",
    "settings.egress._NAME": "reads names that the operator sets; a dot ends each part",
    "template.compile.parsing._CODE": _TO_THE_END,
    "template.compile.parsing._QUOTED": _TO_THE_END,
    "template.runtime.evaluation._WRONG_CALL": "matches at the start alone, and a dot ends each part",
    "tools.nats.connections._NOT_PERMITTED": "reads one line of nats-server's own words",
    "tools.postgres.failures._BAD_ARGUMENT": "matches at the start alone, a message that ends as the pattern does",
    "tools.postgres.statements._TOKEN": "gives back a quote at most, and another alternative takes it",
}
"""Patterns that the rule refuses, by where they are, and why they take linear time all the same."""

FUNCTIONS: Final = frozenset({"match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
"""Those of ``re`` that take the text of a pattern."""

Chars = frozenset[str]


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Every pattern of the package, by module and name; one without a name by its text."""
    found: dict[str, re.Pattern[str]] = {}
    for info in pkgutil.walk_packages(noetl_stream.__path__, "noetl_stream."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for name, value in (*vars(module).items(), *called_with(source, vars(module))):
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                found[f"{info.name.removeprefix('noetl_stream.')}.{name}"] = value
    return found


def called_with(source: str, names: Mapping[str, Any]) -> Iterator[tuple[str, re.Pattern[str]]]:
    """The patterns that functions of ``re`` are called with as a text, or as the name of one in ``names``."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("re"), attr=function), args=[first, *others]):
                given = (*others, *(keyword.value for keyword in node.keywords))
                flags = [
                    getattr(re, one.attr) for one in given if isinstance(one, ast.Attribute) and one.attr.isupper()
                ]
                name = first.id if isinstance(first, ast.Name) else getattr(first, "value", None)
                text = names.get(str(name)) if isinstance(first, ast.Name) else name
                if function in FUNCTIONS and isinstance(text, str):
                    yield str(name), re.compile(text, reduce(or_, flags, 0))


def chars_of(op: Any, argument: Any, flags: int) -> Chars:
    """The characters that one element matches."""
    if op is sre.LITERAL:
        return frozenset({chr(argument)})
    if op is sre.NOT_LITERAL:
        return ALPHABET - {chr(argument)}
    if op is sre.ANY:
        return ALPHABET if flags & re.DOTALL else ALPHABET - {"\n"}
    assert op is sre.IN
    text = frozenset(char for char in ALPHABET if any(_is_in(char, part) for part in argument if part[0] != sre.NEGATE))
    return ALPHABET - text if argument[0][0] is sre.NEGATE else text


def _is_in(char: str, part: Any) -> bool:
    op, argument = part
    if op is sre.LITERAL:
        return ord(char) == argument
    if op is sre.RANGE:
        return bool(argument[0] <= ord(char) <= argument[1])
    assert op is sre.CATEGORY
    classes = {
        sre.CATEGORY_DIGIT: char.isdigit(),
        sre.CATEGORY_NOT_DIGIT: not char.isdigit(),
        sre.CATEGORY_SPACE: char.isspace(),
        sre.CATEGORY_NOT_SPACE: not char.isspace(),
        sre.CATEGORY_WORD: char.isalnum() or char == "_",
        sre.CATEGORY_NOT_WORD: not (char.isalnum() or char == "_"),
    }
    return classes[argument]


def first_of(items: list[Any], flags: int) -> tuple[Chars, bool]:
    """The characters that a sequence can begin with, and whether it can be empty."""
    found: Chars = frozenset()
    for op, argument in items:
        if op in (sre.AT, sre.ASSERT, sre.ASSERT_NOT):
            continue
        if op is sre.SUBPATTERN:
            chars, empty = first_of(list(argument[3]), flags)
        elif op is sre.ATOMIC_GROUP:
            chars, empty = first_of(list(argument), flags)
        elif op is sre.BRANCH:
            branches = [first_of(list(branch), flags) for branch in argument[1]]
            chars, empty = frozenset().union(*(one for one, _ in branches)), any(one for _, one in branches)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            chars, empty = first_of(list(argument[2]), flags)
            empty = empty or argument[0] == 0
        elif op is sre.GROUPREF:
            chars, empty = ALPHABET, True  # whatever the group was
        else:
            chars, empty = chars_of(op, argument, flags), False
        found |= chars
        if not empty:
            return found, False
    return found, True


def ambiguous(items: list[Any], after: Chars, flags: int) -> Iterator[str]:
    """Each repetition without bound that the character after it does not end, in a sequence followed by ``after``."""
    for position, (op, argument) in enumerate(items):
        rest, empty = first_of(items[position + 1 :], flags)
        follows = rest | after if empty else rest
        if op is sre.SUBPATTERN:
            yield from ambiguous(list(argument[3]), follows, flags)
        elif op is sre.BRANCH:
            for branch in argument[1]:
                yield from ambiguous(list(branch), follows, flags)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            least, most, body = argument
            chars, _ = first_of(list(body), flags)
            again = chars if most > 1 else frozenset()
            if most >= UNBOUNDED and chars & follows:
                yield f"what follows {{{least},{most}}} can begin with {sorted(chars & follows)[:5]}"
            yield from ambiguous(list(body), follows | again, flags)


def test_no_pattern_can_try_a_text_in_many_ways() -> None:
    found = {
        name: list(ambiguous(list(parser.parse(pattern.pattern, pattern.flags)), frozenset(), pattern.flags))
        for name, pattern in patterns().items()
    }
    wrong = [f"{name}: {ways}" for name, ways in found.items() if bool(ways) != (name in LINEAR)]
    assert not wrong, "\n".join(wrong)


def test_the_listed_patterns_exist() -> None:
    assert set(LINEAR) <= set(patterns())


def test_patterns_are_found_wherever_they_stand() -> None:
    source = 're.sub(r"a+", "", text)\nre.search(NAMED, text, re.DOTALL)\nre.match(f"{name}+", text)\nother.sub("b")'
    found = dict(called_with(source, {"NAMED": "c.+"}))
    assert {name: (one.pattern, one.flags) for name, one in found.items()} == {
        "a+": ("a+", re.UNICODE),
        "NAMED": ("c.+", re.UNICODE | re.DOTALL),
    }


@pytest.mark.parametrize("pattern", [r"(?:a+)+b", r"a*a*b", r"\w+\d+x", r"(?:ab*)*b", r"[#0]*[0-9]{1,9}?d"])
def test_the_rule_refuses_what_goes_back(pattern: str) -> None:
    assert list(ambiguous(list(parser.parse(pattern)), frozenset(), 0))
