"""The changes of a deployment in the catalog, and its record there: the documents that the project has registered, so
that ``--prune`` removes nothing else.

The record is a schema at ``NAME/project`` that only its own list matches, so that every server keeps it, each version
is a deployment, and tokens see it where they see the project. It is written before anything else: an interrupted
deployment has registered nothing that the record lacks. Its version is the number of its revision, and the catalog
accepts a version once: of two concurrent deployments one is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.session import CallerRights, Session, collect
from noetl_stream.cli.project.packages import Bundle, changed_files, store_bundle, stored_files
from noetl_stream.cli.project.project_check import STARTERS, FileRefusal, ProjectDocument, refuse
from noetl_stream.cli.project.project_file import KINDS
from noetl_stream.errors import Conflict, Forbidden, NotFound, UsageError
from noetl_stream.model.aggregates import SCHEDULE
from noetl_stream.model.rights import covers, includes_role
from noetl_stream.ports.operations.playbooks import CatalogKind, PlaybookDocument
from noetl_stream.ports.stores.catalog import SCHEMA

BUNDLE: Final = "Bundle"
SHOWN_DIGEST: Final = 12
"""The characters of a digest that are shown."""

LABELS: Final = {"deployed-by": "noetl-stream"}

Change = Literal["added", "changed", "unchanged", "adopted", "pruned", "left"]
"""The kinds of changes. ``adopted``: already registered by somebody else; ``left``: registered, and not pruned."""

NO_CHANGE: Final = ("unchanged", "left")


class DeployedItem(msgspec.Struct, frozen=True):
    """A document of a deployment.

    Attributes:
        registered: The version, or revision, that was the latest before; ``None`` if there was none.
        version: The version that is or will be registered; ``None`` for the next revision.
        done: Whether the change is made.
    """

    change: Change
    kind: str
    path: str
    registered: str | None
    version: str | None
    file: str | None
    done: bool = False
    note: str = ""


class RecordedDocument(msgspec.Struct, frozen=True):
    """A document that a project has registered. ``digests`` are those of its texts that may be the latest."""

    kind: CatalogKind
    digests: tuple[str, ...]


class Record(msgspec.Struct, frozen=True):
    """The documents that a project has registered, by path, and the bundle of its packages."""

    project: str
    registered: dict[str, RecordedDocument]
    bundle: str = ""

    def source(self, revision: int) -> bytes:
        """The document that is registered as this revision."""
        about = f"What `noetl-stream deploy` has registered of the project {self.project}"
        metadata = {"name": f"{self.project} as deployed", "path": record_path(self.project), "version": str(revision)}
        document = {
            "apiVersion": "noetl.io/v2",
            "kind": SCHEMA,
            "metadata": {**metadata, "labels": LABELS, "description": about},
            "spec": {"const": msgspec.to_builtins(self)},
        }
        return msgspec.json.format(msgspec.json.encode(document), indent=1)


class _RecordSpec(msgspec.Struct):
    const: Record


class _RecordDocument(msgspec.Struct):
    spec: _RecordSpec


def record_path(name: str) -> str:
    """The path of a project's record."""
    return f"{name}/project"


async def record_at(session: Session, path: str) -> tuple[Record | None, int]:
    """The record at a path and its revision; 0 if there is none."""
    try:
        found = await session.operations.playbooks.get(path, None)
        return msgspec.json.decode(found.source, type=_RecordDocument).spec.const, found.revision
    except NotFound:
        return None, 0
    except msgspec.MsgspecError:
        hint = f"see `noetl-stream playbook show {path}`, and choose another `name` for the project, or delete that"
        raise UsageError(f"{path} is not the record of a project, and has its place", hint=hint) from None


