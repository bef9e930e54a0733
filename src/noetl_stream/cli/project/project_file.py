"""A project: a folder of documents with ``noetl-stream.toml``, or ``[tool.noetl-stream]`` in ``pyproject.toml``."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

import msgspec
from msgspec.structs import replace

from noetl_stream.cli.base.files import file_text
from noetl_stream.cli.base.process import settings_for
from noetl_stream.cli.base.session import Target
from noetl_stream.cli.playbook.playbook_source import read_playbook
from noetl_stream.errors import UsageError, usable_file
from noetl_stream.playbook.check.calls import constant_at
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.document import kind_in
from noetl_stream.playbook.suggestions import did_you_mean, list_names
from noetl_stream.playbook.yaml.source import read_source
from noetl_stream.ports.operations.playbooks import CatalogKind
from noetl_stream.ports.stores.catalog import is_path

FILE: Final = "noetl-stream.toml"
SHARED_FILE: Final = "pyproject.toml"
TABLE: Final = "tool.noetl-stream"

KINDS: Final[Mapping[str, CatalogKind]] = {
    "schemas": "Schema",
    "playbooks": "Playbook",
    "schedules": "Schedule",
    "triggers": "Trigger",
}
"""The kind of the documents of each key, in the order of registration: each may need earlier ones."""

TESTS: Final = "tests"
DEFAULTS: Final = {**{key: (f"{key}/**/*.yaml",) for key in KINDS}, TESTS: ("**/*.test.yaml",)}
"""The patterns of the keys that a project does not set."""

PACKAGES: Final = "packages"
KEYS: Final = ("name", *KINDS, TESTS, PACKAGES, "context")
MOST_DOCUMENTS: Final = 1000


class ProjectFile(msgspec.Struct, frozen=True):
    """The settings of a project.

    Attributes:
        folder: The base folder of its patterns.
        context: The gateway to use unless a command or the environment names another.
        patterns: The patterns by key. Files that match ``tests`` are not documents of the catalog.
        given: The keys that the file has.
        packages: Folders below its own whose Python packages are deployed.
    """

    file: Path
    folder: Path
    name: str
    context: str | None
    patterns: Mapping[str, tuple[str, ...]]
    given: frozenset[str]
    packages: tuple[str, ...] = ()


class ProjectText(msgspec.Struct, frozen=True):
    """A file of a project with a document of ``kind``. ``name`` is its name in messages."""

    name: str
    source: bytes
    kind: CatalogKind


def read_project(folder: Path) -> ProjectFile:
    """The project of a folder.

    Raises:
        UsageError: it has none, or its file is invalid; the message has the file, and the line and column of a key.
    """
    found = find_project(folder)
    if found is None:
        hint = f'write `{FILE}` with a line such as `name = "team/reports"`, or a table `[{TABLE}]` in `{SHARED_FILE}`'
        raise UsageError(f"{folder}: no project", hint=hint)
    return found


def find_project(folder: Path) -> ProjectFile | None:
    """The project of a folder, if it has one.

    Raises:
        UsageError: its file is invalid.
    """
    file = folder / FILE
    if os.access(file, os.F_OK):
        return _Reader(file, "").project()
    file = folder / SHARED_FILE
    if os.access(file, os.F_OK):
        reader = _Reader(file, TABLE)
        return None if reader.table is None else reader.project()
    return None


def project_around(file: Path) -> ProjectFile | None:
    """The project of the nearest folder above a file that has one.

    Raises:
        UsageError: the file of that project is invalid.
    """
    return next(filter(None, map(find_project, file.absolute().parents)), None)


def package_folders(file: Path) -> list[str]:
    """The folders of the packages of the project around a file."""
    project = project_around(file)
    return [] if project is None else [str(project.folder / one) for one in project.packages]


class _Reader:
    """A reader of a project's file. ``table`` is its table there; ``None`` if there is none."""

    def __init__(self, file: Path, table: str) -> None:
        self._file, self._name = file, table
        with usable_file(file):
            self._text = file_text(file)
        try:
            self.table: Any = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            what, _, at = str(error).rpartition(" (at ")
            end = (self._text.count("\n") + 1, len(self._text) - self._text.rfind("\n"))
            place = ":".join(re.findall(r"\d+", at) or map(str, end))
            raise UsageError(f"{file}:{place}: not TOML: {what or error}") from None
        except RecursionError:
            raise UsageError(f"{file}: is nested too deeply") from None
        for part in filter(None, table.split(".")):
            self.table = self.table.get(part) if isinstance(self.table, dict) else None

    def project(self) -> ProjectFile:
        if not isinstance(self.table, dict):
            self._refuse("", f"`{self._name}` is not a table", f"write `[{self._name}]`")
        for key in self.table:
            if key not in KEYS:
                near = did_you_mean(key, KEYS) or f"known are {list_names(KEYS)}"
                if isinstance(self.table[key], dict):
                    inner = [f"`{name} = …`" for name in self.table[key] if name in KEYS]
                    near = f"write {', '.join(inner)} at the top, without `[{key}]`" if inner else near
                self._refuse(key, f"unknown key `{key}`", near)
        name = self._text_of("name")
        if name is None:
            self._refuse("", "`name` is missing", 'write a line such as `name = "team/reports"`')
        name = name.removeprefix("/")
        if not is_path(name):
            self._refuse("name", f"{name!r} is not a path in the catalog", "use names separated by `/`: team/reports")
        patterns = {key: self._paths(key, default, "patterns", default[0]) for key, default in DEFAULTS.items()}
        return ProjectFile(
            file=self._file,
            folder=self._file.parent,
            name=name,
            context=self._text_of("context"),
            patterns=patterns,
            given=frozenset(self.table),
            packages=self._paths(PACKAGES, (), "folders", "src"),
        )

    def _text_of(self, key: str) -> str | None:
        found = self.table.get(key)
        if found is not None and (not isinstance(found, str) or not found):
            self._refuse(key, f"`{key}` is not a text", f'write `{key} = "…"`')
        return found

    def _paths(self, key: str, default: tuple[str, ...], noun: str, example: str) -> tuple[str, ...]:
        found = self.table.get(key, default)
        given = (found,) if isinstance(found, str) else tuple(found) if isinstance(found, (list, tuple)) else ()
        if not all(isinstance(one, str) and one for one in given) or (not given and found not in ([], ())):
            self._refuse(key, f"`{key}` is not a list of {noun}", f'write `{key} = ["{example}"]`')
        for one in given:
            path = PurePosixPath(one)
            if path.is_absolute() or ".." in path.parts:
                self._refuse(key, f"`{one}` leads out of the folder of the project", "name files below that folder")
        return given

    def _refuse(self, key: str, message: str, hint: str) -> NoReturn:
        line, column = self._place(key)
        raise UsageError(f"{self._file}:{line}:{column}: {message}", hint=hint)

    def _place(self, key: str) -> tuple[int, int]:
        """Line and column of a key, or of the table."""
        table = ""
        for number, line in enumerate(self._text.splitlines(), 1):
            if header := re.match(r"\s*\[\[?([^\[\]]+)\]", line):
                table = re.sub(r"[\s\"']", "", header[1])
                if table == (f"{self._name}.{key}" if self._name and key else key or self._name):
                    return number, line.index("[") + 1
            elif key and table == self._name and (found := re.match(rf"\s*([\"']?){re.escape(key)}\1\s*[.=]", line)):
                return number, len(line) - len(line.lstrip()) + 1 if found else 1
        return 1, 1


