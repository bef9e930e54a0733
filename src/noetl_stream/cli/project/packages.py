"""The Python packages of a project, as the bundle that its playbooks with functions name.

The name is the last line of the registered text. The digest of the text therefore stands for text and code together:
everything that refers to one version of a playbook, its executions, reruns and callers, refers to its packages.
"""

from __future__ import annotations

import re
import stat
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from sys import stdlib_module_names
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.cli.base.session import Session
from noetl_stream.cli.playbook.playbook_source import accepted
from noetl_stream.cli.project.locks import RequiringTask, locks_of
from noetl_stream.cli.project.project_file import ProjectFile, ProjectText, project_around
from noetl_stream.errors import NotFound, UsageError
from noetl_stream.model.bundles import (
    BUNDLE_PATTERN,
    PACKAGES,
    BundleName,
    BundleRefused,
    bundle_name,
    files_of,
    named_bundle,
    zip_of,
)
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.check.calls import constant_at
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import Plan, TaskPlan
from noetl_stream.ports.stores.catalog import PLAYBOOK
from noetl_stream.tools.python.environments.requirements import Requirements, required_by

SHOWN_FILES: Final = 5
_NO_SOURCE: Final = (".pyc", ".egg-info")
_MAY_REQUIRE: Final = re.compile(rb"\brequires\b|\bpython\s*:|# /// script")
_LAST_LINE: Final = re.compile(rf"(?:\A|\n)bundle: ({BUNDLE_PATTERN})(\n?)\Z")


class Bundle(NamedTuple):
    """The packages of a project. ``files`` are relative to the zip file."""

    name: BundleName
    data: bytes
    files: Mapping[str, bytes]


def bundle_of(project: ProjectFile, locks: Mapping[str, bytes] = {}) -> Bundle | None:
    """The bundle of a project with packages or locks: the same for the same files on each machine.

    Raises:
        UsageError: a folder or a file is missing or unreadable, is a link, too large, or occurs twice.
    """
    if not project.packages and not locks:
        return None
    files: dict[str, bytes] = {}
    for folder in project.packages:
        for file in _files(project.folder / folder):
            name = f"{PACKAGES}/{file.relative_to(project.folder / folder).as_posix()}"
            if name in files:
                raise UsageError(f"{file}: another folder of `packages` has this file, too", hint="rename one")
            try:
                files[name] = file.read_bytes()
            except OSError as error:
                raise UsageError(f"{file}: cannot be read: {error.strerror}") from None
    if project.packages and not files:
        raise UsageError(f"{project.file}: `packages` has no file", hint="leave out `packages`, or add a module")
    try:
        return _bundle(project.name, {**files, **locks})
    except BundleRefused as error:
        largest = max(files, key=lambda name: len(files[name])).removeprefix(f"{PACKAGES}/")
        hint = f"the largest file is {largest}; leave out what is no code, or make several projects"
        raise UsageError(f"{project.file}: `packages` has {error.message}", hint=hint) from None


def _bundle(name: str, files: Mapping[str, bytes]) -> Bundle:
    data = zip_of(files)
    return Bundle(named_bundle(name, data), data, files)


def project_locks(project: ProjectFile, texts: Sequence[ProjectText], *, keep: bool) -> dict[str, bytes]:
    """The lock files for the requirements of a project's tasks. ``keep`` writes new ones into its folder.

    Raises:
        UsageError: something cannot be locked.
    """
    required: dict[Requirements, RequiringTask] = {}
    for text in texts:
        required = {**_required(text), **required}
    return locks_of(required, project.folder, keep=keep)


def _files(folder: Path) -> Iterator[Path]:
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder}: `packages` names no folder: {error.strerror}") from None
    for one in found:
        if one.name.startswith(".") or one.name == "__pycache__" or one.name.endswith(_NO_SOURCE):
            continue
        kind = one.lstat().st_mode
        if stat.S_ISDIR(kind):
            yield from _files(one)
        elif stat.S_ISREG(kind):
            yield one
        else:
            raise UsageError(f"{one}: a link, or no file", hint="a bundle has files alone: copy it, or move it away")


async def store_bundle(session: Session, bundle: Bundle) -> None:
    """Stores a bundle, unless it is already stored."""
    await session.operations.playbooks.put_bundle(bundle.name.project, bundle.data, session.by)


async def stored_files(session: Session, name: str) -> dict[str, bytes]:
    """The files of a bundle that is stored; none if there is no bundle of this name."""
    if (found := bundle_name(name)) is None:
        return {}
    with suppress(NotFound):
        return files_of(b64decode((await session.operations.playbooks.get_bundle(*found)).content))
    return {}


