"""The open documents: their text, its reading for each version, and the units that the editor counts; and the playbooks
and schemas in the folders that the editor has open, by their path in the catalog.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.editing.names import TextNames
from noetl_stream.playbook.editing.tree import (
    Lines,
    TextPart,
    TextScalar,
    Units,
    child_of,
    find,
    pairs_of,
    read_tree,
    text_of,
)
from noetl_stream.playbook.model.document import Root
from noetl_stream.playbook.model.sections import keys_of
from noetl_stream.playbook.yaml.source import MAX_PLAYBOOK_BYTES

LANGUAGE: Final = "noetl"
"""The language id of documents that are always playbooks. Others are playbooks if they say so."""

_IS_TEST: Final = re.compile(r"^kind:\s*[\"']?PlaybookTest\b", re.M)
_SAYS_SO: Final = re.compile(r"^(?:\ufeff)?(?:apiVersion:\s*[\"']?noetl\.io/|kind:\s*[\"']?Playbook\b)", re.M)
_WORD: Final = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|[\w./-]+|\S")


class AnswerRefused(JsonRpcException):
    """A refused request of the editor, with the reason."""

    CODE = types.LSPErrorCodes.RequestFailed
    MESSAGE = "refused"


class EditedDocument:
    """One version of an open document."""

    def __init__(self, text: str, units: Units, language: str = "") -> None:
        self.text: Final = text
        self.lines: Final = Lines(text, units)
        self._language = language

    @cached_property
    def names(self) -> TextNames:
        return TextNames.of(self.text)

    @property
    def root(self) -> TextPart | None:
        return self.names.root

    @property
    def is_ours(self) -> bool:
        """Whether the document is a playbook: editors also send other YAML, and tests have a schema of their own."""
        says_so = self._language == LANGUAGE or _SAYS_SO.search(self.text) is not None
        return says_so and _IS_TEST.search(self.text) is None

    @property
    def may_become_ours(self) -> bool:
        """Whether the document does not declare itself to be something other than a playbook."""
        return self.is_ours or all(pair.key.value in keys_of(Root) for pair in pairs_of(self.root))

    def offset(self, position: types.Position) -> int:
        return self.lines.offset(position.line, position.character)

    def position(self, offset: int) -> types.Position:
        return types.Position(*self.lines.place(offset))

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.position(start), self.position(end))

    def protocol_diagnostic(self, found: Diagnostic) -> types.Diagnostic:
        """Converts a diagnostic of ``playbook check`` to the protocol's, over its word."""
        start = self.lines.offset_of_mark(found.line, found.column)
        word = _WORD.match(self.text, start)
        end = min(word.end(), self.lines.end_of_line(start)) if word else start
        return types.Diagnostic(
            range=self.range(start, end),
            severity=types.DiagnosticSeverity.Error if found.severity == "error" else types.DiagnosticSeverity.Warning,
            code=found.code,
            source="noetl-stream",
            message=f"{found.message}\nhint: {found.hint}" if found.hint else found.message,
            data=found.to_json(),
        )


MAX_FILES: Final = 2_000
"""The most YAML files that are examined."""
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
        """Returns the documents in folders, at any depth; hidden folders and those of tools are skipped."""
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