class Deployment:
    """The changes of deploying a project, with their progress in ``items``."""

    def __init__(
        self,
        session: Session,
        record: Record,
        revision: int,
        documents: Sequence[ProjectDocument],
        bundle: Bundle | None,
    ) -> None:
        self._session, self._record, self._revision = session, record, revision
        self._bundle = bundle
        self._documents = {one.path: one for one in documents}
        self._forgotten: set[str] = set()
        self._latest: dict[str, PlaybookDocument] = {}
        self.items: list[DeployedItem] = []

    @property
    def differs(self) -> bool:
        return any(item.change not in NO_CHANGE for item in self.items)

    async def compare(self, caller: CallerRights, *, prune: bool) -> None:
        """Fills ``items`` by comparison with the catalog. Ends the command if a document cannot be registered."""
        known = self._record.registered
        self._latest = latest = await _latest(self._session, {*self._documents, *known})
        begun = await _begun(self._session, latest.values())
        refusals: list[FileRefusal] = []
        for path, document in self._documents.items():
            entry = latest.get(path)
            digest = begun.get(path) if document.kind in STARTERS else entry and entry.digest
            if entry is not None:
                refusals += await self._refused(document, entry)
            change: Change = "added" if entry is None else "unchanged" if digest == document.digest else "changed"
            if change == "unchanged" and document.digest not in _digests(known, path):
                change = "adopted"
            same = entry is not None and entry.digest == document.digest
            version = entry.known_as if entry is not None and same else document.version
            before = None if entry is None else entry.known_as
            self.items.append(DeployedItem(change, document.kind, path, before, version, document.name))
        await self._compare_bundle()
        others = await self._others(prune=prune)
        self.items = [replace(item, note=item.note or _of_other(others.get(item.path))) for item in self.items]
        kinds = list(KINDS.values())[::-1]  # a schedule precedes the playbook that it starts
        for path in sorted(known.keys() - self._documents.keys(), key=lambda one: (kinds.index(known[one].kind), one)):
            self._leave(path, latest.get(path), caller, others, prune=prune)
        refusals += self._callers_of({item.path for item in self.items if item.change == "pruned"})
        refuse(refusals)

    async def _compare_bundle(self) -> None:
        before = self._record.bundle.rpartition("@")[2]
        if self._bundle is not None:
            name = self._bundle.name
            known = await stored_files(self._session, self._record.bundle)
            is_stored = before == name.digest and bool(known)
            change: Change = "added" if not before else "unchanged" if is_stored else "changed"
            files = len(self._bundle.files)
            note = f"{files} {'file' if files == 1 else 'files'}, {len(self._bundle.data):,} bytes"
            if change == "changed":  # also one that was lost since it was deployed
                note += f": {changed_files(known, self._bundle.files)}"
            shown = before[:SHOWN_DIGEST] or None
            self.items.insert(
                0, DeployedItem(change, BUNDLE, name.project, shown, name.digest[:SHOWN_DIGEST], None, note=note)
            )

    async def _refused(self, document: ProjectDocument, entry: PlaybookDocument) -> list[FileRefusal]:
        """The reason why a document cannot become the latest at its path."""
        name, path, version = document.name, document.path, document.version
        if entry.kind != document.kind:
            hint = "choose another path, or delete what is there first"
            return [FileRefusal(name, f"{path} is the path of a {entry.kind.lower()}", hint)]
        if version is None or entry.digest == document.digest:
            return []
        versions = await self._session.operations.playbooks.versions(path)
        taken = next((one for one in versions if one.version == version), None)
        if taken is not None and taken.digest != document.digest:
            hint = "a version never changes: give the new text another metadata.version, or none"
            return [FileRefusal(name, f"{path}@{version} is registered with a different text", hint)]
        if taken is not None and document.kind not in STARTERS:
            hint = "to go back to an earlier text, give it a new metadata.version, or none"
            return [FileRefusal(name, f"{path}@{version} is registered, and {entry.known_as} after it", hint)]
        return []

    async def _others(self, *, prune: bool) -> dict[str, str]:
        """The other projects, by the paths that they have registered."""
        if not self.differs and not (prune and self._record.registered.keys() - self._documents.keys()):
            return {}
        playbooks = self._session.operations.playbooks
        found = await collect(lambda size, cursor: playbooks.page("", LABELS, size, cursor, kinds=[SCHEMA]))
        records = [await record_at(self._session, one.path) for one in found if one.path.endswith(record_path(""))]
        others = [one for one, _ in records if one is not None and one.project != self._record.project]
        return {path: one.project for one in others for path in one.registered}

    def _leave(
        self,
        path: str,
        entry: PlaybookDocument | None,
        caller: CallerRights,
        others: Mapping[str, str],
        *,
        prune: bool,
    ) -> None:
        """Adds the item of a document that is no longer in the project."""
        recorded = self._record.registered[path]
        if not covers(caller.paths, path):
            note = "this token does not cover it"
        elif entry is None:
            self._forgotten.add(path)
            return
        elif path in others or entry.digest not in recorded.digests:
            self._forgotten.add(path)
            note = _of_other(others.get(path)) or f"{entry.registered_by} registered another text"
        else:
            note = "" if prune else "--prune removes it"
        change: Change = "left" if note else "pruned"
        before = None if entry is None else entry.known_as
        self.items.append(DeployedItem(change, recorded.kind, path, before, None, None, note=note))

    def _callers_of(self, paths: Collection[str]) -> list[FileRefusal]:
        hint = "keep its file in the project, or mend the call"
        return [
            FileRefusal(one.name, f"names {path}, which --prune would remove", hint)
            for one in self._documents.values()
            for path in sorted(one.calls & set(paths))
        ]

    async def carry_out(self, *, prune: bool) -> None:
        """Registers the differences, and removes documents to be pruned.

        Raises:
            UsageError: something was refused; ``items`` say what was done.
        """
        known = dict(self._record.registered)
        for path, document in self._documents.items():
            recorded = _digests(known, path)
            if document.digest not in recorded:
                still = tuple(one for one in recorded if path in self._latest and one == self._latest[path].digest)
                known[path] = RecordedDocument(document.kind, (*still, document.digest))
        await self._keep(known)
        for place, item in enumerate(self.items):
            if self._bundle is not None and item.kind == BUNDLE and item.change in ("added", "changed"):
                await store_bundle(self._session, self._bundle)
            elif item.change in ("added", "changed"):
                document = self._documents[item.path]
                entry = await self._register(document.source, document.name)
                item = replace(item, version=entry.known_as)
            elif item.change == "pruned":
                await self._remove(item)
                known.pop(item.path)
            self.items[place] = replace(item, done=item.change not in NO_CHANGE)
        if prune:
            await self._keep({path: one for path, one in known.items() if path not in self._forgotten})

    async def _keep(self, registered: dict[str, RecordedDocument]) -> None:
        bundle = "" if self._bundle is None else str(self._bundle.name)
        if (registered, bundle) != (self._record.registered, self._record.bundle):
            self._record = replace(self._record, registered=registered, bundle=bundle)
            path, source = record_path(self._record.project), self._record.source(self._revision + 1)
            try:
                entry = await self._session.operations.playbooks.register(source, path, self._session.by)
            except Conflict:
                hint = "repeat the command: it compares with what is registered now"
                raise UsageError(f"another deployment of {self._record.project} is under way", hint=hint) from None
            self._revision = entry.revision

    async def _register(self, source: bytes, name: str) -> PlaybookDocument:
        try:
            return await self._session.operations.playbooks.register(source, name, self._session.by)
        except (Conflict, UsageError) as error:
            raise UsageError(f"{name}: {error.message}", hint=error.hint) from None

    async def _remove(self, item: DeployedItem) -> None:
        operations, by = self._session.operations, self._session.by
        with suppress(NotFound):  # somebody else was quicker
            if item.kind in STARTERS:
                starters: Any = operations.schedules if item.kind == SCHEDULE else operations.triggers
                await starters.delete(item.path, by, f"pruned by a deployment of {self._record.project}")
            else:
                await operations.playbooks.delete(item.path, None, by)