def changed_files(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """The files that differ: ``+`` is new, ``-`` is gone, ``~`` has changed."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    found = [
        f"{'+' if one not in before else '-' if one not in after else '~'}{one.removeprefix(f'{PACKAGES}/')}"
        for one in names
    ]
    more = len(found) - SHOWN_FILES
    return " ".join(found if more <= 0 else [*found[:SHOWN_FILES], f"and {more} more"])


def with_bundle(texts: Sequence[ProjectText], bundle: Bundle | None) -> list[ProjectText]:
    """The texts as they are registered: those with functions name the bundle.

    Raises:
        UsageError: a function is not in the bundle, or a text cannot name it.
    """
    if bundle is None:
        return list(texts)
    kinds, limits = accepted()
    found = []
    for text in texts:
        functions, required = _functions(text, kinds, limits), _required(text)
        for module, function in functions.items():
            is_known = bool(required) or module.partition(".")[0] in stdlib_module_names
            if not is_known and not _has_module(bundle, module):
                message = f"{text.name}: {function}: the packages of the project have no module {module}"
                hint = "add it to a folder of `packages`; what workers have installed is called by a function of yours"
                raise UsageError(message, hint=hint)
        found.append(_named(text, bundle.name) if functions or required else text)
    return found


def packed(file: Path, source: str) -> tuple[str, Bundle | None]:
    """The text of a file and the bundle of its project, which the text then names, if it calls a function of its
    packages; else the text unchanged.

    Raises:
        UsageError: the project or its packages are invalid, or the text cannot name them.
    """
    project = project_around(file)
    text = ProjectText(str(file), source.encode(), PLAYBOOK)
    if constant_at(text.source, "/bundle") is not None:
        return source, None
    required = _required(text)
    folder = None if project is None else project.folder
    locks = locks_of(required, folder, keep=True)
    if project is not None:
        bundle = bundle_of(project, locks)
    else:
        path = constant_at(text.source, "/metadata/path")
        bundle = _bundle(str(path).removeprefix("/"), locks) if locks and path else None
    if bundle is None:
        return source, None
    if not locks and not any(_has_module(bundle, module) for module in _functions(text, *accepted())):
        return source, None
    return _named(text, bundle.name).source.decode(), bundle


def _required(text: ProjectText) -> dict[Requirements, RequiringTask]:
    """The requirements of a playbook's tasks, with their places."""
    if text.kind != PLAYBOOK or not _MAY_REQUIRE.search(text.source):
        return {}
    draft = _draft(text.source, *accepted())
    found = {} if draft is None else required_by(draft)
    return {one: RequiringTask(text.name, text.source.decode(), line) for one, line in found.items()}


def _draft(source: bytes, kinds: Kinds, limits: Limits) -> Plan | None:
    return check_document(source, kinds, limits=limits).draft


def _functions(text: ProjectText, kinds: Kinds, limits: Limits) -> dict[str, str]:
    """The functions that a playbook calls, by module."""
    tasks = _tasks(text.source, kinds, limits) if text.kind == PLAYBOOK else ()
    named = [str(task.verbatim["function"]) for _, task in tasks if task.verbatim.get("function")]
    return {one.partition(":")[0]: one for one in named}


def python_tasks(source: str) -> frozenset[tuple[str, str]]:
    """The steps and tasks of `python` in a playbook."""
    return frozenset((step, task.name) for step, task in _tasks(source.encode(), *accepted()) if task.kind == "python")


def _tasks(source: bytes, kinds: Kinds, limits: Limits) -> list[tuple[str, TaskPlan]]:
    draft = _draft(source, kinds, limits)
    return [(step.name, task) for step in draft.every_step for task in step.tasks] if draft is not None else []


def _has_module(bundle: Bundle, module: str) -> bool:
    at = str(PurePosixPath(PACKAGES, *module.split(".")))
    return not {f"{at}.py", f"{at}/__init__.py"}.isdisjoint(bundle.files)


def _named(text: ProjectText, name: BundleName) -> ProjectText:
    is_ended = text.source.endswith(b"\n")
    line = f"bundle: {name}\n" if is_ended else f"\nbundle: {name}"
    named = replace(text, source=text.source + line.encode())
    if constant_at(text.source, "/bundle") is not None or constant_at(named.source, "/bundle") != str(name):
        hint = "end the file with a key of the playbook at the margin, and leave out `bundle`, which `deploy` adds"
        raise UsageError(f"{text.name}: cannot name its packages", hint=hint)
    return named


def without_bundle(source: str) -> str:
    """A text before :func:`with_bundle`."""
    found = _LAST_LINE.search(source)
    return source if found is None else source[: found.start()] + found[2]


def bundle_in(source: str) -> str | None:
    """The name of the bundle of a registered text."""
    found = _LAST_LINE.search(source)
    return None if found is None else found[1]
