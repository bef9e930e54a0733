"""Writes the files of a new project: all of them, or none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from noetl_stream.cli.base.output import say
from noetl_stream.errors import UsageError


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
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as written:
                written.write(text)
        except OSError as error:
            raise UsageError(f"{file}: cannot be written: {error.strerror}") from None
        say(file)
