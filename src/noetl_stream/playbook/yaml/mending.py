"""Corrected forms of lines that are not YAML: hints of syntax errors."""

from __future__ import annotations

import re
from typing import Final

from noetl_stream.playbook.yaml.nodes import Mapping, Node, written

_PAIR: Final = re.compile(r"(\s*(?:- +)*)([\w.][\w.-]*): +(\S[^\n]*)")
"""A line with a key and its value, in block style."""
_BARE: Final = re.compile(r"\{\{[^{}\n]*\}\}[^,\]}\n#]*")
"""A template without quotes, and the text after it."""
_TEXT: Final = re.compile(r'"([^"{}\n]*\{\{[^{}\n]*\}\}[^"{}\n]*)"')
"""A text in double quotes with a template, which may have such quotes, too."""
_CRON: Final = re.compile(r"\*(?:/\d+)?(?: +[\d*/,-]+){4}")
_COMMENT: Final = re.compile(r"[ \t]*#")
_MOST_SHOWN: Final = 120
SAME_VALUE: Final = "remove this one: both have the same value"


def _line(text: str, line: int) -> str:
    lines = text.split("\n")
    return lines[line - 1] if 0 < line <= len(lines) else ""


def _quoted(value: str) -> str:
    """A text in the kind of quotes that it does not contain."""
    value = value.strip()
    return (
        f"'{value}'"
        if '"' in value and "'" not in value
        else f'"{value}"'.replace('"', "'")
        if "\\" in value
        else ('"' + value.replace('"', '\\"') + '"')
    )


def _also(lines: list[int]) -> str:
    return f"; the same on line {', '.join(map(str, lines))}" if lines else ""


def quoted_template(text: str, line: int, column: int) -> str:
    """The hint for a template without quotes: the pair with quotes, or the template alone."""
    here = _line(text, line)
    pair = _PAIR.fullmatch(here)
    if pair and len(pair[1]) + len(pair[2]) < column and pair[3].startswith("{{"):
        shown = f"{pair[2]}: {_quoted(pair[3].partition(' #')[0])}"
    else:
        found = _BARE.match(here, column - 1)
        shown = _quoted(found[0]) if found else ""
    return f"write {shown}" if shown and len(shown) <= _MOST_SHOWN else 'quote the template: "{{ … }}"'


def _has_quotes(line: str) -> bool:
    found = _TEXT.search(line)
    return found is not None and '"' in found[1]


def quotes_in_template(text: str, line: int) -> str | None:
    """The hint for a text in double quotes with double quotes within its template, there and on other lines."""
    found = _TEXT.search(_line(text, line))
    if found is None or "'" in found[1] or '"' not in found[1]:
        return None
    shown = found[1].replace('"', "'")
    lines = [number for number, one in enumerate(text.split("\n"), 1) if number != line and _has_quotes(one)]
    return f'write "{shown}"{_also(lines)}' if len(shown) <= _MOST_SHOWN else None


def quoted_text(text: str, line: int) -> str | None:
    """The hint for text with a colon: the pair with quotes, or the beginning of a block of several lines."""
    here = _line(text, line)
    depth = len(here) - len(here.lstrip())
    lines = text.split("\n")[: line - 1]
    above = [one for one in lines if one.strip() and len(one) - len(one.lstrip()) < depth]
    if above and re.fullmatch(
        r"\s*(?:- +)*(?:code|command|script|body|text|query|statement|description|stdin): *", above[-1]
    ):
        key = above[-1].strip().removeprefix("- ").rstrip(": ")
        return f"put a bar behind the key, since text of several lines begins with one: {key}: |"
    pair = _PAIR.fullmatch(here)
    if pair is None:
        return None
    if ": " not in pair[3]:
        return f"indent `{pair[2]}` like the keys beside it"
    if pair[3][0] in "{['\"|>&*":
        return None
    shown = f"{pair[2]}: {_quoted(pair[3])}"
    return f"write {shown}" if len(shown) <= _MOST_SHOWN else None


def single_quoted(text: str, line: int, column: int) -> str | None:
    r"""The hint for a text in double quotes with a backslash that begins no escape, such as ``\d``."""
    found = re.match(r'"([^"\n]*)"', _line(text, line)[column - 1 :])
    return f"write '{found[1]}', since a backslash is plain in single quotes" if found and "'" not in found[1] else None


def quoted_star(text: str, line: int, column: int) -> str | None:
    """The hint for text that begins with ``*``, which is an alias in YAML."""
    here = _line(text, line)
    pair = _PAIR.fullmatch(here)
    if pair is None or not pair[3].startswith("*") or len(pair[1]) + len(pair[2]) + 2 >= column + 1:
        return None
    value = pair[3].partition(" #")[0].strip()
    shown = f'[ "{value}" ]' if pair[2] == "cron" or _CRON.fullmatch(value) else f'"{value}"'
    return f"write {pair[2]}: {shown}" if '"' not in value else None


def merged(name: str, first: Node, first_line: int, second: Node) -> str:
    """The hint for a repeated key: both values in one, if they do not contradict each other."""
    if isinstance(first, Mapping) and isinstance(second, Mapping) and not first.keys.keys() & second.keys.keys():
        moved = ", ".join(f"`{key}`" for key in second.keys)
        shown = written({name: {**first.plain(), **second.plain()}}).removeprefix("{ ").removesuffix(" }")
        if len(shown) <= _MOST_SHOWN:
            return f"in place of both, write {shown}"
        return f"move {moved} under the `{name}` of line {first_line}, and remove this one"
    if repr(first.plain()) == repr(second.plain()):  # 1 == True in Python, but not in YAML
        return SAME_VALUE
    return "remove the one that you do not mean"


def cut_by_comment(text: str, start: int, end: int) -> tuple[str, str] | None:
    """The part of plain text with a template that a comment cuts off, and the text in quotes; ``None`` without one."""
    if _COMMENT.match(text, end) is None:
        return None
    stop = text.find("\n", end)
    rest = text[end : stop if stop >= 0 else len(text)]
    kept = text[start:end].rstrip()
    has_opened = kept.count("{{") > kept.count("}}")
    if "\n" in kept or not (has_opened or rest.lstrip().startswith("#{{")):
        return None
    return rest.strip(), _quoted(kept + " " + rest.strip())
