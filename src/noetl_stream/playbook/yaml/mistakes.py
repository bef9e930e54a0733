"""Mistakes in texts that are not YAML: a scan of the lines up to the first obvious one, since the parser only reports
where it gave up, which is often some lines further on; and corrected forms of lines, for hints.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from noetl_stream.playbook.yaml.nodes import Mapping, Node, written

_ENTRY: Final = re.compile(r"""( *)((?:- ++)*+(?:-$)?)(?:([\w.$/-]+|"[^"]*"|'[^']*')(:)(?= |$))?""")
"""The beginning of a line in block style: its indentation, dashes and key."""
_BLOCK: Final = re.compile(r"(?:[&!]\S+ +)*[|>][-+0-9]*(?: +#.*)?$")
_PROPERTIES: Final = re.compile(r"[&!]\S+(?: +|$)")
_CLOSED_WORD: Final = re.compile(r"(?:-?[\d.]+|true|false|null|\[\]|\{\})\Z")
_PLAIN: Final = re.compile(r"\{\{[^{}]*\}\}[^,\]}]*|(?:(?!: |:$| #)[^,\[\]{}])+")
_CLOSES: Final = {"{": "}", "[": "]"}
_MOST_SHOWN: Final = 120

_PAIR: Final = re.compile(r"(\s*(?:- +)*)([\w.][\w.-]*): +(\S[^\n]*)")
"""A line with a key and its value, in block style."""
_BARE: Final = re.compile(r"\{\{[^{}\n]*\}\}[^,\]}\n#]*")
"""A template without quotes, and the text after it."""
_TEXT: Final = re.compile(r'"([^"{}\n]*\{\{[^{}\n]*\}\}[^"{}\n]*)"')
"""A text in double quotes with a template, which may have such quotes, too."""
_CRON: Final = re.compile(r"\*(?:/\d+)?(?: +[\d*/,-]+){4}")
_COMMENT: Final = re.compile(r"[ \t]*#")
SAME_VALUE: Final = "remove this one: both have the same value"


class LineFinding(NamedTuple):
    """A mistake in a line, its place from 1, and the replacement."""

    line: int
    column: int
    message: str
    hint: str


class _Opened(NamedTuple):
    mark: str
    line: int
    column: int


class _Level(NamedTuple):
    """The entries of a mapping or list in block style, which begin at one column."""

    column: int
    is_list: bool
    line: int


def first_mistake(text: str) -> LineFinding | None:
    """The first line of a text with a known mistake; ``None`` if there is none."""
    scan = _Scan(text.split("\n"))
    for number, line in enumerate(scan.lines, 1):
        if (found := scan.read(number, line.rstrip())) is not None:
            return found
    return scan.unclosed(len(scan.lines))


