"""Takes secrets out of what leaves a worker: results, errors, helper blocks, output, log lines (LANGUAGE §11)."""

from __future__ import annotations

import base64
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from noetl_stream.errors import PayloadRefused
from noetl_stream.model import codec
from noetl_stream.model.credential import SHORTEST_SECRET, secrets_of
from noetl_stream.tools.contract import ToolFailure, ToolResult
from noetl_stream.worker.limits import MAX_SECRETS_HIDDEN

HIDDEN: Final = "***"
SHORTEST_LINE: Final = 8
"""A line of a secret of several lines is one by itself from this length on."""
SHORTEST_PIECE: Final = 8
"""A piece of a secret that a text was cut in is hidden from this length on."""


class Redactor:
    """Knows secrets in every form they are likely to take, and replaces them by ``***``.

    A secret of fewer than :data:`SHORTEST_SECRET` characters is left alone: it would take ordinary text with it.
    """

    def __init__(self) -> None:
        self._forms: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def learn(self, credential: Any) -> None:
        """Hides the secrets of ``credential`` from now on; of very many, those learnt last."""
        for secret in secrets_of(credential):
            for part in _parts(secret):
                if part not in self._forms:
                    self._forms[part] = tuple(dict.fromkeys(_forms(part)))
                self._forms.move_to_end(part)
        while len(self._forms) > MAX_SECRETS_HIDDEN:
            self._forms.popitem(last=False)

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        found = [form for forms in self._forms.values() for form in forms if form in text]
        for form in sorted(found, key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text

    def cut_text(self, text: str) -> str:
        """``text`` without secrets, and without a piece of one at its beginning or end, where it may have been cut."""
        text = self.text(text)
        for secret in self._forms:
            text = _without_end(_without_start(text, secret), secret)
        return text

    def value(self, value: Any) -> Any:
        """A plain JSON value without secrets: in its texts, its keys, its numbers."""
        return self._walk(value) if self._may_hold(value) else value

    def result(self, result: ToolResult) -> ToolResult:
        """What a tool gave, without secrets."""
        if not self._forms:
            return result
        return ToolResult(self.value(result.result), self.value(dict(result.helper)), self.text(result.output))

    def failure(self, failure: ToolFailure) -> ToolFailure:
        """How a tool failed, without secrets."""
        if not self._forms:
            return failure
        error = failure.error
        code = None if error.code is None else self.text(error.code)
        error = msgspec.structs.replace(error, message=self.cut_text(error.message), code=code)
        helper = {key: self._helper_member(member) for key, member in failure.helper.items()}
        return ToolFailure(error, result=self.value(failure.result), helper=helper, output=self.text(failure.output))

    def _helper_member(self, member: Any) -> Any:
        return self.cut_text(member) if isinstance(member, str) else self.value(member)

    def _may_hold(self, value: Any) -> bool:
        if not self._forms:
            return False
        try:
            written = codec.encode(value)
        except PayloadRefused:
            return True  # it will be refused further on, and the refusal may show a part of it
        return any(form.encode() in written for forms in self._forms.values() for form in forms)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._walk(key): self._walk(member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(member) for member in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in self._forms:
            return HIDDEN
        return value


class RedactedLines(logging.Formatter):
    """Log lines of another formatter, without secrets: message, facts and traceback alike."""

    def __init__(self, lines: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self.lines = lines
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(self.lines.format(record))


def hide_in_logs(redactor: Redactor) -> Callable[[], None]:
    """Everything this process logs goes through ``redactor``, until the function that is returned is called."""
    wrapped = [(handler, handler.formatter or logging.Formatter()) for handler in logging.getLogger().handlers]
    for handler, lines in wrapped:
        handler.setFormatter(RedactedLines(lines, redactor))

    def restore() -> None:
        for handler, lines in wrapped:
            handler.setFormatter(lines)

    return restore


def _parts(secret: str) -> Iterator[str]:
    """What of ``secret`` is to be hidden: itself, and its lines, which tools may put onto one."""
    if len(secret) >= SHORTEST_SECRET:
        yield secret
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= SHORTEST_LINE)


def _forms(secret: str) -> Iterator[str]:
    """``secret`` as it stands in text, URLs, JSON, Python's tracebacks, and base64."""
    yield secret
    encoded = secret.encode("utf-8", errors="replace")
    for written in (quote(encoded, safe=""), quote(encoded), quote_plus(encoded)):
        yield from (written, _lower_escapes(written))
    for written in (json.dumps(secret), json.dumps(secret, ensure_ascii=False), _own_json(secret), repr(secret)):
        yield written[1:-1]
    for offset in range(3):
        core = _base64_core(encoded, offset)
        yield from (core, core.replace("+", "-").replace("/", "_"))


def _own_json(secret: str) -> str:
    """``secret`` as our own JSON has it; itself in quotes where that cannot be written."""
    try:
        return codec.encode(secret).decode()
    except PayloadRefused:
        return f'"{secret}"'


def _lower_escapes(written: str) -> str:
    """``%2f`` for ``%2F``."""
    pieces = written.split("%")
    return "%".join([pieces[0], *(piece[:2].lower() + piece[2:] for piece in pieces[1:])])


def _base64_core(encoded: bytes, offset: int) -> str:
    """The base64 characters that ``encoded`` alone decides when so many bytes (modulo 3) stand before it.

    So it is found in ``user:secret`` too, and in whatever else was encoded with it.
    """
    whole = base64.b64encode(b"\0" * offset + encoded).decode()
    first = -(-offset * 8 // 6)
    return whole[first : (offset + len(encoded)) * 8 // 6]


def _without_end(text: str, secret: str) -> str:
    body = text.rstrip("…")
    for length in range(min(len(secret) - 1, len(body)), SHORTEST_PIECE - 1, -1):
        if body.endswith(secret[:length]):
            return body[:-length] + HIDDEN + text[len(body) :]
    return text


def _without_start(text: str, secret: str) -> str:
    body = text.lstrip("…")
    for length in range(min(len(secret) - 1, len(body)), SHORTEST_PIECE - 1, -1):
        if body.startswith(secret[-length:]):
            return text[: len(text) - len(body)] + HIDDEN + body[length:]
    return text
