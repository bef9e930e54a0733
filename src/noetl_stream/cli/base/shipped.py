"""Files that come with the program: in the wheel inside its package, in a source tree where people edit them."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import noetl_stream


def shipped(packaged: str, source: str) -> Traversable:
    """A folder of them: ``packaged`` in the package, or ``source`` in the source tree."""
    found = files(noetl_stream) / packaged
    return found if found.is_dir() else Path(noetl_stream.__path__[0]).parents[1] / source
