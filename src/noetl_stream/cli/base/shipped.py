"""What comes with the program: the whole of it or the command line alone, and files that are no code."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import noetl_stream

INSTALL: Final = "install the whole program: `pip install noetl-stream`"


def is_whole() -> bool:
    """Whether this is noetl-stream: noetl-stream-cli has no servers and nothing that they need."""
    return find_spec("noetl_stream.server") is not None


def shipped(packaged: str, source: str) -> Traversable:
    """A folder of files: ``packaged`` in the package of a wheel, or ``source`` in the source tree."""
    found = files(noetl_stream) / packaged
    return found if found.is_dir() else Path(noetl_stream.__path__[0]).parents[1] / source
