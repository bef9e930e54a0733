"""The language server: turns requests of an editor into questions about the text, and back."""

from __future__ import annotations

from typing import Final

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from noetl_stream import __version__
from noetl_stream.language_server.checks import PAUSE_S, DocumentChecks
from noetl_stream.language_server.documents import AnswerRefused, EditedDocument
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.editing.completion import Language
from noetl_stream.playbook.editing.lines import Units
from noetl_stream.playbook.editing.schema_words import SchemaWords
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.schema import playbook_schema

_UNITS: Final[dict[str, Units]] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}


class PlaybookServer(LanguageServer):
    """Answers about playbooks with these tool kinds, within these limits.

    Editors send whole texts: a playbook is small, and line ends need no agreement then.
    """

    def __init__(self, kinds: Kinds, limits: Limits) -> None:
        super().__init__("noetl-stream", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)
        self.kinds: Final = kinds
        self.limits: Final = limits
        helpers = {name: kind.helper for name, kind in kinds.items() if kind.helper}
        self.language: Final = Language(SchemaWords(playbook_schema(kinds, limits)), helpers)
        self.checks: Final = DocumentChecks(self._check, self._tell, self._fail)
        self._read: dict[str, EditedDocument] = {}

    def document(self, uri: str) -> EditedDocument:
        """Returns the present document, read once for each text.

        Raises:
            AnswerRefused: the editor has not opened the document.
        """
        now = self.workspace.text_documents.get(uri)
        if now is None:
            raise AnswerRefused(f"{uri} is not open")
        known = self._read.get(uri)
        if known is None or known.text != now.source:
            units = _UNITS.get(self.workspace.position_encoding or "", "utf-16")
            known = self._read[uri] = EditedDocument(now.source, units, now.language_id or "")
        return known

    def check_soon(self, uri: str, pause_s: float = PAUSE_S) -> None:
        """Checks a changed document soon."""
        document = self.document(uri)
        if not document.is_ours:
            self.checks.forget(uri)
            self._tell(uri, ())
            return
        file = self.workspace.get_text_document(uri).path
        self.checks.ask(uri, file, document.text, pause_s)

    def forget_document(self, uri: str) -> None:
        self.checks.forget(uri)
        self._read.pop(uri, None)
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, []))

    def _check(self, text: str, file: str) -> tuple[Diagnostic, ...]:
        return check_document(text, self.kinds, file=file, limits=self.limits, proves=True).diagnostics

    def _tell(self, uri: str, found: tuple[Diagnostic, ...]) -> None:
        document, number = self.document(uri), self.workspace.get_text_document(uri).version
        shown = [document.protocol_diagnostic(one) for one in found]
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, shown, number))

    def _fail(self, error: Exception) -> None:
        message = f"the playbook could not be checked: {type(error).__name__}: {error}"
        self.window_show_message(types.ShowMessageParams(types.MessageType.Error, message))


def follow_documents(server: PlaybookServer) -> None:
    """Registers the handlers that follow the text of documents."""

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def on_opened(params: types.DidOpenTextDocumentParams) -> None:
        server.check_soon(params.text_document.uri, pause_s=0)

    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def on_changed(params: types.DidChangeTextDocumentParams) -> None:
        server.check_soon(params.text_document.uri)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def on_closed(params: types.DidCloseTextDocumentParams) -> None:
        server.forget_document(params.text_document.uri)
