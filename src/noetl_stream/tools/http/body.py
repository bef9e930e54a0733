"""Bodies of requests of ``kind: http`` (LANGUAGE §12 *http*)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
from pydantic import Field

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import pieces
from noetl_stream.tools.inputs import Inputs, invalid_input

Scalar = str | int | float | bool | None


class FilePart(Inputs):
    """A file in a multipart body."""

    content: str = Field(description="The content, as text.")
    filename: str | None = Field(default=None, description="The name of the file.")
    content_type: str | None = Field(default=None, description="Its media type.")
    encoding: Literal["base64"] | None = Field(default=None, description="`base64`: `content` is base64 text.")


Fields = Mapping[str, Scalar | list[Scalar]]
Part = Scalar | FilePart
Parts = Mapping[str, Part | list[Part]]


def body_of(
    *, json_value: Any, form: Fields | None, multipart: Parts | None, text: str | None, is_base64: bool
) -> tuple[bytes | None, str | None]:
    """Returns the bytes of the given body and their media type. ``text`` goes before ``json_value``.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    if form is not None:
        return urlencode(pairs(form)).encode(), "application/x-www-form-urlencoded"
    if multipart is not None:
        return _multipart(multipart)
    if text is not None and is_base64:
        return _from_base64("body", text), "application/octet-stream"
    if text is not None:
        return _utf8(text), "text/plain; charset=utf-8"
    if json_value is None:
        return None, None
    try:
        is_long = pieces.is_long(json_value)
        return pieces.encode(json_value) if is_long else msgspec.json.encode(json_value), "application/json"
    except (TypeError, ValueError, PayloadRefused) as error:
        raise invalid_input(f"cannot encode the body as JSON: {error}") from None


def pairs(values: Fields | None) -> list[tuple[str, str]]:
    """Returns names with their values as text: a list repeats the name, null omits it."""
    return [(name, scalar_text(member)) for name, member in _members(values or {})]


def scalar_text(value: Any) -> str:
    """Returns a value as text in a URL, a form or a header."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _members(values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    listed = ((name, value if isinstance(value, list) else [value]) for name, value in values.items())
    return [(name, member) for name, members in listed for member in members if member is not None]


def _multipart(parts: Parts) -> tuple[bytes, str]:
    """Encodes a multipart body (RFC 7578). The boundary derives from the content: a redelivery sends the same bytes."""
    blocks = [_block(name, part) for name, part in _members(parts)]
    boundary = hashlib.sha256(b"\0".join(blocks)).hexdigest()[:32]
    lines = b"".join(b"--%b\r\n%b\r\n" % (boundary.encode(), block) for block in blocks)
    return b"%b--%b--\r\n" % (lines, boundary.encode()), f"multipart/form-data; boundary={boundary}"


def _block(name: str, part: Part) -> bytes:
    lines = [f'Content-Disposition: form-data; name="{_quote_name(name)}"']
    if not isinstance(part, FilePart):
        return _utf8("\r\n".join([*lines, "", scalar_text(part)]))
    if part.filename is not None:
        lines[0] += f'; filename="{_quote_name(part.filename)}"'
    kind = part.content_type
    if kind is not None and any(ord(sign) < 32 or ord(sign) == 127 for sign in kind):
        raise invalid_input(f"multipart.{name}.content_type: contains a line break or another control character")
    if kind is not None or part.filename is not None:
        lines.append(f"Content-Type: {kind or 'application/octet-stream'}")
    content = _utf8(part.content)
    if part.encoding is not None:
        content = _from_base64(f"multipart.{name}.content", part.content)
    return _utf8("\r\n".join([*lines, "", ""])) + content


def _quote_name(name: str) -> str:
    """Quotes a name in a multipart body as browsers do (HTML, *multipart form data*)."""
    return name.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")


def _from_base64(where: str, text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise invalid_input(f"{where}: is not base64, as its encoding says") from None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")
