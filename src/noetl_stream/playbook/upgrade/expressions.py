"""Rewrites of template text token by token, so that text without a matching rule stays unchanged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

Path = tuple[str | int, ...]
"""A name and the keys read of it: ``fetch.data[0]`` is ``("fetch", "data", 0)``."""

Replaced = tuple[int, str] | None
"""A replacement: the number of replaced parts of a path, and their new text; ``None`` for none."""

Rewrite = Callable[[Path], Replaced]

_TEMPLATE: Final = re.compile(r"""(\{\{|\{%)((?:'[^'\\]*+'|"[^"\\]*+"|[^%}]|\}(?!\})|%(?!\}))*+)""")
"""The opening and the code of a template, up to its end or that of the text. A quoted end does not count."""
_TOKEN: Final = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[A-Za-z_]\w*|\d[\w.]*|\s+|==|!=|<=|>=|//|\*\*|.""", re.DOTALL
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z")
_WORDS: Final = frozenset(
    "and or not in is if else elif endif for endfor set true false none True False None recursive".split()  # noqa: SIM905
)
_MAX_AROUND: Final = 3
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")


class _Found(msgspec.Struct, frozen=True):
    """A path in a list of tokens: its parts, each with the index of the token after it."""

    path: Path
    ends: tuple[int, ...]


def has_template(value: object) -> bool:
    """Whether a value is text with a template."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def expression_in(value: object) -> str | None:
    """The expression of a text that is exactly one; ``None`` for any other value."""
    text = value.strip() if isinstance(value, str) else ""
    if not (text.startswith("{{") and text.endswith("}}")):
        return None
    inner = text.removeprefix("{{").removesuffix("}}").removeprefix("-").removesuffix("-")
    return None if "{{" in inner or "}}" in inner else inner.strip()


def rewrite_text(text: str, rewrite: Rewrite) -> str:
    """Rewrites the paths in the templates of a text."""
    return with_code(text, lambda code: rewrite_expression(code, rewrite))


def with_code(text: str, change: Callable[[str], str]) -> str:
    """Changes the code of each template of a text."""
    return _TEMPLATE.sub(lambda match: match[1] + change(match[2]), text)


def rewrite_expression(expression: str, rewrite: Rewrite) -> str:
    """Rewrites the paths of an expression."""
    tokens = _TOKEN.findall(expression)
    out: list[str] = []
    index = 0
    while index < len(tokens):
        found = _path_at(tokens, index)
        replaced = rewrite(found.path) if found else None
        if found and replaced:
            out.append(replaced[1])
            index = found.ends[replaced[0] - 1]
            continue
        stop = found.ends[-1] if found else index + 1
        # What is in brackets may hold paths too; a path of only constant parts holds none.
        out += tokens[index:stop]
        index = stop
    return "".join(out)


def rename_to(name: str, new: str) -> Rewrite:
    """Makes the rewrite that renames a name."""
    return lambda path: (1, new) if path[0] == name else None


def paths_in(text: str) -> list[Path]:
    """The paths that a text reads, in order."""
    found: list[Path] = []

    def note(path: Path) -> Replaced:
        found.append(path)
        return None

    rewrite_text(text, note)
    return found


def path_text(path: Path) -> str:
    """The text of a path."""
    first, *more = path
    return str(first) + "".join(f".{part}" if _NAME.match(str(part)) else f"[{part!r}]" for part in more)


def conjuncts(expression: str) -> list[str]:
    """The parts of an expression that must all hold; one part if it is not a conjunction."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in _TOKEN.findall(_unwrap(expression)):
        depth += (token in _OPENING) - (token in _CLOSING)
        if depth == 0 and token in ("or", "if"):
            return [expression.strip()]
        if depth == 0 and token == "and":
            parts.append([])
        else:
            parts[-1].append(token)
    return ["".join(part).strip() for part in parts]


def negate(expression: str) -> str:
    """Negates an expression."""
    return f"not {group(expression)}"


def group(expression: str) -> str:
    """Groups an expression so that it can stand as an operand."""
    plain = _NAME.match(expression) or re.match(r"[\w.\[\]'\"]+\Z", expression)
    return expression if plain or _unwrap(expression) != expression else f"({expression})"


def all_of(*conditions: str) -> str:
    """Joins conditions to an expression that holds if all of them do."""
    kept = [one for one in conditions if one]
    return " and ".join(group(one) if " or " in one or " if " in one else one for one in kept)


def none_of(conditions: list[str]) -> str:
    """Joins conditions to an expression that holds if none of them does; empty without any."""
    return all_of(*(negate(one) for one in conditions))


def template(expression: str) -> str:
    """Makes a text that is exactly this expression."""
    return f"{{{{ {expression} }}}}"


def _unwrap(expression: str) -> str:
    """Removes the parentheses around the whole of an expression; nobody writes more than a few."""
    for _ in range(_MAX_AROUND):
        if not _is_wrapped(expression):
            break
        expression = expression.strip()[1:-1]
    return expression


def _is_wrapped(expression: str) -> bool:
    tokens = [token for token in _TOKEN.findall(expression) if not token.isspace()]
    if len(tokens) < 2 or tokens[0] != "(" or tokens[-1] != ")":
        return False
    depth = 0
    for token in tokens[:-1]:
        depth += (token in _OPENING) - (token in _CLOSING)
        if depth == 0:
            return False
    return True


def _path_at(tokens: list[str], index: int) -> _Found | None:
    """The path that begins at a token."""
    name = tokens[index]
    if not _NAME.match(name) or name in _WORDS:
        return None
    before = _neighbour(tokens, index, -1)
    if before in (".", "|", "is") or (before == "not" and _neighbour(tokens, _index(tokens, index, -1), -1) == "is"):
        return None
    after = _neighbour(tokens, index, 1)
    if after == "=" or (after == "(" and before != "{{"):
        return None
    parts: list[str | int] = [name]
    ends = [index + 1]
    at = index + 1
    while at < len(tokens):
        if tokens[at] == "." and at + 1 < len(tokens) and _NAME.match(tokens[at + 1]):
            if _neighbour(tokens, at + 1, 1) == "(":
                break  # a method
            parts.append(tokens[at + 1])
            at += 2
        elif tokens[at] == "[" and at + 2 < len(tokens) and tokens[at + 2] == "]" and _is_constant(tokens[at + 1]):
            inner = tokens[at + 1]
            parts.append(int(inner) if inner.isdigit() else inner[1:-1])
            at += 3
        else:
            break
        ends.append(at)
    return _Found(tuple(parts), tuple(ends))


def _is_constant(token: str) -> bool:
    return token.isdigit() or token[0] in "'\""


def _index(tokens: list[str], index: int, step: int) -> int:
    index += step
    while 0 <= index < len(tokens) and tokens[index].isspace():
        index += step
    return index


def _neighbour(tokens: list[str], index: int, step: int) -> str:
    found = _index(tokens, index, step)
    return tokens[found] if 0 <= found < len(tokens) else ""
