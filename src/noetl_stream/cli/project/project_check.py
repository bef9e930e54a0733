"""The documents of a project, checked before any of them is registered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.exit_codes import ExitCode
from noetl_stream.cli.base.output import say
from noetl_stream.cli.base.session import CallerRights, Session
from noetl_stream.cli.playbook.check import schemas_in
from noetl_stream.cli.playbook.playbook_source import accepted, print_diagnostics
from noetl_stream.cli.project.project_file import ProjectText
from noetl_stream.model.aggregates import SCHEDULE, TRIGGER
from noetl_stream.model.rights import covers
from noetl_stream.playbook.check.calls import constant_at, paths_missing
from noetl_stream.playbook.compile.compiler import CheckResult, check, check_document
from noetl_stream.ports.operations.playbooks import CatalogKind, CheckedDocument
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