class _Scan:
    """The open parts at the present place: quotes, brackets, the levels of block style, the text of a block."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._quote: _Opened | None = None
        self._brackets: list[_Opened] = []
        self._levels: list[_Level] = []
        self._block: _Opened | None = None
        self._block_column = 0
        self._may_deepen = True
        self._is_value_done = self._has_colon = False

    def read(self, number: int, line: str) -> LineFinding | None:
        """Reads the next line."""
        indent = len(line) - len(line.lstrip(" "))
        is_comment = line.lstrip().startswith("#") and (self._block is None or indent < self._block.column)
        if not line.strip() or is_comment or line in ("---", "..."):
            return None
        entry = _ENTRY.match(line)
        assert entry is not None
        is_entry = bool(entry[2] or entry[3])
        if self._block is not None:
            if indent >= self._block.column:
                self._block_column = self._block_column or indent + 1
                return None
            if not is_entry:
                return self._outside_block(number, indent)
            self._block = None
        if self._quote is not None or self._brackets:
            opened = self._brackets[0] if self._brackets else self._quote
            assert opened is not None
            around = len(self.lines[opened.line - 1]) - len(self.lines[opened.line - 1].lstrip(" "))
            if is_entry and (indent <= around or self._quote is not None):
                return self.unclosed(number)
            return self._values(number, line, 0)
        if not is_entry:
            return self._no_entry(number, line, indent)
        return self._level_of(number, entry) or self._entry(number, line, entry)

    def _entry(self, number: int, line: str, entry: re.Match[str]) -> LineFinding | None:
        at = entry.end()
        rest = line[at:].strip()
        column = entry.start(3) if entry[3] else entry.start(2)
        if _BLOCK.match(rest):
            self._block, self._block_column = (
                _Opened(f"{entry[3] or '-'}{entry[4] or ''} {rest[0]}", number, column + 1),
                0,
            )
            self._may_deepen = False
            return None
        properties = _PROPERTIES.match(rest)
        rest = rest[properties.end() :] if properties else rest
        self._may_deepen = not rest or rest.startswith("#")
        if not entry[3] and rest[:1] not in "\"'{[":
            return None
        return self._values(number, line, len(line) - len(line[at:].lstrip())) if rest else None

    def _outside_block(self, number: int, indent: int) -> LineFinding:
        """The finding of a line that is less indented than the text of the block that it continues."""
        assert self._block is not None
        column = self._block_column or self._block.column + 2
        message = f"this line is no longer in the text of `{self._block.mark}` (line {self._block.line})"
        hint = f"indent the text deeper than its key: to column {column}"
        return LineFinding(number, indent + 1, message, hint)

    def _no_entry(self, number: int, line: str, indent: int) -> LineFinding | None:
        """The finding of a line that is neither an entry nor continues a text."""
        top = self._levels[-1].column if self._levels else 0
        following = self._next_entry(number)
        is_word = re.fullmatch(r"\s*\w+", line) is not None and following > indent
        begins_level = self._may_deepen and indent >= top and (following == indent or is_word)
        if not top or (indent >= top and not begins_level) or line.lstrip()[0] in "\"'{[":
            return None
        found = re.match(r" *([A-Za-z_]\w*+)(:?) ?(.*)", line)
        if found is None or re.search(r":(?= |$)", line):
            self._may_deepen = True  # a key of several words
            return None
        shown = f"write {found[1]}: {found[3]}".rstrip() if len(line) <= _MOST_SHOWN else "write `key: value`"
        what = f"`{found[1]}:` needs a space behind the colon" if found[2] else f"`{found[1]}` has no colon"
        return LineFinding(number, indent + 1, f"this line is no `key: value`: {what}", shown)

    def _next_entry(self, number: int) -> int:
        """The indentation of the next line; -1 if it is not an entry."""
        lines = (self.lines[index] for index in range(number, len(self.lines)))
        line = next((one for one in lines if one.strip()), "")
        entry = _ENTRY.match(line)
        return len(entry[1]) if entry and (entry[2] or entry[3]) else -1

    def _level_of(self, number: int, entry: re.Match[str]) -> LineFinding | None:
        """Finds the level of an entry; returns the finding if there is none at its column."""
        column, is_list = len(entry[1]) + 1, bool(entry[2])
        left: list[_Level] = []
        while self._levels and self._levels[-1].column > column:
            left.append(self._levels.pop())
        top = self._levels[-1] if self._levels else None
        if top is not None and top.column == column and top.is_list and not is_list:
            if [one.column for one in self._levels[-2:-1]] != [column]:
                return self._beside_list(number, entry, top)
            self._levels.pop()
        elif top is not None and top.column == column and is_list and not top.is_list and not self._may_deepen:
            return None
        elif top is not None and top.column < column and not self._may_deepen:
            alike = [(abs(one.column - column), one) for one in (*left, top) if one.is_list == is_list]
            distance, near = min(alike, default=(0, top))
            if not 0 < distance < 3:
                return None
            others = [one for other, one in alike if other == distance and one != near]
            if others:
                message = f"this `{entry[3] or '-'}` stands between two levels"
                ways = " or ".join(f"to column {one.column}, beside line {one.line}" for one in (near, *others))
                return LineFinding(number, column, message, f"move it {ways}")
            side = "right" if near.column < column else "left"
            by = "one column" if distance == 1 else f"{distance} columns"
            what = "`-`" if is_list else f"`{entry[3]}`"
            message = f"this {what} stands {by} {side} of the one on line {near.line}, which it belongs beside"
            return LineFinding(number, column, message, f"move it to column {near.column}")
        self._deepen(number, entry)
        return None

    def _deepen(self, number: int, entry: re.Match[str]) -> None:
        columns = [(entry.start(2) + at + 1, True) for at, mark in enumerate(entry[2]) if mark == "-"]
        columns += [(entry.start(3) + 1, False)] if entry[3] else []
        for column, is_list in columns:
            known = next((index for index, one in enumerate(self._levels) if one[:2] == (column, is_list)), None)
            if known is None:
                self._levels.append(_Level(column, is_list, number))
            else:
                self._levels[known:] = [_Level(column, is_list, number)]

    def _beside_list(self, number: int, entry: re.Match[str], around: _Level) -> LineFinding:
        """The finding of a key at the column of a list's dashes."""
        holder = next((one for one in reversed(self._levels) if not one.is_list), None)
        first = self.lines[around.line - 1].strip()
        if first.startswith(f"- {entry[3]}:"):
            message = f"`{entry[3]}` begins the next item of the list, and has no dash"
            return LineFinding(number, around.column, message, f"put `- ` before `{entry[3]}`")
        where = f", or move it to column {holder.column}, beside the key of the list" if holder else ""
        message = f"`{entry[3]}` stands beside the items of the list of line {around.line}, which are all `- `"
        inside = f"to put it into the item above, move it to column {around.column + 2}"
        return LineFinding(number, around.column, message, f"{inside}{where}")

    def _values(self, number: int, line: str, at: int) -> LineFinding | None:
        """Reads the values of a line from an offset on: quotes and brackets."""
        if self._quote is None and not self._brackets:
            self._is_value_done = self._has_colon = False
        while at < len(line):
            if self._quote is not None:
                at = self._end_of_quote(line, at)
                continue
            mark = line[at]
            if mark == "#" and line[at - 1 : at] in (" ", ""):
                return None
            found = None
            if mark == " ":
                at += 1
            elif mark in "}]" and self._brackets:
                opened = self._brackets.pop()
                if _CLOSES[opened.mark] != mark:
                    return self._not_closed(opened, number, at)
                self._is_value_done, at = True, at + 1
                if not self._brackets and (extra := re.match(r" *([}\]])", line[at:])):
                    return self._closes_nothing(number, at + extra.start(1), extra[1], line)
            elif mark == "," and self._brackets:
                self._is_value_done, self._has_colon, at = False, False, at + 1
            elif mark == ":" and self._brackets:
                self._is_value_done, self._has_colon, at = False, True, at + 1
            elif self._is_value_done:
                return self._more(number, line, at)
            elif mark in "\"'":
                self._quote, at = _Opened(mark, number, at + 1), at + 1
            elif mark in "{[" and not line.startswith("{{", at):
                self._brackets.append(_Opened(mark, number, at + 1))
                self._has_colon, at = False, at + 1
            elif not self._brackets:
                return None  # plain text, to the end of the line
            else:
                found, at = self._plain(number, line, at)
            if found is not None:
                return found
        return None

    def _end_of_quote(self, line: str, at: int) -> int:
        assert self._quote is not None
        mark = self._quote.mark
        while at < len(line):
            if (mark == '"' and line[at] == "\\") or (mark == "'" and line.startswith("''", at)):
                at += 2
            elif line[at] == mark:
                self._quote, self._is_value_done = None, True
                return at + 1
            else:
                at += 1
        return at

    def _plain(self, number: int, line: str, at: int) -> tuple[LineFinding | None, int]:
        """Reads plain text in brackets; a key in the value of another one lacks a comma before it."""
        found = _PLAIN.match(line, at)
        if found is None:
            return None, at + 1
        value, _, key = found[0].strip().rpartition(" ")
        is_key = self._has_colon and value and line[found.end() : found.end() + 1] == ":"
        follows = line[found.end() + 1 :].lstrip()[:1]
        if is_key and (_CLOSED_WORD.match(value.strip()) or (follows in "\"'{[" and " " not in value.strip())):
            return self._no_comma(number, line, at + found[0].rstrip().rfind(" ") + 1, key), found.end()
        self._is_value_done = True
        return None, found.end()

    def _more(self, number: int, line: str, at: int) -> LineFinding | None:
        """The finding of text behind the end of a value."""
        word = re.match(r"[^\s:,]*", line[at:])
        if self._brackets:
            return self._no_comma(number, line, at, word[0] if word else "")
        pair = _ENTRY.match(line)
        value = line[pair.end() :].strip() if pair else ""
        if not pair or not pair[3] or value[:1] not in ("'", '"') or value.count(value[0]) != 2:
            return None
        whole = value.replace(value[0], "")
        quote = '"' if "'" in whole else "'"
        message = f"the text ends with the {value[0]} before this, and goes on"
        return LineFinding(number, at + 1, message, f"write {pair[3]}: {quote}{whole}{quote}")

    def _no_comma(self, number: int, line: str, at: int, word: str) -> LineFinding:
        around = _ENTRY.match(line)
        start = around.start(3) if around and around[3] else len(line) - len(line.lstrip())
        whole = f"{line[start:at].rstrip()}, {line[at:]}"
        hint = f"write {whole}" if len(whole) <= _MOST_SHOWN else f"write `, ` before `{word}`"
        return LineFinding(number, at + 1, f"a comma is missing before `{word}`", hint)

    def _closes_nothing(self, number: int, at: int, mark: str, line: str) -> LineFinding:
        return LineFinding(
            number, at + 1, f"this `{mark}` closes nothing", f"remove it: line {number} has one too many"
        )

    def _not_closed(self, opened: _Opened, number: int, at: int) -> LineFinding:
        line = self.lines[number - 1]
        message = f"the `{opened.mark}` that opens here is not closed before the `{line[at]}`"
        if opened.line != number:
            return LineFinding(opened.line, opened.column, message, f"write `{_CLOSES[opened.mark]}` before it")
        pair = _ENTRY.match(line)
        start = pair.start(3) if pair and pair[3] else 0
        is_other = any(_CLOSES[one.mark] == line[at] for one in self._brackets)
        whole = f"{line[start:at].rstrip()} {_CLOSES[opened.mark]} {line[at:] if is_other else line[at + 1 :]}".rstrip()
        return LineFinding(opened.line, opened.column, message, f"write {whole}")

    def unclosed(self, before: int) -> LineFinding | None:
        """The finding of the quote or bracket that is still open at the next entry, or at the end of the text."""
        if self._quote is not None:
            mark, number, column = self._quote
            line = self.lines[number - 1].rstrip()
            pair = _ENTRY.match(line)
            is_value = pair is not None and pair[3] and line[pair.end() : column - 1].strip() == ""
            message = f"the {mark} that opens here is not closed"
            if is_value and pair is not None and len(line) <= _MOST_SHOWN:
                return LineFinding(number, column, message, f"write {pair[3]}: {line[column - 1 :]}{mark}")
            return LineFinding(number, column, message, f"close it with {mark} on its line")
        if not self._brackets:
            return None
        number, column = self._brackets[0].line, self._brackets[0].column
        closing = " ".join(_CLOSES[one.mark] for one in reversed(self._brackets))
        last = before - 1
        while last > number and not self.lines[last - 1].strip():
            last -= 1
        line = self.lines[number - 1].rstrip()
        pair = _ENTRY.match(line)
        message = f"the `{self._brackets[0].mark}` that opens here is not closed"
        start = pair.start(3) if pair and pair[3] else 0
        if last == number and len(line) <= _MOST_SHOWN:
            return LineFinding(number, column, message, f"write {line[start:]} {closing}")
        return LineFinding(number, column, message, f"write `{closing}` at the end of line {last}")


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
