"""Text from outside: bodies in any charset, headers (RFC 9110 §5.5), and numbers beyond the precision of a double.

Such numbers in JSON become the nearest double (RFC 8259 §6), and are counted.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final, TypeAlias

_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, with whose mark it begins
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "utf-7", "undefined"})
"""Codecs of Python that no sender means: some are slow, or produce text that JSON cannot represent."""


def decode_body(body: bytes, content_type: str) -> str | None:
    """The text of a body, without its byte order mark; ``None`` if it is not text in its charset.

    A byte order mark has precedence over the declared charset; those of UTF-16 and UTF-32 only count for types of text,
    since other bytes may begin alike. An unknown charset counts as UTF-8.
    """
    if body.startswith(codecs.BOM_UTF8):
        return _text(body[len(codecs.BOM_UTF8) :], "utf-8")
    if is_text(content_type):
        for mark, name in _MARKS:
            if body.startswith(mark):
                return _text(body[len(mark) :], name)
    return _text(body, charset_of(content_type))


def media_type(content_type: str) -> str:
    """The media type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Whether the media type is JSON (RFC 6839 §3.1)."""
    return media_type(content_type).endswith(("/json", "+json"))


def is_text(content_type: str) -> bool:
    kind = media_type(content_type)
    return kind.startswith("text/") or kind.endswith(("/xml", "+xml")) or is_json(kind)


def charset_of(content_type: str) -> str:
    """The codec of the media type's charset; UTF-8 for a missing or unknown one."""
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            try:
                codec = codecs.lookup(value.strip().strip("\"'")).name
            except (LookupError, ValueError):  # ValueError: a NUL in the name
                return "utf-8"
            return "utf-8" if codec in _NO_CHARSETS or not _is_of_text(codec) else codec
    return "utf-8"


def _is_of_text(name: str) -> bool:
    try:
        b"?".decode(name)
    except LookupError:
        return False
    except UnicodeError:  # UTF-16, whose units have two bytes
        pass
    return True


def header_text(value: bytes) -> str:
    """Decodes a header: UTF-8, else Latin-1, in which every byte is a character."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _text(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except UnicodeError:
        return None


SAFE_DIGITS: Final = 15
"""The number of significant digits that a double holds of any number."""

POINTERS_SHOWN: Final = 3
MAX_POINTERS: Final = 100
MAX_POINTER_CHARACTERS: Final = 200
"""The longest JSON pointer. A longer one is cut with `…`: a long key would be in the pointer of each number below it.
"""

_EXACT_DIGITS: Final = 800
"""The most significant digits of any double in full."""

_SHAPES: Final = bytes(
    ord("0") if chr(sign) in "0123456789." else ord("e") if chr(sign) in "eE" else ord("-") if sign == 45 else 32
    for sign in range(256)
)
_LONG: Final = re.compile(rb"(?<![0-9.])(?=[0-9]*[.eE])[0-9.]{%d,}|[eE]-[0-9]{3}" % (SAFE_DIGITS + 1))


_Path: TypeAlias = "tuple[_Path, object] | None"
"""The path of a value: that of its container, and its key or index there."""


class _Lost(float):
    """The nearest double of a number that no double represents."""

    __slots__ = ()


def as_double(text: str) -> float:
    """The double nearest to a decimal. :func:`pointers_lost` finds the doubles that differ from their number."""
    double = float(text)
    return double if repr(double) == text or not _is_lossy(text, double) else _Lost(double)


def digits_lost(data: bytes) -> list[str]:
    """The JSON pointers (RFC 6901) of the first numbers in valid JSON text that lose digits as doubles.

    At most :data:`MAX_POINTERS`. Whole numbers are exact. Where no number is long this costs next to nothing.
    """
    shape = data.translate(_SHAPES)
    if (b"0" * (SAFE_DIGITS + 1) not in shape and b"e-000" not in shape) or _LONG.search(data) is None:
        return []
    try:
        value = json.loads(data, parse_float=as_double, parse_int=_ignore_number, parse_constant=_ignore_number)
    except (ValueError, RecursionError):
        return []  # invalid JSON is reported by its decoder
    return pointers_lost(value)


def decode_decimals_as_text(data: bytes) -> Any:
    """Decodes JSON text, keeping numbers with a fraction or an exponent as the text that was sent.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it nests too deeply.
    """
    return json.loads(data.decode(), parse_float=str, parse_constant=_refuse_constant)


def digits_lost_text(pointers: list[str]) -> str:
    """The message of the warning about numbers at these pointers."""
    shown = ", ".join(islice(pointers, POINTERS_SHOWN))
    left = len(pointers) - POINTERS_SHOWN
    more = "" if left <= 0 else f" and {left} more" if len(pointers) < MAX_POINTERS else " and many more"
    return f"digits are lost, as a number is a double, which holds about 16: {shown}{more}"


def _is_lossy(text: str, double: float) -> bool:
    """Whether the number is neither the shortest nor the exact decimal of its double, nor that to as many digits."""
    try:
        sent = Decimal(text)
        if not sent:
            return False
        count = min(len(sent.as_tuple().digits), _EXACT_DIGITS)
        return sent not in (Decimal(repr(double)), Decimal(f"{double:.{count - 1}e}"))
    except InvalidOperation:
        return True


def pointers_lost(value: Any) -> list[str]:
    """The JSON pointers of the first numbers that :func:`as_double` has rounded, at most :data:`MAX_POINTERS`."""
    return [_pointer(path) for path in islice(_paths_lost(value), MAX_POINTERS)]


def _paths_lost(value: Any) -> Iterator[_Path]:
    pending: list[tuple[_Path, Any]] = [(None, value)]
    while pending:
        path, value = pending.pop()
        if type(value) is _Lost:
            yield path
        elif type(value) is dict:
            pending += [((path, key), value[key]) for key in reversed(value)]
        elif type(value) is list:
            pending += [((path, index), value[index]) for index in range(len(value) - 1, -1, -1)]


def _pointer(path: _Path) -> str:
    keys: list[str] = []
    while path is not None:
        path, key = path
        keys.append(str(key)[:MAX_POINTER_CHARACTERS].replace("~", "~0").replace("/", "~1"))
    pointer = "".join(f"/{key}" for key in reversed(keys))
    return pointer if len(pointer) <= MAX_POINTER_CHARACTERS else f"{pointer[:MAX_POINTER_CHARACTERS]}…"


def _ignore_number(_text: str) -> int:
    return 0


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON number")
