"""Files and stdin of a user, which are UTF-8 text; files of new projects; and files of the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import noetl_stream
from noetl_stream.cli.base.output import say
from noetl_stream.errors import UsageError, usable_file

if TYPE_CHECKING:  # most commands read no such file, and start faster
    from importlib.resources.abc import Traversable

STDIN: Final = "stdin"
"""The name of standard input in place of a file name."""

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
    """The text of stdin, whose lines end with a line feed. It is UTF-8, whatever the locale.

    Raises:
        UsageError: it is not UTF-8.
    """
    return _with_line_feeds(utf8_text(sys.stdin.buffer.read(), STDIN))


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def write_project(folder: Path, project: Mapping[str, str], *, hint: str) -> None:
    """Writes the text of each file, by its path in ``folder``, and prints the paths.

    Raises:
        UsageError: a file exists, so that nothing was written, or one cannot be written.
    """
    existing = [str(folder / path) for path in project if os.path.lexists(folder / path)]
    if existing:
        raise UsageError(f"nothing written, because these files exist: {', '.join(existing)}", hint=hint)
    for path, text in project.items():
        file = folder / path
        with usable_file(file, "written"):
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
        say(file)


INSTALL: Final = "install the whole program: `pip install noetl-stream`"


def is_whole() -> bool:
    """Whether this is noetl-stream: noetl-stream-cli has no servers, nor their dependencies."""
    return find_spec("noetl_stream.server") is not None


def shipped(packaged: str, source: str) -> Traversable:
    """A folder of files: ``packaged`` in the package of a wheel, or ``source`` in the source tree."""
    from importlib.resources import files

    found = files(noetl_stream) / packaged
    return found if found.is_dir() else Path(noetl_stream.__path__[0]).parents[1] / source
