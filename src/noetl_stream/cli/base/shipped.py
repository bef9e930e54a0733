"""What comes with the program: the whole of it or the command line alone, and files that are no code."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import noetl_stream

if TYPE_CHECKING:  # most commands read no such file, and start faster
    from importlib.resources.abc import Traversable

INSTALL: Final = "install the whole program: `pip install noetl-stream`"


def is_whole() -> bool:
    """Whether this is noetl-stream: noetl-stream-cli has no servers and nothing that they need."""
    return find_spec("noetl_stream.server") is not None


def shipped(packaged: str, source: str) -> Traversable:
    """A folder of files: ``packaged`` in the package of a wheel, or ``source`` in the source tree."""
    from importlib.resources import files

    found = files(noetl_stream) / packaged
    return found if found.is_dir() else Path(noetl_stream.__path__[0]).parents[1] / source
