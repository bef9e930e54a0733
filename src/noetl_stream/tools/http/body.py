"""Bodies of requests of ``kind: http`` (LANGUAGE §12 *http*)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from pydantic import BeforeValidator, Field, model_validator

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.json import pieces
from noetl_stream.sealing.data_references import PARQUET, DataReference, read_reference
from noetl_stream.tools.inputs import Inputs, invalid_input

Scalar = str | int | float | bool | None


class FilePart(Inputs):
    """A file in a multipart body."""

    content: str | None = Field(default=None, description="The content, as text.")
    file: Any = Field(default=None, description="A file or table by reference, in place of `content`.")
    filename: str | None = Field(default=None, description="The name of the file. Default: that of `file`.")
    content_type: str | None = Field(default=None, description="Its media type. Default: that of `file`.")
    encoding: Literal["base64"] | None = Field(default=None, description="`base64`: `content` is base64 text.")

    @model_validator(mode="after")
    def _one_content(self) -> FilePart:
        if (self.content is None) == (self.file is None):
            raise ValueError("a file needs either `content` or `file`")
        if self.content is None and self.encoding is not None:
            raise ValueError("`encoding` goes with `content`")
        return self


def _as_part(value: Any) -> Any:
    return value if read_reference(value) is None else {"file": value}


Fields = Mapping[str, Scalar | list[Scalar]]
Part = Annotated[Scalar | FilePart, BeforeValidator(_as_part)]
Parts = dict[str, Part | list[Part]]
Pieces = Sequence[bytes | DataReference]
"""The bytes of a body, some of them in files and tables."""


def body_of(
    *, json_value: Any, form: Fields | None, text: str | None, is_base64: bool
) -> tuple[bytes | None, str | None]:
    """Returns the bytes of the given body and their media type. ``text`` has precedence over ``json_value``.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    if form is not None:
        return urlencode(pairs(form)).encode(), "application/x-www-form-urlencoded"
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


def multipart_of(parts: Parts, reference: Callable[[Any], DataReference | None]) -> tuple[Pieces, str]:
    """Encodes a multipart body (RFC 7578). The boundary derives from the content: a redelivery sends the same bytes.

    Args:
        reference: Returns what a value refers to, if the task may open it.

    Raises:
        ToolFailure: ``invalid_input``.
    """
    blocks = [(_head(name, part, file), _content(name, part, file)) for name, part, file in _opened(parts, reference)]
    digest = hashlib.sha256()
    for head, content in blocks:
        digest.update(head + (content if isinstance(content, bytes) else content.checksum.encode()) + b"\0")
    boundary = digest.hexdigest()[:32].encode()
    pieces = [piece for head, content in blocks for piece in (b"--%b\r\n%b" % (boundary, head), content, b"\r\n")]
    return [*pieces, b"--%b--\r\n" % boundary], f"multipart/form-data; boundary={boundary.decode()}"


def size_of(pieces: Pieces) -> int:
    """Returns how many bytes a body has."""
    return sum(len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces)


def _opened(
    parts: Parts, reference: Callable[[Any], DataReference | None]
) -> Iterator[tuple[str, Scalar | FilePart, DataReference | None]]:
    """Yields the parts by name, with the files and tables that they refer to."""
    for name, part in _members(parts):
        file = None
        if isinstance(part, FilePart) and part.file is not None and (file := reference(part.file)) is None:
            raise invalid_input(f"multipart.{name}.file: it is not a file or a table of this execution")
        yield name, part, file


def _head(name: str, part: Scalar | FilePart, file: DataReference | None) -> bytes:
    lines = [f'Content-Disposition: form-data; name="{_quote_name(name)}"']
    if isinstance(part, FilePart):
        filename, kind = part.filename, part.content_type
        if file is not None:
            of_table = ("table.parquet", PARQUET) if file.columns is not None else ("file", None)
            filename, kind = filename or file.name or of_table[0], kind or file.media_type or of_table[1]
        if filename is not None:
            lines[0] += f'; filename="{_quote_name(filename)}"'
        if kind is not None and any(ord(sign) < 32 or ord(sign) == 127 for sign in kind):
            raise invalid_input(f"multipart.{name}.content_type: contains a line break or another control character")
        if kind is not None or filename is not None:
            lines.append(f"Content-Type: {kind or 'application/octet-stream'}")
    return _utf8("\r\n".join([*lines, "", ""]))


def _content(name: str, part: Scalar | FilePart, file: DataReference | None) -> bytes | DataReference:
    if file is not None:
        return file
    if not isinstance(part, FilePart):
        return _utf8(scalar_text(part))
    content = part.content or ""
    return _utf8(content) if part.encoding is None else _from_base64(f"multipart.{name}.content", content)


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
