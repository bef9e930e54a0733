"""The language server: turns requests of an editor into questions about the text, and back.

Documents are checked while they are written: after a pause, one at a time, and only the latest text of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from noetl_stream import __version__
from noetl_stream.language_server.documents import AnswerRefused, EditedDocument
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.diagnostics import Diagnostic
from noetl_stream.playbook.editing.completion import Language, SchemaWords
from noetl_stream.playbook.editing.tree import Units
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.schema import playbook_schema

PAUSE_S: Final = 0.25
"""The time for which a document must be unchanged before it is checked."""

Check = Callable[[str, str], Iterable[Diagnostic]]
"""A function that returns the diagnostics of a text, given with the name of its file."""


class _Wanted(NamedTuple):
    version: int
    timer: asyncio.TimerHandle


class DocumentChecks:
    """Runs at most one check, in a thread; of waiting ones, all but the last of each document are skipped.

    Args:
        check: Returns the diagnostics of a text.
        tell: Called with the diagnostics of the latest text.
        fail: Called with an error of ``check``.
    """

    def __init__(
        self, check: Check, tell: Callable[[str, tuple[Diagnostic, ...]], None], fail: Callable[[Exception], None]
    ) -> None:
        self._check = check
        self._tell = tell
        self._fail = fail
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="check")
        self._wanted: dict[str, _Wanted] = {}
        self._asked = 0

    def ask(self, uri: str, file: str, text: str, pause_s: float = PAUSE_S) -> None:
        """Checks a text after a pause, unless another of the same document comes first."""
        self.forget(uri)
        self._asked += 1
        version = self._asked
        loop = asyncio.get_running_loop()
        timer = loop.call_later(pause_s, lambda: loop.create_task(self._run(uri, version, file, text)))
        self._wanted[uri] = _Wanted(version, timer)

    def forget(self, uri: str) -> None:
        before = self._wanted.pop(uri, None)
        if before is not None:
            before.timer.cancel()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, uri: str, version: int, file: str, text: str) -> None:
        def run_check() -> tuple[Diagnostic, ...] | None:
            return tuple(self._check(text, file)) if self._is_wanted(uri, version) else None

        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, run_check)
        except Exception as error:
            self._fail(error)
            return
        if found is not None and self._is_wanted(uri, version):
            self._tell(uri, found)

    def _is_wanted(self, uri: str, version: int) -> bool:
        wanted = self._wanted.get(uri)
        return wanted is not None and wanted.version == version


_UNITS: Final[dict[str, Units]] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}


class PlaybookServer(LanguageServer):
    """Answers questions about playbooks with these tool kinds, within these limits.

    Editors send whole texts: a playbook is small, and no agreement on line ends is needed then.
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
