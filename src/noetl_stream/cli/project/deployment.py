"""``noetl-stream deploy``: the documents of a project, checked before any of them is registered; the changes of a
deployment in the catalog; and its record there: the documents that the project has registered, so that ``--prune``
removes nothing else.

The record is a schema at ``NAME/project`` that only its own list matches, so that every server keeps it, each version
is a deployment, and tokens see it where they see the project. It is written before anything else: an interrupted
deployment has registered nothing that the record lacks. Its version is the number of its revision, and the catalog
accepts a version once: of two concurrent deployments one is refused.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import Columns, columns_of, print_documents, say
from noetl_stream.cli.base.session import CallerRights, Session, Target, collect, target_options, with_session
from noetl_stream.cli.playbook.check import schemas_in
from noetl_stream.cli.playbook.playbook_source import accepted, print_diagnostics
from noetl_stream.cli.project import packages as bundling
from noetl_stream.cli.project.project_file import KINDS, ProjectText, read_project, target_of, texts_of
from noetl_stream.errors import Conflict, Forbidden, NotFound, UsageError
from noetl_stream.model.aggregates import SCHEDULE, TRIGGER
from noetl_stream.model.rights import covers, includes_role
from noetl_stream.playbook.check.calls import constant_at, paths_missing
from noetl_stream.playbook.compile.compiler import CheckResult, check, check_document
from noetl_stream.ports.operations.playbooks import CatalogKind, CheckedDocument, PlaybookDocument
from noetl_stream.ports.stores.catalog import SCHEMA
from noetl_stream.tools.python.signatures import modules_in

STARTERS: Final = (SCHEDULE, TRIGGER)


class ProjectDocument(NamedTuple):
    """A checked document of a project, to register. ``calls`` are the paths of playbooks that it names."""

    name: str
    source: bytes
    kind: CatalogKind
    path: str
    version: str | None
    digest: str
    calls: frozenset[str]


class FileRefusal(msgspec.Struct, frozen=True):
    """An error of a file that has no place in it."""

    name: str
    message: str
    hint: str


async def check_project(
    session: Session, texts: Sequence[ProjectText], caller: CallerRights, packages: Sequence[Path] = ()
) -> list[ProjectDocument]:
    """The documents. Prints their diagnostics; with errors the command ends with :attr:`ExitCode.INVALID`.

    A playbook or schema of the project counts as registered. The signatures of functions are those in ``packages``.
    """
    playbooks = session.operations.playbooks
    asked = {text: await playbooks.check(text.source, text.name) for text in texts}  # a gateway refuses many at once
    kinds, limits = accepted()  # read here: calls, and schemas of the project, which the catalog may not have yet
    with modules_in([str(folder.absolute()) for folder in packages]):
        here = {text: check_document(text.source, kinds, file=text.name, limits=limits) for text in texts}
    schemas = schemas_in(here.values())
    given = {one.path: one.version for one in asked.values()}
    given |= {one.document.path: one.document.version for one in here.values() if one.document is not None}
    documents, refusals, is_wrong = [], [], False
    for text, checked in asked.items():
        again, document = here[text].plan, None
        result: CheckedDocument | CheckResult = checked
        if again is not None and again.named_schemas and again.named_schemas <= schemas.keys():
            result = check(text.source, kinds, file=text.name, limits=limits, schemas=schemas, proves=True)
        starts = constant_at(text.source, "/spec/playbook") if text.kind in STARTERS else None
        version = constant_at(text.source, "/spec/version") if text.kind in STARTERS else None
        missing = paths_missing(checked.diagnostics, text.source)
        diagnostics = [one for one in result.diagnostics if one not in missing]
        functions = [one for one in here[text].diagnostics if one.code == "invalid_value" and packages]
        diagnostics += [one for one in functions if one not in diagnostics]
        diagnostics += [
            replace(one, severity="error") if path == starts else one
            for one, path in missing.items()
            if path not in given or (path == starts and version not in (None, given[path]))
        ]
        print_diagnostics(sorted(diagnostics), text.name)
        is_wrong |= any(one.severity == "error" for one in diagnostics)
        document = here[text].document if result is not checked else checked if checked.ok else None
        if document is None or document.path is None or document.digest is None:
            is_wrong = True
            continue
        refusals += [
            FileRefusal(text.name, f"this token does not cover {path}", f"its paths are {', '.join(caller.paths)}")
            for path in (document.path, starts)
            if path is not None and not covers(caller.paths, path)
        ]
        calls = frozenset(call.path for call in here[text].calls)
        one = (text.name, text.source, text.kind, document.path, document.version, document.digest, calls)
        documents.append(ProjectDocument(*one))
    refuse([*refusals, *_doubles(documents)], is_wrong=is_wrong)
    return documents


def refuse(refusals: Iterable[FileRefusal], *, is_wrong: bool = False) -> None:
    """Prints errors, and ends the command if there are any, or ``is_wrong``."""
    for one in refusals:
        say(f"{one.name}: error: {one.message}\n  hint: {one.hint}", err=True)
        is_wrong = True
    if is_wrong:
        say("nothing was registered", err=True)
        raise click.exceptions.Exit(ExitCode.INVALID)


def _doubles(documents: Iterable[ProjectDocument]) -> Iterator[FileRefusal]:
    """The files whose path another file has too."""
    first: dict[str, str] = {}
    for one in documents:
        other = first.setdefault(one.path, one.name)
        if other != one.name:
            hint = "a project has one document at a path; the catalog keeps its earlier versions"
            yield FileRefusal(one.name, f"{other} has the path {one.path}, too", hint)


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
        bundle: bundling.Bundle | None,
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
            known = await bundling.stored_files(self._session, self._record.bundle)
            is_stored = before == name.digest and bool(known)
            change: Change = "added" if not before else "unchanged" if is_stored else "changed"
            files = len(self._bundle.files)
            note = f"{files} {'file' if files == 1 else 'files'}, {len(self._bundle.data):,} bytes"
            if change == "changed":  # also one that was lost since it was deployed
                note += f": {bundling.changed_files(known, self._bundle.files)}"
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
        self, path: str, entry: PlaybookDocument | None, caller: CallerRights, others: Mapping[str, str], *, prune: bool
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
                await bundling.store_bundle(self._session, self._bundle)
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
    bundle: bundling.Bundle | None,
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


COLUMNS: Final[Columns] = {
    **columns_of("change", "kind", "path", "registered", "version"),
    **columns_of(done=lambda item: "yes" if item.done else ""),
    **columns_of("file", "note"),
}


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--exit-code", is_flag=True, help="With --dry-run: exit with 1 if something would be done.")
@click.option("--prune", is_flag=True, help="Remove what this project has registered and has no longer.")
@form_option()
@target_options
@click.pass_context
def deploy(
    ctx: click.Context, folder: Path, dry_run: bool, exit_code: bool, prune: bool, output: str, target: Target
) -> None:
    """Register the documents of the project in DIR, and show what changed.

    A project is a folder with noetl-stream.toml, or [tool.noetl-stream] in its pyproject.toml. All documents are
    checked first, and compared with what is registered: if anything is wrong, nothing is done. Then schemas, playbooks,
    schedules and triggers are registered, in this order; before them the Python packages are stored that playbooks with
    functions name. Repeated, the command changes nothing; if it broke off,
    repeat it.

    \b
    Exit code: 0 done, or nothing to do    1 with --exit-code: something would be done    2 something is wrong
    """
    if exit_code and not dry_run:
        raise UsageError("--exit-code needs --dry-run", hint="a deployment that succeeds exits with 0")
    project = read_project(folder)
    documents = texts_of(project)
    bundle = bundling.bundle_of(project, bundling.project_locks(project, documents, keep=not dry_run))
    texts = bundling.with_bundle(documents, bundle)
    asks_servers = not dry_run and (prune or any(text.kind in STARTERS for text in texts))
    made: list[Deployment] = []

    async def work(session: Session) -> None:
        caller = await session.caller()
        if not dry_run:
            require_author(caller)
        documents = await check_project(session, texts, caller, [project.folder / one for one in project.packages])
        made.append(await compared(session, project.name, documents, caller, bundle, prune=prune))
        if not dry_run:
            await made[0].carry_out(prune=prune)

    try:
        with_session(target_of(target, project), work, publishes=asks_servers)
    except BaseException:
        if made:
            say("the deployment broke off: repeat it to finish", err=True)
        raise
    finally:
        if made:
            print_documents(made[0].items, output, COLUMNS, "path")
    if exit_code and made[0].differs:
        ctx.exit(ExitCode.FAILED)
