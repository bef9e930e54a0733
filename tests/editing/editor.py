"""An editor: pygls's own client, which talks over stdio to the real ``noetl-stream lsp``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from cli_program import NOETL, PATIENCE_S, environment
from noetl_stream.playbook.editing.tree import Lines


class Editor:
    """A client that keeps what the server tells it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("test", "1")
        self.said: list[str] = []
        self._told: dict[str, types.PublishDiagnosticsParams] = {}
        self._news = asyncio.Event()
        self._version = 0
        self._texts: dict[str, str] = {}
        self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda told: self._tell(told))
        self.client.feature(types.WINDOW_SHOW_MESSAGE)(lambda shown: self.said.append(shown.message))

    async def begin(self, encodings: list[types.PositionEncodingKind] | None = None) -> types.ServerCapabilities:
        await self.client.start_io(*NOETL, "lsp", env=environment())
        can = types.ClientCapabilities(general=types.GeneralClientCapabilities(position_encodings=encodings))
        params = types.InitializeParams(can, root_uri=self.folder.as_uri())
        found = await self.wait(self.client.initialize_async(params))
        self.client.initialized(types.InitializedParams())
        return found.capabilities

    async def end(self) -> None:
        await self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        await self.wait(self.client.stop())

    def open(self, text: str, name: str = "playbook.yaml") -> str:
        """Opens a document; its URI."""
        uri = (self.folder / name).as_uri()
        self._version += 1
        self._texts[uri] = text
        item = types.TextDocumentItem(uri, "yaml", self._version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return uri

    def write(self, uri: str, text: str) -> None:
        self._version += 1
        self._texts[uri] = text
        document = types.VersionedTextDocumentIdentifier(self._version, uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))

    def close(self, uri: str) -> None:
        self._told.pop(uri, None)
        document = types.TextDocumentIdentifier(uri)
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    async def problems(self, uri: str) -> list[types.Diagnostic]:
        """What is told about the text as it is now."""

        async def told() -> list[types.Diagnostic]:
            while True:
                self._news.clear()
                known = self._told.get(uri)
                if known is not None and known.version in (self._version, None):
                    return [*known.diagnostics]
                await self._news.wait()

        return await self.wait(told())

    def at(self, uri: str, words: str, inside: int = 0) -> Any:
        """The place of the first ``words`` in a document, as the parameters of a request."""
        text = self._texts[uri]
        place = types.Position(*Lines(text).place(text.index(words) + inside))
        return {"text_document": types.TextDocumentIdentifier(uri), "position": place}

    def shown(self, uri: str, place: types.Range) -> str:
        """The text in a range."""
        lines = Lines(self._texts[uri])
        start, end = (lines.offset(at.line, at.character) for at in (place.start, place.end))
        return self._texts[uri][start:end]

    def edited(self, uri: str, edit: types.WorkspaceEdit | None) -> str:
        """The text of a document with an edit."""
        assert edit is not None and edit.changes is not None
        text, lines = self._texts[uri], Lines(self._texts[uri])
        for one in reversed(edit.changes[uri]):
            start, end = (lines.offset(at.line, at.character) for at in (one.range.start, one.range.end))
            text = text[:start] + one.new_text + text[end:]
        return text

    @staticmethod
    async def wait(answer: Any) -> Any:
        return await asyncio.wait_for(answer, PATIENCE_S)

    def _tell(self, told: types.PublishDiagnosticsParams) -> None:
        self._told[told.uri] = told
        self._news.set()


@asynccontextmanager
async def editing(folder: Path, begin: Callable[[Editor], Any] = Editor.begin) -> AsyncIterator[Editor]:
    """An editor with a folder open, until the server has ended."""
    editor = Editor(folder)
    await begin(editor)
    try:
        yield editor
    finally:
        await editor.end()
