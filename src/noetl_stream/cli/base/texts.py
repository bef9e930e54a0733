"""The text of files and of stdin that a user gives, which is UTF-8."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from noetl_stream.errors import UsageError

STDIN: Final = "stdin"
"""The name of standard input, where a file has its own."""

_PIPED: Final = "convert what you pipe into the command to UTF-8, for example with `iconv -f latin1 -t utf-8`"


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
        raise UsageError(message, hint=_PIPED if name == STDIN else "save the file as UTF-8") from None


def file_text(file: Path, name: str = "") -> str:
    """The text of a file, whose lines end with a line feed.

    Args:
        name: The name for messages. Default: the path.

    Raises:
        OSError: it cannot be read.
        UsageError: it is not UTF-8.
    """
    return _with_line_feeds(utf8_text(file.read_bytes(), name or str(file)))


def stdin_text() -> str:
    """The text of stdin, whose lines end with a line feed. It is UTF-8 whatever the locale says.

    Raises:
        UsageError: it is not UTF-8.
    """
    return _with_line_feeds(utf8_text(sys.stdin.buffer.read(), STDIN))


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
