"""The open documents: their text, its reading for each version, and the units that the editor counts."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.editing.lines import Lines, Units
from noetl_stream.playbook.editing.names import TextNames
from noetl_stream.playbook.editing.tree import TextPart, pairs_of, read_tree
from noetl_stream.playbook.model.document import Root
from noetl_stream.playbook.model.sections import keys_of

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
        return TextNames(self.text, read_tree(self.text))

    @property
    def root(self) -> TextPart | None:
        return self.names.root

    @property
    def is_ours(self) -> bool:
        """Whether the document is a playbook: editors send other YAML, too, and tests have a schema of their own."""
        says_so = self._language == LANGUAGE or _SAYS_SO.search(self.text) is not None
        return says_so and _IS_TEST.search(self.text) is None

    @property
    def may_become_ours(self) -> bool:
        """Whether the document does not say that it is something other than a playbook."""
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
