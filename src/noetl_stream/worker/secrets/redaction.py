"""Takes secrets out of what leaves a worker: results, errors, helper blocks, output, log lines (LANGUAGE §11)."""

from __future__ import annotations

import base64
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

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
LONGEST_PATTERN: Final = 8_192
"""A longer secret is looked for as it is, and line by line: a pattern of it would take too long to make."""

_NAMED: Final = {
    " ": ("+",),
    "\n": ("\\n", "\\\\n"),
    "\r": ("\\r", "\\\\r"),
    "\t": ("\\t", "\\\\t"),
    "\b": ("\\b",),
    "\f": ("\\f",),
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
    '"': ("&quot;", "&#34;"),
    "'": ("&#39;", "&#x27;"),
}
"""What some characters become in URLs, JSON and HTML, beside their number."""


class HiddenText:
    """One secret, in every way it is likely to be written: as it is, in URLs, JSON, Python, HTML, and base64.

    Attributes:
        anchor: A part of it that all but base64 leave as it is: where that is not, nothing needs to be looked for.
    """

    __slots__ = ("_base64", "_pattern", "anchor")

    def __init__(self, secret: str) -> None:
        runs = re.findall(r"[A-Za-z0-9]+", secret)
        self.anchor = max(runs, key=len, default="")
        self._pattern = re.compile(_pattern_of(secret) if len(secret) <= LONGEST_PATTERN else re.escape(secret))
        encoded = secret.encode("utf-8", errors="replace")
        cores = [_base64_core(encoded, offset) for offset in range(3)]
        self._base64 = tuple({*cores, *(core.replace("+", "-").replace("/", "_") for core in cores)})

    def may_be_in(self, text: str) -> bool:
        return self.anchor in text or any(core in text for core in self._base64)

    def removed(self, text: str) -> str:
        for core in self._base64:
            text = text.replace(core, HIDDEN)
        return self._pattern.sub(HIDDEN, text) if self.anchor in text else text


class Redactor:
    """Knows secrets and replaces them by ``***``.

    One of fewer than :data:`SHORTEST_SECRET` characters is left alone: it would take ordinary text with it.
    """

    def __init__(self) -> None:
        self._hidden: OrderedDict[str, HiddenText] = OrderedDict()

    def learn(self, credential: Any) -> None:
        """Hides the secrets of ``credential`` from now on; of very many, those learnt last."""
        for secret in secrets_of(credential):
            for part in _parts(secret):
                if part not in self._hidden:
                    self._hidden[part] = HiddenText(part)
                self._hidden.move_to_end(part)
        while len(self._hidden) > MAX_SECRETS_HIDDEN:
            self._hidden.popitem(last=False)

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        found = [secret for secret, hidden in self._hidden.items() if hidden.may_be_in(text)]
        for secret in sorted(found, key=len, reverse=True):  # one may be a part of another
            text = self._hidden[secret].removed(text)
        return text

    def cut_text(self, text: str) -> str:
        """``text`` without secrets, and without a piece of one at its beginning or end, where it may have been cut."""
        text = self.text(text)
        for secret in self._hidden:
            text = _without_end(_without_start(text, secret), secret)
        return text

    def value(self, value: Any) -> Any:
        """A plain JSON value without secrets: in its texts, its keys, its numbers."""
        return self._walk(value) if self._may_hold(value) else value

    def result(self, result: ToolResult) -> ToolResult:
        """What a tool gave, without secrets."""
        if not self._hidden:
            return result
        return ToolResult(self.value(result.result), self.value(dict(result.helper)), self.text(result.output))

    def failure(self, failure: ToolFailure) -> ToolFailure:
        """How a tool failed, without secrets."""
        if not self._hidden:
            return failure
        error = failure.error
        code = None if error.code is None else self.text(error.code)
        error = msgspec.structs.replace(error, message=self.cut_text(error.message), code=code)
        helper = {key: self._helper_member(member) for key, member in failure.helper.items()}
        return ToolFailure(error, result=self.value(failure.result), helper=helper, output=self.text(failure.output))

    def _helper_member(self, member: Any) -> Any:
        return self.cut_text(member) if isinstance(member, str) else self.value(member)

    def _may_hold(self, value: Any) -> bool:
        if not self._hidden:
            return False
        try:
            written = codec.encode(value).decode()
        except PayloadRefused:
            return True  # it will be refused further on, and the refusal may show a part of it
        return any(hidden.may_be_in(written) for hidden in self._hidden.values())

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._walk(key): self._walk(member) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self._walk(member) for member in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in self._hidden:
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


def _pattern_of(secret: str) -> str:
    signs = re.findall(r"\\+|[^\\]", secret)  # several backslashes are as good as one
    return "".join(_ways_to_write(sign[0]) for sign in signs)


def _ways_to_write(sign: str) -> str:
    """A pattern for one character. What is escaped may be so several times over: JSON in JSON, a traceback in it."""
    if sign.isascii() and sign.isalnum():
        return sign
    percent = "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", errors="replace"))
    ways = [re.escape(sign), f"(?i:{percent})", *map(re.escape, _NAMED.get(sign, ()))]
    if sign == "\\":
        ways.append(r"\\+")
    elif sign in "\"'/":
        ways.append(rf"\\+{sign}")
    units = sign.encode("utf-16-be", errors="surrogatepass").hex()
    written = "".join(rf"\\+u{units[at : at + 4]}" for at in range(0, len(units), 4))
    ways.append(f"(?i:{written})")
    if ord(sign) < 256:
        ways.append(rf"(?i:\\+x{ord(sign):02x})")
    elif ord(sign) > 0xFFFF:
        ways.append(rf"\\+U(?i:{ord(sign):08x})")
    return f"(?:{'|'.join(ways)})"


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
