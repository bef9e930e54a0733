"""The text of files that a user gives, which is UTF-8."""

from __future__ import annotations

from noetl_stream.errors import UsageError


def utf8_text(data: bytes, name: str, first_line: int = 1) -> str:
    """The text of a file, or of the part of it that begins with ``first_line``.

    Raises:
        UsageError: it is not UTF-8. The message has the line.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + error.object.count(b"\n", 0, error.start)
        message = f"{name}:{line}: byte 0x{error.object[error.start]:02x} is not UTF-8"
        raise UsageError(message, hint="save the file as UTF-8") from None
