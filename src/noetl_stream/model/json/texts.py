"""Text in bytes from outside: bodies in a charset of their own, and headers (RFC 9110 §5.5)."""

from __future__ import annotations

import codecs
from typing import Final

_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NO_CHARSETS: Final = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "utf-7", "undefined"})
"""Codecs of Python that no sender means: some are slow, or make text that JSON cannot hold."""


def decode_body(body: bytes, content_type: str) -> str | None:
    """The text of a body, without its byte order mark; ``None`` if it is not text in its charset.

    A mark goes before the charset that the type names, those of UTF-16 and UTF-32 only where the type is one of text:
    other bytes may begin alike. An unknown charset counts as UTF-8.
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
    """Whether the media type is one of text."""
    kind = media_type(content_type)
    return kind.startswith("text/") or kind.endswith(("/xml", "+xml")) or is_json(kind)


def charset_of(content_type: str) -> str:
    """The codec of the charset that the media type names; UTF-8 for none, and for an unknown one."""
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
    except UnicodeError:  # UTF-16, which takes two bytes
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
