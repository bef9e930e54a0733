"""Splits Postgres SQL into statements and finds their parameters (LANGUAGE §12 *postgres*).

A small tokenizer recognizes strings, quoted names, dollar quotes and nested comments. Outside of these, of parentheses
and of ``BEGIN ATOMIC … END`` bodies it splits at ``;``, and it finds ``$name`` and ``$1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<line_comment>--[^\n]*)
    | (?P<block_comment>/\*)
    | (?P<escape_string>[eE]'[^'\\]*(?:(?:\\.|'')[^'\\]*)*')
    | (?P<string>'[^']*(?:''[^']*)*')
    | (?P<quoted_name>"[^"]*(?:""[^"]*)*")
    | (?P<dollar_quote>\$(?:[^\W\d]\w*)?\$)
    | (?P<parameter>\$(?:\d+|[^\W\d]\w*))
    | (?P<unfinished>['"])
    | (?P<word>[^\W\d][\w$]*)
    | (?P<sign>[;()])
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
_COMMENTS: Final = frozenset({"line_comment", "block_comment"})


@dataclass(frozen=True, slots=True)
class Parameter:
    """A use of a parameter: ``name`` without ``$``, and its position in the statement's text."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """One SQL statement of a task's text.

    Attributes:
        text: The SQL, without ``;`` and surrounding white space.
        line: The first line in the input, from 1.
        words: The first words in upper case, at most :data:`MAX_WORDS`.
        parameters: The uses of parameters, in order.
    """

    text: str
    line: int
    words: tuple[str, ...]
    parameters: tuple[Parameter, ...]


MAX_WORDS: Final = 64


_TRANSACTION_WORDS: Final = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"})


def refusal(statement: SqlStatement) -> str | None:
    """Returns why a task must not run the statement, or ``None``."""
    words = statement.words
    ends = bool(words) and words[0] in _TRANSACTION_WORDS and "TO" not in words[1:3]
    if ends or words[:2] == ("PREPARE", "TRANSACTION"):
        return (
            f"{words[0]} is not allowed: a task's statements run in one transaction, "
            "or in one each with transaction: false"
        )
    if words[:1] == ("COPY",) and {"STDIN", "STDOUT"} & set(words):
        return "COPY from or to the client is not supported in SQL; use the inputs `copy` and `into: table`"
    return None


def unbalanced_part(text: str) -> tuple[str, int] | None:
    """Returns the first unbalanced bracket or quote of ``text`` with its offset; or ``None``."""
    opened: list[int] = []
    for kind, start, end in _tokens(text):
        token = text[start:end]
        if kind == "unfinished":
            return f"`{token[0]}` is not closed", start
        if kind == "block_comment" and not token.endswith("*/"):
            return "`/*` is not closed", start
        tag = token[: token.find("$", 1) + 1]
        if kind == "dollar_quote" and not token.endswith(tag, len(tag)):
            return f"`{tag}` is not closed", start
        if token == "(":
            opened.append(start)
        elif token == ")" and not opened:
            return "`)` closes nothing", start
        elif token == ")":
            opened.pop()
    return ("`(` is not closed", opened[-1]) if opened else None


def leading_word(statement: SqlStatement) -> tuple[str | None, int]:
    """Returns the first word of the statement, after comments, or ``None`` without one; and its line in the input."""
    position = 0
    for kind, start, end in _tokens(statement.text):
        is_first = not statement.text[position:start].strip()
        if kind not in _COMMENTS or not is_first:
            word = statement.text[start:end] if kind == "word" and is_first else None
            return word, statement.line + statement.text.count("\n", 0, start)
        position = end
    return None, statement.line


def split_statements(text: str) -> list[SqlStatement]:
    """Splits ``text`` into its statements, without empty ones. Never fails: Postgres reports unfinished SQL."""
    statements = []
    draft = _Draft(start=0, line=1)
    for kind, start, end in _tokens(text):
        if kind == "sign" and text[start] == ";" and not draft.is_open:
            statements.append(draft.finish_statement(text, start))
            draft = _Draft(start=end, line=draft.line + text.count("\n", draft.start, end))
        else:
            draft.take(kind, text[start:end], start, end)
    statements.append(draft.finish_statement(text, len(text)))
    return [statement for statement in statements if statement is not None]


@dataclass(slots=True)
class _Draft:
    start: int
    line: int
    depth: int = 0
    blocks: int = 0
    has_content: bool = False
    words: list[str] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.depth > 0 or self.blocks > 0

    def take(self, kind: str, token: str, start: int, end: int) -> None:
        if kind in _COMMENTS:
            return
        self.has_content = True
        if kind == "sign":
            self.depth = max(0, self.depth + (1 if token == "(" else -1 if token == ")" else 0))
        elif kind == "parameter":
            self.parameters.append(Parameter(token[1:], start, end))
        elif kind == "word":
            self._take_word(token.upper())

    def _take_word(self, word: str) -> None:
        # The body of a standard SQL function is the only place with statements inside a statement.
        if word == "ATOMIC" and self.words[:1] == ["CREATE"] and self.words[-1:] == ["BEGIN"]:
            self.blocks = 1
        elif self.blocks and word in ("CASE", "BEGIN"):
            self.blocks += 1
        elif self.blocks and word == "END":
            self.blocks -= 1
        if len(self.words) >= MAX_WORDS:
            self.words.pop()
        self.words.append(word)

    def finish_statement(self, text: str, end: int) -> SqlStatement | None:
        raw = text[self.start : end]
        body = raw.strip()
        if not body or not (self.has_content or _has_sql(body)):
            return None
        offset = self.start + len(raw) - len(raw.lstrip())
        return SqlStatement(
            text=body,
            line=self.line + text.count("\n", self.start, offset),
            words=tuple(self.words),
            parameters=tuple(Parameter(it.name, it.start - offset, it.end - offset) for it in self.parameters),
        )


def _has_sql(body: str) -> bool:
    """Returns whether the text has more than comments, such as ``1``, which is not a token here."""
    position = 0
    for kind, start, end in _tokens(body):
        if kind not in _COMMENTS or body[position:start].strip():
            return True
        position = end
    return bool(body[position:].strip())


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields the kind, start and end of every token. Numbers, operators and white space are not tokens."""
    position = 0
    while (found := _TOKEN.search(text, position)) is not None:
        kind, start, end = str(found.lastgroup), found.start(), found.end()
        if kind == "block_comment":
            end = _comment_end(text, end)
        elif kind == "dollar_quote":
            close = text.find(found.group(), end)
            end = len(text) if close < 0 else close + len(found.group())
        elif kind == "unfinished":
            end = len(text)
        yield kind, start, end
        position = end


def _comment_end(text: str, position: int) -> int:
    depth = 1
    while depth and (found := _COMMENT_MARK.search(text, position)) is not None:
        depth += 1 if found.group() == "/*" else -1
        position = found.end()
    return position if depth == 0 else len(text)
