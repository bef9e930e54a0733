"""``noetl-stream pull``: registered documents as the files of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import click
import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.options import form_option
from noetl_stream.cli.base.output import columns_of, print_documents, say
from noetl_stream.cli.base.session import Session, Target, collect, target_options, with_session
from noetl_stream.cli.playbook.playbook_source import read_playbook
from noetl_stream.cli.project import project_file
from noetl_stream.cli.project.deployment import BUNDLE, LABELS, record_at, record_path
from noetl_stream.cli.project.packages import stored_files, without_bundle
from noetl_stream.errors import NotFound, UsageError, usable_file
from noetl_stream.model.bundles import LOCKS, PACKAGES
from noetl_stream.model.rights import covers
from noetl_stream.ports.operations.playbooks import PlaybookWithSourceDocument
from noetl_stream.ports.stores.catalog import is_path

SOURCES: Final = "src"
"""The default folder of a project's Python packages."""

FOLDERS: Final[Mapping[str, str]] = {kind: key for key, kind in project_file.KINDS.items()}


class PulledItem(msgspec.Struct, frozen=True):
    """A registered document, and its file."""

    change: Literal["added", "changed", "unchanged"]
    kind: str
    path: str
    version: str
    file: str
    note: str = ""


@click.command()
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--path", default=None, metavar="PATH", help="Pull what is at PATH and below. [default: the name of the project]"
)
@click.option("--force", is_flag=True, help="Overwrite files that differ.")
@form_option()
@target_options
def pull(folder: Path, path: str | None, force: bool, output: str, target: Target) -> None:
    """Write what is registered into the files of the project in DIR.

    The latest text of each document is written: to the file of the project that has its path, else below playbooks/,
    schedules/, triggers/ or schemas/. If PATH is a project with Python packages, those that it has deployed last are
    written to its folders, else to src/. A folder without a project becomes one of the name PATH. No file is deleted,
    and without --force none is overwritten that differs.
    """
    project = project_file.find_project(folder)
    base = (path or (project.name if project is not None else "")).removeprefix("/")
    if not is_path(base):
        raise UsageError("which documents to pull is not known", hint="give --path, such as --path team/reports")
    chosen = target if project is None else project_file.target_of(target, project)
    found = with_session(chosen, lambda session: _registered(session, base))
    files = {} if project is None else project_file.files_by_path(project)
    packages = () if project is None else project.packages
    modules = with_session(chosen, lambda session: _modules(session, base, folder, packages or (SOURCES,)))
    texts: dict[Path, str | bytes] = {}
    has_code = any(one.parent != folder / LOCKS for one in modules)
    if project is None:
        texts[folder / project_file.FILE] = f'name = "{base}"\n' + (f'packages = ["{SOURCES}"]\n' if has_code else "")
    items: list[PulledItem] = []
    for one in found:
        below = one.path.removeprefix(f"{base}/") if one.path != base else base.rpartition("/")[2]
        file = files.get(one.path, folder / FOLDERS[one.kind] / f"{below}.yaml")
        if any(item.file == str(file) for item in items):
            raise UsageError(f"{file} would be the file of {one.path} and of another document", hint="give --path")
        known = read_playbook(file) if file.exists() else None
        change: Literal["added", "changed", "unchanged"] = "added" if known is None else "changed"
        source = without_bundle(one.source)
        if known == source.encode():
            change = "unchanged"
        else:
            texts[file] = source
        items.append(PulledItem(change, one.kind, one.path, one.known_as, str(file)))
    for file, content in modules.items():
        same = file.exists() and file.read_bytes() == content
        change = "unchanged" if same else "changed" if file.exists() else "added"
        texts |= {} if same else {file: content}
        items.append(PulledItem(change, BUNDLE, base, "", str(file)))
    differing = [item.file for item in items if item.change == "changed"]
    if differing and not force:
        hint = "commit them, and repeat the command with --force"
        raise UsageError(f"nothing written, because these files differ: {', '.join(differing)}", hint=hint)
    for file, text in texts.items():
        _write(file, text)
    matched = project_file.files_by_path(project_file.read_project(folder))
    items = [
        item if item.path in matched or item.kind == BUNDLE else replace(item, note="no pattern of the project")
        for item in items
    ]
    print_documents(items, output, columns_of("change", "kind", "path", "version", "file", "note"), "path")
    if project is None:
        say(f"{folder / project_file.FILE}: the project {base}", err=True)


async def _registered(session: Session, base: str) -> list[PlaybookWithSourceDocument]:
    """The documents at a path and below, without records of projects."""
    playbooks = session.operations.playbooks
    listed = await collect(
        lambda size, cursor: playbooks.page(base, {}, size, cursor, kinds=list(project_file.KINDS.values()))
    )
    paths = [one.path for one in listed if covers((base,), one.path) and one.labels != LABELS]
    if not paths:
        raise NotFound(f"nothing is registered at {base} or below", hint="see `noetl-stream playbook list`")
    return [await playbooks.get(path, None) for path in paths]


async def _modules(session: Session, base: str, folder: Path, packages: Sequence[str]) -> dict[Path, bytes]:
    """The locks of the project of this name, and the files of its packages, in the project's folders for them."""
    record = None
    with suppress(UsageError):  # the text there is not a record
        record, _ = await record_at(session, record_path(base))
    found = await stored_files(session, record.bundle if record is not None else "")
    files: dict[Path, bytes] = {}
    for name, content in found.items():
        places = [folder / one / name.removeprefix(f"{PACKAGES}/") for one in packages]
        if name.startswith(f"{LOCKS}/"):
            places = [folder / name]
        files[next((one for one in places if one.exists()), places[0])] = content
    return files


def _write(file: Path, text: str | bytes) -> None:
    with usable_file(file, "written"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
