"""Credential values: text (a DSN, a token) or a mapping; and the removal of their secrets (LANGUAGE §11).

Secrets are hidden in texts and JSON values, in the forms in which they are likely to appear.
"""

from __future__ import annotations

import base64
import math
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from noetl_stream.errors import PayloadRefused, TooDeep
from noetl_stream.lru import LruCache
from noetl_stream.model.json import codec

CredentialValue: TypeAlias = str | dict[str, Any]

CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Valid names of stored credentials."""

NOT_A_NAME: Final = (
    "the name of a credential has letters, digits, `_`, `.` and `-` only; what is given is not shown, since it may be "
    "a secret. Write a value as a mapping, such as `auth: {dsn: …}` of postgres, or store it: "
    "`noetl-stream credential set NAME`"
)

SHORTEST_SECRET: Final = 4
"""The shortest secret. Shorter ones cannot be distinguished from ordinary text when redacting: they are rejected."""

OPEN_KEYS: Final = frozenset(
    {
        *("host", "hostname", "port", "database", "dbname", "db", "schema", "sslmode", "region", "type", "kind"),
        *("user", "username", "client_id", "token_type", "token_url", "scope", "scopes", "audience", "expires_at"),
        *("certificate", "ca"),
    }
)
"""Keys of a credential whose values are addresses or names: results may show them, as a database's rows may."""


def credential_value(text: str, what: str) -> CredentialValue:
    """The credential in ``text``: a JSON object if it starts like one, else the text itself without its final newline.

    Raises:
        PayloadRefused: the text starts like a JSON object but is not one, is empty, or holds a secret that is too
            short. The message names ``what``.
    """
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise PayloadRefused(f"{what} is empty")
    value: CredentialValue = text
    if text.lstrip().startswith("{"):
        try:
            value = dict(codec.decode_value(text.encode()))
        except TooDeep as error:
            raise TooDeep(f"{what} is {error.message}") from None
        except (PayloadRefused, UnicodeEncodeError):
            raise PayloadRefused(f"{what} starts like a JSON object but is not valid JSON") from None
    check_secrets(value, what)
    return value


def check_secrets(value: Any, what: str) -> None:
    """Raises :class:`~noetl_stream.errors.PayloadRefused`, naming ``what``, if a secret in ``value`` is too short."""
    if any(len(secret) < SHORTEST_SECRET for secret in secrets_of(value)):
        wrong = f"{what} holds a secret of fewer than {SHORTEST_SECRET} characters"
        hint = "names and addresses belong under keys such as `username`, `host`, `port`"
        raise PayloadRefused(f"{wrong}, which cannot be redacted from logs and results; {hint}")


def secrets_of(value: Any) -> Iterator[str]:
    """Every secret text in a credential: its members except those under :data:`OPEN_KEYS`, and a DSN's password."""
    if isinstance(value, Mapping):
        for key, member in value.items():
            if str(key).lower() not in OPEN_KEYS:
                yield from secrets_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from secrets_of(member)
    elif value is not None and not isinstance(value, bool):
        text = str(value)
        yield text
        yield from _password_in(text)


def _password_in(text: str) -> Iterator[str]:
    if "://" not in text:
        return
    try:
        password = urlsplit(text).password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


MAX_SECRETS_HIDDEN: Final = 1_000
HIDDEN: Final = "***"
SHORTEST_LINE: Final = 8
"""The length from which each line of a multi-line secret is redacted by itself."""
SHORTEST_PIECE: Final = 8
"""The length from which a piece of a secret cut off by a text's end is redacted."""
LONGEST_PATTERN: Final = 8_192
"""The length from which a secret is searched for verbatim, line by line: compiling its pattern would take too long.
"""

_SIGN: Final = re.compile(r"[^A-Za-z0-9]")

_LONG_ROW: Final = 8
"""The length from which a row of backslashes without a secret after it is skipped at once."""

