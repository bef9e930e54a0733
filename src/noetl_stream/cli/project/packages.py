"""The Python packages of a project, as the bundle that its playbooks with functions name; and the lock files of tasks'
requirements: the versions and hashes of all packages of an environment, found by uv.

The name of the bundle is the last line of the registered text. The digest of the text therefore stands for text and
code together: everything that refers to one version of a playbook, its executions, reruns and callers, refers to its
packages. A project keeps lock files in its folder ``locks``, so that each deployment uses the same; after one is
deleted, the next deployment uses the newest versions. The bundle contains those that its playbooks name.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from sys import stdlib_module_names
from typing import Final, NamedTuple

from msgspec.structs import replace

from noetl_stream.cli.base.session import Session
from noetl_stream.cli.playbook.playbook_source import accepted
from noetl_stream.cli.project.project_file import ProjectFile, ProjectText, project_around
from noetl_stream.errors import NotFound, UsageError, usable_file
from noetl_stream.model import bundles
from noetl_stream.model.limits import Limits
from noetl_stream.playbook.check.calls import constant_at
from noetl_stream.playbook.compile.compiler import check_document
from noetl_stream.playbook.kinds.spec import Kinds
from noetl_stream.playbook.plan import Plan, TaskPlan
from noetl_stream.ports.stores.catalog import PLAYBOOK
from noetl_stream.settings.children import SDISTS_VARIABLE
from noetl_stream.settings.sources.environment import environment_settings
from noetl_stream.tools.python.environments.interpreters import uv_program
from noetl_stream.tools.python.environments.requirements import CONVERTER, Requirements, required_by

LOCK_S: Final = 600
"""The time in which uv must find versions, in seconds."""

_OPTIONS: Final = (
    *("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--no-python-downloads", "--quiet"),
    *("--no-sources", "--no-progress"),
)
_CAUSE: Final = re.compile(r"^(?:error|  cause): ", re.MULTILINE)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class RequiringTask(NamedTuple):
    """A task with requirements, and its line in a file."""

    name: str
    source: str
    line: int

    def of(self, *requires: str) -> str:
        """The file and line of the first of these requirements, as far as it is found."""
        wanted = [one.replace(" ", "") for one in requires]
        lines = enumerate(self.source.splitlines(), 1)
        found = (number for number, line in lines for one in wanted if one in line.replace(" ", ""))
        return f"{self.name}:{next(found, self.line)}"


def locks_of(required: Mapping[Requirements, RequiringTask], folder: Path | None, *, keep: bool) -> dict[str, bytes]:
    """The locks of requirements, by their names in a bundle.

    Args:
        required: The requirements, with their places.
        folder: The folder in which locks are kept; ``None`` for none.
        keep: Whether new ones are kept there.

    Raises:
        UsageError: there are no such versions, the index does not answer, or uv is not installed.
    """
    found = {}
    for one, place in required.items():
        file = None if folder is None else folder / one.lock_name
        if file is not None and file.exists():
            found[one.lock_name] = file.read_bytes()
            continue
        found[one.lock_name] = made = _locked(one, place)
        if file is not None and keep:
            part = file.with_suffix(f".{os.getpid()}")
            with usable_file(file, "written"), ExitStack() as closing:
                file.parent.mkdir(exist_ok=True)
                closing.callback(part.unlink, missing_ok=True)
                part.write_bytes(made)
                part.replace(file)  # atomic: another command may write it at the same time
    return found


def _locked(wanted: Requirements, place: RequiringTask) -> bytes:
    words = [_uv(place), "pip", "compile", "-", *_OPTIONS, "--python-version", wanted.least_python]
    words += ["--python", sys.executable, *_where()]
    try:
        made = subprocess.run(
            words, input="\n".join(wanted.requires), capture_output=True, text=True, timeout=LOCK_S, check=True
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{place.of()}: the index of packages did not answer within {LOCK_S} s") from None
    except subprocess.CalledProcessError as error:
        raise _refused(error.stderr, wanted, place) from None
    about = "; ".join((*wanted.requires, *([f"Python {wanted.python}"] if wanted.python else ())))
    return f"# {about}\n{made.stdout}".encode()


def _where() -> Sequence[str]:
    settings = environment_settings()
    options = [] if settings.sdists else ["--no-build"]
    if settings.constraints:
        options += ["--constraint", settings.constraints]
    if os.path.isabs(settings.index):  # noqa: PTH117
        return [*options, "--no-config", "--no-index", "--find-links", settings.index]
    if settings.index:
        return [*options, "--no-config", "--default-index", settings.index]
    return options  # that of the machine's own settings of uv


def _uv(place: RequiringTask) -> str:
    try:
        return uv_program()
    except FileNotFoundError:
        hint = "install it: pip install uv, or noetl-stream in place of noetl-stream-cli"
        message = f"{place.of()}: what the task requires is locked by uv, which is not here"
        raise UsageError(message, hint=hint) from None


def _refused(said: str, wanted: Requirements, place: RequiringTask) -> UsageError:
    why = " ".join(_CAUSE.sub("", said).split())
    own = [one for one in wanted.requires if one != CONVERTER]
    named = [one for one in own if (found := _NAME.match(one)) and re.search(rf"\b{re.escape(found[0])}\b", why)]
    python = f"Python {wanted.python.removeprefix('==').removesuffix('.*')}" if wanted.python else ""
    what, at = ", ".join(named or own or [python]), place.of(*named)
    if re.search("request failed|failed to fetch|error sending request", why, re.IGNORECASE):
        return UsageError(f"{at}: {what}: the index of packages does not answer: {why}")
    if not named and CONVERTER in wanted.requires:
        message = f"{at}: the index has no msgspec{python and f' for {python}'}, which converts the inputs of the task"
        hint = "write a version of `python` that is released" if python else "the operator adds it to the index"
        return UsageError(f"{message}: {why}", hint=hint)
    hint = "change the versions in `requires`"
    if "no-build" in said or "source distribution" in said:
        hint = f"name a version with a wheel; the operator may allow others with {SDISTS_VARIABLE}=on"
    hint += ", or change that of `python`" if python else ""
    return UsageError(f"{at}: {what}: cannot be locked: {why}", hint=hint)


SHOWN_FILES: Final = 5
_NO_SOURCE: Final = (".pyc", ".egg-info")
_MAY_REQUIRE: Final = re.compile(rb"\brequires\b|\bpython\s*:|# /// script")
_LAST_LINE: Final = re.compile(rf"(?:\A|\n)bundle: ({bundles.BUNDLE_PATTERN})(\n?)\Z")


class Bundle(NamedTuple):
    """The packages of a project. ``files`` are relative to the zip file."""

    name: bundles.BundleName
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
            name = f"{bundles.PACKAGES}/{file.relative_to(project.folder / folder).as_posix()}"
            if name in files:
                raise UsageError(f"{file}: another folder of `packages` has this file, too", hint="rename one")
            with usable_file(file):
                files[name] = file.read_bytes()
    if project.packages and not files:
        raise UsageError(f"{project.file}: `packages` has no file", hint="leave out `packages`, or add a module")
    try:
        return _bundle(project.name, {**files, **locks})
    except bundles.BundleRefused as error:
        largest = max(files, key=lambda name: len(files[name])).removeprefix(f"{bundles.PACKAGES}/")
        hint = f"the largest file is {largest}; leave out what is no code, or make several projects"
        raise UsageError(f"{project.file}: `packages` has {error.message}", hint=hint) from None


def _bundle(name: str, files: Mapping[str, bytes]) -> Bundle:
    data = bundles.zip_of(files)
    return Bundle(bundles.named_bundle(name, data), data, files)


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
    if (found := bundles.bundle_name(name)) is None:
        return {}
    with suppress(NotFound):
        return bundles.files_of(b64decode((await session.operations.playbooks.get_bundle(*found)).content))
    return {}


def changed_files(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> str:
    """The files that differ: ``+`` is new, ``-`` is gone, ``~`` has changed."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    found = [
        f"{'+' if one not in before else '-' if one not in after else '~'}{one.removeprefix(f'{bundles.PACKAGES}/')}"
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
    if bundle is None or not (locks or any(_has_module(bundle, module) for module in _functions(text, *accepted()))):
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
    at = str(PurePosixPath(bundles.PACKAGES, *module.split(".")))
    return not {f"{at}.py", f"{at}/__init__.py"}.isdisjoint(bundle.files)


def _named(text: ProjectText, name: bundles.BundleName) -> ProjectText:
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