def target_of(target: Target, project: ProjectFile) -> Target:
    """The target of the command or of the environment, else the context of the project."""
    settings = settings_for(target.home)
    given = (target.home, target.url, target.context, settings.url, settings.context)
    is_chosen = any(one is not None for one in given) or settings.selects_stack
    return target if is_chosen else replace(target, context=project.context)


def texts_of(project: ProjectFile) -> list[ProjectText]:
    """The documents of a project, in the order in which they are registered.

    Raises:
        UsageError: a file cannot be read, or is of a kind that its key does not name; a pattern of the file of the
            project matches nothing; or there is no document at all, or too many.
    """
    keys: dict[Path, list[CatalogKind]] = {}
    for key in KINDS:
        for file in _given_files(project, key):
            keys.setdefault(file, []).append(KINDS[key])
    if not keys:
        patterns = list_names(pattern for key in KINDS for pattern in project.patterns[key])
        raise UsageError(f"{project.file}: no file matches {patterns}", hint="a project has at least one document")
    if len(keys) > MOST_DOCUMENTS:
        hint = "make several projects of it, or narrow its patterns"
        message = f"{project.file}: a project has at most {MOST_DOCUMENTS} documents, not {len(keys)}"
        raise UsageError(message, hint=hint)
    found = [_read(file, kinds) for file, kinds in keys.items()]
    order = list(KINDS.values())
    return sorted(found, key=lambda text: (order.index(text.kind), text.name))


def files_by_path(project: ProjectFile) -> dict[str, Path]:
    """The files of a project, by the paths of their documents."""
    found: dict[str, Path] = {}
    for key in KINDS:
        for pattern in project.patterns[key]:
            for file in _matching(project, key, pattern):
                found.setdefault(constant_at(read_playbook(file), "/metadata/path") or "", file)
    return found


def _given_files(project: ProjectFile, key: str) -> Iterator[Path]:
    for pattern in project.patterns[key]:
        files = _matching(project, key, pattern)
        if not files and key in project.given:
            hint = f"mend it, or leave out `{key}`"
            raise UsageError(f"{project.file}: `{pattern}` of `{key}` matches no file", hint=hint)
        yield from files


def _matching(project: ProjectFile, key: str, pattern: str) -> list[Path]:
    try:
        return [file for file in project.folder.glob(pattern) if file.is_file() and not _is_test(project, file)]
    except (ValueError, IndexError) as error:
        raise UsageError(f"{project.file}: `{pattern}` of `{key}` is not a pattern: {error}") from None


def _is_test(project: ProjectFile, file: Path) -> bool:
    name = file.relative_to(project.folder).as_posix()
    return any(fnmatchcase(name, pattern.replace("**/", "")) for pattern in project.patterns[TESTS])


def _read(file: Path, kinds: list[CatalogKind]) -> ProjectText:
    source = read_playbook(file)
    read = read_source(source, Problems(str(file)))
    kind = kind_in(read.root) if read is not None else None
    if kind in KINDS.values() and kind not in kinds:
        key = next(key for key, one in KINDS.items() if one == kind)
        hint = f"move the file, or name it in `{key}` of the project"
        raise UsageError(f"{file}: has `kind: {kind}`, where a {kinds[0]} is expected", hint=hint)
    return ProjectText(str(file), source, kind if kind in kinds else kinds[0])
