"""The operator's settings of the kind: ``NOETL_TOOL_FILES``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from noetl_stream.tools.inputs import OwnSettings


def _absolute(folder: str) -> str:
    if not Path(folder).is_absolute() or ".." in Path(folder).parts:
        raise ValueError(f"{folder!r} is not an absolute path")
    return folder


class FilesSettings(OwnSettings):
    """What tasks of the kind may reach, and how much of it."""

    folders: list[Annotated[str, AfterValidator(_absolute)]] = Field(default=[])
    """Absolute paths of the folders below which ``file://`` may read and write. Default: none."""
    max_files: int = Field(default=50_000, ge=1)
    """The files that one task may look at on each side."""
