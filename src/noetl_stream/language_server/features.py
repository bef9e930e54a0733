"""Serves one editor: answers each request of the protocol, from the text of a document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from lsprotocol import types
from pygls import uris

from noetl_stream.language_server.documents import AnswerRefused, EditedDocument, WorkspaceDocument, WorkspaceFiles
from noetl_stream.language_server.language_server import PlaybookServer, follow_documents
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.diagnostics import OLDER_FORMS, InvalidPlaybook
from noetl_stream.playbook.editing.changes import CannotRename, TextChange, fixes, renamable_at, rename
from noetl_stream.playbook.editing.completion import Offer, complete
from noetl_stream.playbook.editing.hover import hover
from noetl_stream.playbook.editing.names import Occurrence
from noetl_stream.playbook.editing.outline import OutlineEntry, folds, outline
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.upgrade.upgrade import upgrade

_KINDS_OF_OFFERS: Final = {
    "key": types.CompletionItemKind.Property,
    "word": types.CompletionItemKind.EnumMember,
    "name": types.CompletionItemKind.Variable,
    "namespace": types.CompletionItemKind.Module,
    "filter": types.CompletionItemKind.Function,
}
_KINDS_OF_SYMBOLS: Final = {
    "section": types.SymbolKind.Namespace,
    "step": types.SymbolKind.Class,
    "task": types.SymbolKind.Method,
    "construct": types.SymbolKind.Operator,
    "value": types.SymbolKind.Property,
    "entry": types.SymbolKind.Object,
}
_REWRITE: Final = "Rewrite the older forms of this playbook"

MAX_FOLDS: Final = 5_000


def answer_questions(server: PlaybookServer) -> None:
    """Registers the answers to all requests."""
    _about_places(server)
    _about_documents(server)
    _changes(server)


def _about_places(server: PlaybookServer) -> None:
    files = WorkspaceFiles()

    async def in_workspace(kind: str) -> list[WorkspaceDocument]:
        folders = [Path(path) for one in _folders(server) if (path := uris.to_fs_path(one)) is not None]
        found = await asyncio.to_thread(files.documents, folders)
        return [one for one in found if one.kind == kind]

    @server.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", "{", "|", " ", ":"])
    )
    async def completion(params: types.CompletionParams) -> types.CompletionList:
        document = server.document(params.text_document.uri)
        if not document.may_become_ours:
            return types.CompletionList(is_incomplete=False, items=[])
        playbooks = []
        if "path:" in document.lines.line_of(document.offset(params.position)):
            playbooks = [one.path for one in await in_workspace("Playbook")]
        offset = document.offset(params.position)
        found = complete(document.text, offset, server.language, playbooks)
        place = document.range(found.start, offset)
        items = [_item(number, offer, place) for number, offer in enumerate(found.offers)]
        return types.CompletionList(is_incomplete=False, items=items)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def about(params: types.HoverParams) -> types.Hover | None:
        document = server.document(params.text_document.uri)
        if not document.is_ours:
            return None
        found = hover(document.names, document.lines, document.offset(params.position), server.language)
        if found is None:
            return None
        text = types.MarkupContent(types.MarkupKind.Markdown, found.text)
        return types.Hover(text, document.range(found.start, found.end))

    @server.feature(types.TEXT_DOCUMENT_DEFINITION)
    async def definition(params: types.DefinitionParams) -> list[types.Location]:
        uri = params.text_document.uri
        document = server.document(uri)
        found = document.names.occurrence_at(document.offset(params.position)) if document.is_ours else None
        if found is None:
            return []
        if found.symbol.kind in ("playbook", "schema"):
            wanted = found.symbol.name.removeprefix("/")
            kind = found.symbol.kind.capitalize()
            return [_location(one) for one in await in_workspace(kind) if one.path == wanted]
        places = [one for one in document.names.occurrences_of(found.symbol) if one.declares]
        return [types.Location(uri, document.range(one.start, one.end)) for one in places]

    @server.feature(types.TEXT_DOCUMENT_REFERENCES)
    def references(params: types.ReferenceParams) -> list[types.Location]:
        document = server.document(params.text_document.uri)
        found = _same_name(document, params.position)
        wanted = [one for one in found if params.context.include_declaration or not one.declares]
        return [types.Location(params.text_document.uri, document.range(one.start, one.end)) for one in wanted]

    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlights(params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
        document = server.document(params.text_document.uri)
        read, write = types.DocumentHighlightKind.Read, types.DocumentHighlightKind.Write
        return [
            types.DocumentHighlight(document.range(one.start, one.end), write if one.declares else read)
            for one in _same_name(document, params.position)
        ]


def _about_documents(server: PlaybookServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        document = server.document(params.text_document.uri)
        return [_symbol(document, one) for one in outline(document.root)] if document.is_ours else []

    @server.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    def folding(params: types.FoldingRangeParams) -> list[types.FoldingRange]:
        document = server.document(params.text_document.uri)
        lines: dict[int, int] = {}
        for start, end in folds(document.root) if document.is_ours else ():
            first, last = document.lines.place(start)[0], document.lines.place(max(start, end - 1))[0]
            if first < last:
                lines[first] = max(last, lines.get(first, 0))
        return [types.FoldingRange(first, last) for first, last in [*lines.items()][:MAX_FOLDS]]


def _changes(server: PlaybookServer) -> None:
    @server.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    def prepare_rename(params: types.PrepareRenameParams) -> types.Range:
        document = server.document(params.text_document.uri)
        try:
            found = renamable_at(document.names, document.offset(params.position))
        except CannotRename as error:
            raise AnswerRefused(error.message) from None
        return document.range(found.start, found.end)

    @server.feature(types.TEXT_DOCUMENT_RENAME, types.RenameOptions(prepare_provider=True))
    def rename_name(params: types.RenameParams) -> types.WorkspaceEdit:
        document = server.document(params.text_document.uri)
        try:
            changes = rename(document.text, document.names, document.offset(params.position), params.new_name)
        except CannotRename as error:
            raise AnswerRefused(f"{error.message}: {error.hint}" if error.hint else error.message) from None
        return _edit(params.text_document.uri, document, changes)

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix], resolve_provider=True),
    )
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        uri = params.text_document.uri
        document = server.document(uri)
        if not document.is_ours:
            return []
        found = [one for shown in params.context.diagnostics for one in _fixes(uri, document, shown)]
        if any(shown.code in OLDER_FORMS for shown in params.context.diagnostics):
            found.append(types.CodeAction(_REWRITE, types.CodeActionKind.QuickFix, data={"rewrite": uri}))
        return found

    @server.feature(types.CODE_ACTION_RESOLVE)
    async def resolve_action(action: types.CodeAction) -> types.CodeAction:
        uri = action.data.get("rewrite") if isinstance(action.data, dict) else None
        if not isinstance(uri, str):
            return action
        document = server.document(uri)
        try:
            rewritten = await asyncio.to_thread(upgrade, document.text, server.kinds, file=uri, limits=server.limits)
        except InvalidPlaybook as error:
            raise AnswerRefused(error.message) from None
        action.edit = _edit(uri, document, [TextChange(0, len(document.text), rewritten.text)])
        return action


def _fixes(uri: str, document: EditedDocument, shown: types.Diagnostic) -> Iterator[types.CodeAction]:
    """Yields the quick fixes of a diagnostic, as returned by the editor."""
    said: dict[str, Any] = shown.data if isinstance(shown.data, dict) else {}
    message, hint = said.get("message"), said.get("hint")
    if shown.source != "noetl-stream" or not isinstance(message, str) or not isinstance(hint, str):
        return
    at = document.offset(shown.range.start)
    for fix in fixes(document.text, document.root, at, message, hint):
        yield types.CodeAction(
            fix.title,
            types.CodeActionKind.QuickFix,
            diagnostics=[shown],
            is_preferred=fix.is_sure,
            edit=_edit(uri, document, [fix.change]),
        )


def _same_name(document: EditedDocument, position: types.Position) -> Sequence[Occurrence]:
    """Returns all places of the name at a position."""
    found = document.names.occurrence_at(document.offset(position)) if document.is_ours else None
    return document.names.occurrences_of(found.symbol) if found is not None else []


def _edit(uri: str, document: EditedDocument, changes: list[TextChange]) -> types.WorkspaceEdit:
    return types.WorkspaceEdit(
        changes={uri: [types.TextEdit(document.range(one.start, one.end), one.text) for one in changes]}
    )


def _item(number: int, offer: Offer, place: types.Range) -> types.CompletionItem:
    return types.CompletionItem(
        offer.label,
        kind=_KINDS_OF_OFFERS[offer.kind],
        detail=offer.detail or None,
        sort_text=f"{number:04}",
        text_edit=types.TextEdit(place, offer.text),
    )


def _symbol(document: EditedDocument, entry: OutlineEntry) -> types.DocumentSymbol:
    return types.DocumentSymbol(
        entry.name,
        _KINDS_OF_SYMBOLS[entry.kind],
        document.range(entry.start, entry.end),
        document.range(entry.name_start, entry.name_end),
        detail=entry.detail or None,
        children=[_symbol(document, one) for one in entry.inside],
    )


def _location(found: WorkspaceDocument) -> types.Location:
    place = types.Range(types.Position(found.line, found.start), types.Position(found.line, found.end))
    return types.Location(uris.from_fs_path(str(found.file)) or "", place)


def _folders(server: PlaybookServer) -> list[str]:
    """Returns the folders that the editor has open."""
    workspace = server.workspace
    return [*workspace.folders] or ([workspace.root_uri] if workspace.root_uri else [])


def serve(kinds: Kinds, limits: Limits, given: BinaryIO, taken: BinaryIO) -> None:
    """Serves an editor until it ends the session, or has gone.

    Args:
        given: The stream of the editor's messages.
        taken: The stream of the answers.
    """
    server = PlaybookServer(kinds, limits)
    follow_documents(server)
    answer_questions(server)
    try:
        server.start_io(given, taken)
    finally:
        server.checks.close()