_IN_MARKUP: Final = {
    " ": ("+",),
    "&": ("&amp;",),
    "<": ("&lt;",),
    ">": ("&gt;",),
    '"': ("&quot;",),
    "'": ("&apos;",),
}
"""Escapes of characters in URLs and HTML in addition to their numeric form."""

_BEHIND_BACKSLASHES: Final = {
    "\n": "n",
    "\r": "r",
    "\t": "t",
    "\b": "b",
    "\f": "f",
}
"""Escapes of characters in JSON and Python: the text after the backslashes. Others follow unchanged, as in a shell."""


_LINE_ENDS: Final = (
    *(r"\n", r"\r\n?", r"=\r?\n", r"\\\r?\n"),
    *(r"\\n", r"\\r\\n", r"\\r", r"=(?:\\r)?\\n", r"\\\\(?:\\r)?\\n"),
)
"""Ends of wrapped lines with their continuation marks; also in JSON."""

_IN_BETWEEN: Final = (
    *(r"\x00", r"\x1b\[[0-9;?]*[A-Za-z]", r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"),
    *(r"\\u0000", r"\\x00", r"\\u001[bB]\[[0-9;?]*[A-Za-z]", r"\\x1b\[[0-9;?]*[A-Za-z]"),
    r"\\u001[bB]\][^\\]*\\u0007",
)
"""A NUL, a colour or a link of a terminal."""

_INTERRUPTIONS: Final = tuple(
    re.compile("|".join((*(end + indent for end in _LINE_ENDS), *_IN_BETWEEN))) for indent in ("", r"[ \t]+")
)
"""Text that a tool may insert in the middle of a text, without and with the indentation of wrapped lines. Each form
begins with a literal, which is fast.
"""


class HiddenText:
    """One secret in the forms in which it is likely to appear: verbatim, in URLs, JSON, Python, HTML, and encoded.

    Args:
        verbatim: Whether to search only for the secret verbatim and encoded, which costs next to nothing to prepare.

    Attributes:
        anchor: A part that all forms except the encoded ones leave unchanged: a text without it needs no search.
    """

    __slots__ = ("_encoded", "_marks", "_pattern", "_secret", "anchor")

    def __init__(self, secret: str, *, verbatim: bool = False) -> None:
        runs = re.findall(r"[A-Za-z0-9]+", secret)
        self.anchor = max(runs, key=len, default="")
        verbatim = verbatim or len(secret) > LONGEST_PATTERN
        self._pattern = re.compile(re.escape(secret) if verbatim else _pattern_of(secret))
        self._secret = secret
        self._encoded = tuple(dict.fromkeys(_encodings_of(secret)))
        self._marks = (self.anchor, self.anchor[::-1], *self._encoded)

    def may_be_in(self, text: str) -> bool:
        return any(mark in text for mark in self._marks)

    def remove_from(self, text: str) -> str:
        for encoded in self._encoded:
            text = text.replace(encoded, HIDDEN)
        return self._pattern.sub(_replacement, text) if self.anchor in text else text

    def remove_interrupted(self, text: str, joined: str, interruption: re.Pattern[str]) -> str:
        """Removes the secret, verbatim or encoded, where interruptions divide it.

        Args:
            joined: ``text`` without its interruptions.
        """
        for form in (self._secret, *self._encoded):
            if form in joined and form not in text:
                between = f"(?:{interruption.pattern})*"
                text = re.sub(between.join(map(re.escape, form)), HIDDEN, text)
        return text


class Redactor:
    """Replaces known secrets by ``***``. Learning a long secret and searching a large value take seconds, so it may be
    used in several threads at once.

    Secrets of fewer than :data:`SHORTEST_SECRET` characters are ignored: they would redact ordinary text.
    """

    def __init__(self) -> None:
        self._hidden: LruCache[str, HiddenText] = LruCache(MAX_SECRETS_HIDDEN)
        self._learning = threading.Lock()

    def learn(self, credential: Any) -> None:
        """Redacts the secrets of ``credential`` from now on; of very many, only the last learned."""
        self.learn_texts(texts_of(credential))

    def learn_texts(self, texts: Iterable[str], max_signs: float = math.inf) -> None:
        """Redacts ``texts`` from now on; of too many, only the last learned. With more than ``max_signs`` characters
        that may be escaped, they are searched for verbatim.
        """
        signs = 0
        for text in texts:
            if signs < max_signs:
                signs += len(_SIGN.findall(text))
            with self._learning:
                if self._hidden.get(text) is None:
                    self._hidden.put(text, HiddenText(text, verbatim=signs >= max_signs))

    @property
    def knows_any(self) -> bool:
        return bool(self._hidden)

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        for hidden in self._in(text):
            text = hidden.remove_from(text)
        for interruption in _INTERRUPTIONS:
            joined = interruption.sub("", text)
            if joined != text:
                for hidden in self._in(joined):
                    text = hidden.remove_interrupted(text, joined, interruption)
        return text

    def cut_text(self, text: str) -> str:
        """``text`` without secrets, and without pieces of one at its ends, where it may have been cut."""
        text = self.text(text)
        for secret in list(self._hidden):
            without_start = _without_end(text[::-1], secret[::-1])[::-1]  # ``***`` reads the same backwards
            text = _without_end(without_start, secret)
        return text

    def lines_ready(self, lines: Sequence[str]) -> int:
        """The number of these whole lines that can be redacted now: a secret that continues may begin in the others."""
        text = "".join(f"{line}\n" for line in lines)
        begun = max((_begun_at_end(text, secret) for secret in list(self._hidden) if "\n" in secret), default=0)
        return len(lines) if not begun else text.count("\n", 0, len(text) - begun)

    def value(self, value: Any) -> Any:
        """A plain JSON value without secrets in its texts, keys and numbers."""
        return self._walk(value) if self._may_hold(value) else value

    def _may_hold(self, value: Any) -> bool:
        if not self._hidden:
            return False
        try:
            written = codec.encode(value).decode()
        except PayloadRefused:
            return True  # it will be rejected later, and the error may show a part of it
        texts = dict.fromkeys((written, *(interruption.sub("", written) for interruption in _INTERRUPTIONS)))
        return any(map(self._in, texts))

    def _in(self, text: str) -> list[HiddenText]:
        """Returns the secrets that may be in ``text``, the longest first: one may be a part of another."""
        secrets = [entry for entry in list(self._hidden.items()) if entry[1].may_be_in(text)]
        return [hidden for _, hidden in sorted(secrets, key=lambda entry: len(entry[0]), reverse=True)]

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


def texts_of(credential: Any) -> Iterator[str]:
    """The texts to redact of a credential: its secrets, and their lines."""
    for secret in secrets_of(credential):
        yield from _parts(secret)


def _parts(secret: str) -> Iterator[str]:
    """The parts of ``secret`` to redact: the whole, and its lines, which tools may join."""
    if len(secret) >= SHORTEST_SECRET:
        yield secret
    lines = [line.strip() for line in secret.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= SHORTEST_LINE)


def _replacement(match: re.Match[str]) -> str:
    return HIDDEN if match.lastindex is None else match[0]


def _pattern_of(secret: str) -> str:
    """The pattern of a secret, which takes linear time. A match in which group 1 participates is not a secret."""
    signs = re.sub(r"\\+", r"\\", secret)  # several backslashes count as one
    first, *others = [_escapes_of(signs, at) for at in range(len(signs))]
    rest = "".join(others)
    if first == signs[0]:
        return first + rest
    # Each of its backslashes would begin another search through the row.
    return rf"{first[:-2]}|(?<=\\{{{_LONG_ROW}}})()))(?(1)|{rest})"


def _escapes_of(signs: str, at: int) -> str:
    """A pattern for one character, which may be escaped repeatedly: JSON in JSON, in a traceback.

    Each form begins with a literal character, for which a search is fast, and takes a whole row of backslashes.
    """
    sign, before = signs[at], signs[at - 1 : at]
    if sign.isascii() and sign.isalnum():
        return sign
    encoded = sign.encode("utf-8", errors="replace")
    percent = "".join(f"%(?:25)*{byte:02X}" for byte in encoded)
    markup = f"&#(?:0*{ord(sign)}|[xX]0*{_any_case(f'{ord(sign):x}')});"
    in_mail = "".join(f"={byte:02X}" for byte in encoded)
    ways = [re.escape(sign), _any_case(percent), markup, in_mail, *map(re.escape, _IN_MARKUP.get(sign, ()))]
    units = sign.encode("utf-16-be", errors="surrogatepass").hex()
    escapes = [r"\\++".join(f"u{_any_case(units[at : at + 4])}" for at in range(0, len(units), 4))]
    if ord(sign) < 256:
        escapes.append(f"x{_any_case(f'{ord(sign):02x}')}")
    elif ord(sign) > 0xFFFF:
        escapes.append(f"U{_any_case(f'{ord(sign):08x}')}")
    if not sign.isascii():
        escapes.append(r"\\++".join(f"x{_any_case(f'{byte:02x}')}" for byte in encoded))
        escapes.append(r"\\++".join(f"{byte:03o}" for byte in encoded))
    elif sign != "\\":
        escapes.append(_BEHIND_BACKSLASHES.get(sign) or re.escape(sign))
    if sign == "\\" and at < len(signs) - 1:  # at its end, the rest of a row may begin the next secret
        ways.pop(0)
        escapes.append("")
    row = r"\\*+" if before == "\\" else r"\\\\*+"
    return f"(?:{'|'.join(ways)}|{row}(?:{'|'.join(escapes)}))"


def _any_case(text: str) -> str:
    """A pattern for text in upper or lower case."""
    return re.sub("[A-Fa-f]", lambda letter: f"[{letter[0].upper()}{letter[0].lower()}]", text)


def _encodings_of(secret: str) -> Iterator[str]:
    """The encoded forms of ``secret``: base64, also of PowerShell's UTF-16, base32, hexadecimal, numbers, reversed."""
    encoded = secret.encode("utf-8", errors="replace")
    for offset in range(3):
        core = _base64_core(encoded, offset)
        yield core
        yield core.replace("+", "-").replace("/", "_")
        yield _base64_core(secret.encode("utf-16-le", errors="replace"), offset)
    yield from (encoded.hex(), encoded.hex(" "), encoded.hex(":"), encoded.hex().upper())
    yield from (encoded.hex(separator).upper() for separator in ":-")
    yield from (separator.join(map(str, encoded)) for separator in (", ", ","))
    if len(encoded) >= SHORTEST_PIECE:  # shorter ones would be found in other texts
        yield secret[::-1]
        for offset in range(5):
            core = base64.b32encode(b"\0" * offset + encoded).decode()
            yield core[-(-offset * 8 // 5) : (offset + len(encoded)) * 8 // 5]


def _base64_core(encoded: bytes, offset: int) -> str:
    """The base64 characters that ``encoded`` determines by itself after ``offset`` bytes (modulo 3).

    They appear in ``user:secret`` too, and in any other text that was encoded with the secret.
    """
    whole = base64.b64encode(b"\0" * offset + encoded).decode()
    first = -(-offset * 8 // 6)
    return whole[first : (offset + len(encoded)) * 8 // 6]


def _begun_at_end(text: str, secret: str) -> int:
    """The characters at the end of ``text``, which ends with a line, that are the first lines of ``secret``."""
    end = secret.rfind("\n", 0, -1) + 1
    while end:
        if text.endswith(secret[:end]):
            return end
        end = secret.rfind("\n", 0, end - 1) + 1
    return 0


def _without_end(text: str, secret: str) -> str:
    body = text.rstrip("…")
    for length in range(min(len(secret) - 1, len(body)), SHORTEST_PIECE - 1, -1):
        if body.endswith(secret[:length]):
            return body[:-length] + HIDDEN + text[len(body) :]
    return text
