"""The playbooks and schemas in the folders that an editor has open, by their path in the catalog."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from noetl_stream.playbook.editing.lines import Lines
from noetl_stream.playbook.editing.tree import TextScalar, child_of, find, read_tree, text_of
from noetl_stream.playbook.yaml.source import MAX_PLAYBOOK_BYTES

MAX_FILES: Final = 2_000
"""The most YAML files that are looked at."""
MAX_FOLDERS: Final = 10_000
_ENDINGS: Final = (".yaml", ".yml")
_MARK: Final = b"noetl.io/"
_LEFT_OUT: Final = frozenset(["node_modules", "__pycache__", "venv", "build", "dist", "target"])


class WorkspaceDocument(NamedTuple):
    """A catalog document in a file. ``line`` and ``start`` to ``end`` locate its path in characters, all from 0."""

    file: Path
    kind: str
    path: str
    line: int
    start: int
    end: int


class WorkspaceFiles:
    """Finds playbooks and schemas in files; reads a file again only when it has changed."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], WorkspaceDocument | None]] = {}

    def documents(self, folders: Iterable[Path]) -> list[WorkspaceDocument]:
        """Returns the documents in folders, at any depth; hidden folders and those of tools are left out."""
        files = [file for folder in folders for file in _files_in(folder)][:MAX_FILES]
        self._known = {file: known for file in files if (known := self._read(file)) is not None}
        return [document for _, document in self._known.values() if document is not None]

    def _read(self, file: Path) -> tuple[tuple[int, int], WorkspaceDocument | None] | None:
        try:
            found = file.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            known = self._known.get(file)
            if known is not None and known[0] == stamp:
                return known
            content = file.read_bytes() if found.st_size <= MAX_PLAYBOOK_BYTES else b""
        except OSError:
            return None
        return stamp, document_in(file, content.decode("utf-8", "replace")) if _MARK in content else None


def document_in(file: Path, text: str) -> WorkspaceDocument | None:
    """Returns the catalog document in a text; ``None`` if it has no path in the catalog."""
    root = read_tree(text)
    path = find(root, ("metadata", "path"))
    if not isinstance(path, TextScalar) or not path.value:
        return None
    start, end = path.inner
    line, character = Lines(text, "utf-32").place(start)
    kind = text_of(child_of(root, "kind"))
    return WorkspaceDocument(file, kind, path.value.removeprefix("/"), line, character, character + end - start)


def _files_in(folder: Path) -> Iterator[Path]:
    for number, (place, folders, files) in enumerate(os.walk(folder)):
        if number == MAX_FOLDERS:
            return
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _LEFT_OUT)
        yield from (Path(place, name) for name in sorted(files) if name.endswith(_ENDINGS))