async def compared(
    session: Session,
    name: str,
    documents: Sequence[ProjectDocument],
    caller: CallerRights,
    bundle: Bundle | None,
    *,
    prune: bool,
) -> Deployment:
    """The deployment of these documents, compared with what is registered.

    Raises:
        Forbidden: the caller may not register the record.
    """
    path = record_path(name)
    if not covers(caller.paths, path):
        hint = f"its paths are {', '.join(caller.paths)}; `name` of a project is a path"
        raise Forbidden(f"this token does not cover {path}, the record of the project", hint=hint)
    hint = "give the document another path, or the project another name"
    refuse(FileRefusal(one.name, f"{path} is the record of the project", hint) for one in documents if one.path == path)
    record, revision = await record_at(session, path)
    deployment = Deployment(session, record or Record(name, {}), revision, documents, bundle)
    await deployment.compare(caller, prune=prune)
    return deployment


def require_author(caller: CallerRights) -> None:
    """
    Raises:
        Forbidden: the caller may not register documents.
    """
    if not includes_role(caller.role, "author"):
        raise Forbidden(f"the role {caller.role} may not deploy", hint="use a token with the role author")


async def _latest(session: Session, paths: Collection[str]) -> dict[str, PlaybookDocument]:
    """The registered documents at these paths."""
    prefix, playbooks = posixpath.commonpath(sorted(paths)), session.operations.playbooks
    found = await collect(lambda size, cursor: playbooks.page(prefix, {}, size, cursor))
    return {one.path: one for one in found if one.path in paths}


async def _begun(session: Session, entries: Collection[PlaybookDocument]) -> dict[str, str]:
    """The digests by which schedules and triggers among these entries start executions."""
    found: dict[str, str] = {}
    for kind in STARTERS:
        paths = [one.path for one in entries if one.kind == kind]
        starters: Any = session.operations.schedules if kind == SCHEDULE else session.operations.triggers
        prefix = posixpath.commonpath(paths) if paths else ""
        if paths:
            for one in await collect(lambda size, cursor: starters.page(prefix, size, cursor)):  # noqa: B023
                found[one.path] = one.digest
    return found


def _digests(known: Mapping[str, RecordedDocument], path: str) -> tuple[str, ...]:
    return known[path].digests if path in known else ()


def _of_other(project: str | None) -> str:
    return "" if project is None else f"the project {project} has it, too"
