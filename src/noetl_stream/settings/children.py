"""The operator's settings for the child processes of ``python`` and ``shell`` tasks, and for their environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import UsageError
from noetl_stream.model.secrets.urls import split_address

Isolation = Literal["shared", "execution", "task"]
"""The runs that may share a child of ``python`` and its folder: those of a trust domain, an execution, or none."""
ChildUser = Literal["own", "worker"]

Confinement = Literal["none", "landlock", "full"]
"""The confinement of children. ``landlock``: to named files; ``full``: to files, processes and memory of their own."""
ChildNetwork = Literal["host", "proxy", "none"]

ISOLATIONS: Final[tuple[Isolation, ...]] = ("shared", "execution", "task")
CHILD_USERS: Final[tuple[ChildUser, ...]] = ("own", "worker")
CONFINEMENTS: Final[tuple[Confinement, ...]] = ("none", "landlock", "full")
"""The levels of confinement, the weakest first."""
CHILD_NETWORKS: Final[tuple[ChildNetwork, ...]] = ("host", "proxy", "none")

PYTHON_CHILDREN_VARIABLE: Final = "NOETL_PYTHON_CHILDREN"
PYTHON_PATH_VARIABLE: Final = "NOETL_PYTHON_PATH"
DEFAULT_PYTHON_CHILDREN: Final = max(4, os.cpu_count() or 1)


class ChildSettings(msgspec.Struct, frozen=True):
    """The settings of child processes: their isolation and their bounds.

    Attributes:
        user: ``own``: a worker that runs as root gives each child a user of its own. ``worker``: the worker's.
        paths: Absolute paths of folders and files that children may read and write in addition to what programs need.
        memory_bytes: Private memory of one process.
        cpu_s: CPU time of one run.
        processes: Processes and threads of one child, where it has a user of its own.
        files: Open files of one process.
        python_children: Processes of `python` tasks at the same time; further tasks wait.
        confinement: The least confinement of children with which a worker starts.
        network: ``host``: children use the machine's network. ``none``: only a loopback interface of their own.
            ``proxy``: that, and a proxy there which lets them reach what tasks may connect to.
        python_path: Absolute paths of folders whose modules `python` tasks can import in addition to installed ones.
        readable: Absolute paths of folders that children may read in addition: the interpreters of environments.
    """

    isolation: Isolation = "shared"
    user: ChildUser = "own"
    paths: tuple[str, ...] = ()
    memory_bytes: int = 4 * 1024**3
    cpu_s: int = 3600
    processes: int = 256
    files: int = 1024
    python_children: int = DEFAULT_PYTHON_CHILDREN
    confinement: Confinement = "none"
    network: ChildNetwork = "host"
    python_path: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


ENVIRONMENTS_VARIABLE: Final = "NOETL_PYTHON_ENVIRONMENTS"
MAX_BYTES_VARIABLE: Final = "NOETL_PYTHON_ENVIRONMENTS_MAX_BYTES"
INDEX_VARIABLE: Final = "NOETL_PYTHON_INDEX"
CONSTRAINTS_VARIABLE: Final = "NOETL_PYTHON_CONSTRAINTS"
SDISTS_VARIABLE: Final = "NOETL_PYTHON_SDISTS"
INTERPRETERS_VARIABLE: Final = "NOETL_PYTHON_INTERPRETERS"

VARIABLES: Final = (
    ENVIRONMENTS_VARIABLE,
    MAX_BYTES_VARIABLE,
    INDEX_VARIABLE,
    CONSTRAINTS_VARIABLE,
    SDISTS_VARIABLE,
    INTERPRETERS_VARIABLE,
)
"""All variables of these settings."""

DEFAULT_INDEX: Final = "https://pypi.org/simple"
FILES_OF_PYPI: Final = "files.pythonhosted.org:443"
DEFAULT_MAX_BYTES: Final = 10 * 1024**3


class EnvironmentSettings(msgspec.Struct, frozen=True):
    """The settings of a worker's environments: whether, where, and of what it makes them.

    Attributes:
        folder: Their folder; empty: it makes none.
        is_off: Whether the operator has forbidden them.
        max_bytes: The bytes of all of them.
        index: The URL of the package index, or the absolute path of a folder of wheels; empty: PyPI.
        constraints: The absolute path of a file of permitted versions; empty: all.
        sdists: Whether packages without a wheel may be built, which runs their code.
        interpreters: The absolute paths of interpreters. Default: the worker's own, and those in its ``PATH``.
    """

    folder: str = ""
    is_off: bool = False
    max_bytes: int = DEFAULT_MAX_BYTES
    index: str = ""
    constraints: str = ""
    sdists: bool = False
    interpreters: tuple[str, ...] = ()

    def of_home(self, home: Path | None) -> EnvironmentSettings:
        """The settings for a worker of the embedded stack, which keeps environments below ``home``."""
        if self.folder or self.is_off or home is None:
            return self
        return replace(self, folder=str(home / "environments"))

    @property
    def index_addresses(self) -> tuple[str, ...]:
        """The hosts and ports of the index, in the syntax of ``NOETL_EGRESS_ALLOW``; empty for a folder."""
        parts = split_address(self.index or DEFAULT_INDEX)
        if Path(self.index).is_absolute() or parts is None:
            return ()
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        return (f"{f'[{host}]' if ':' in host else host}:{port}", *([FILES_OF_PYPI] if host == "pypi.org" else ()))


def read_environments(variable: str, given: Mapping[str, str]) -> EnvironmentSettings:
    """Reads the settings of environments.

    Raises:
        UsageError: A value is invalid.
    """
    found = EnvironmentSettings(
        max_bytes=_bytes(given.get(MAX_BYTES_VARIABLE)),
        index=_index(given.get(INDEX_VARIABLE, "")),
        constraints=_path(CONSTRAINTS_VARIABLE, given.get(CONSTRAINTS_VARIABLE) or ""),
        sdists=_is_on(SDISTS_VARIABLE, given.get(SDISTS_VARIABLE) or "off"),
        interpreters=tuple(
            _path(INTERPRETERS_VARIABLE, path)
            for path in given.get(INTERPRETERS_VARIABLE, "").split(os.pathsep)
            if path
        ),
    )
    folder = given.get(variable)
    is_off = folder == "off"
    return replace(found, is_off=is_off, folder="" if is_off or not folder else _path(variable, folder))


def _path(variable: str, text: str) -> str:
    if text and not Path(text).is_absolute():
        raise UsageError(f"relative path {text!r} in {variable}", hint="use an absolute path")
    return text


def _bytes(text: str | None) -> int:
    if not text:
        return DEFAULT_MAX_BYTES
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**60):
        raise UsageError(f"invalid {MAX_BYTES_VARIABLE} {text!r}", hint="use a whole number of bytes")
    return int(text)


def _is_on(variable: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise UsageError(f"invalid {variable} {text!r}", hint="use on or off")
    return text == "on"


def _index(text: str) -> str:
    if not text or Path(text).is_absolute():
        return text
    parts = split_address(text)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        hint = "use the https:// URL of a simple index, or the absolute path of a folder of wheels"
        raise UsageError(f"invalid address in {INDEX_VARIABLE}", hint=hint)
    if parts.username or parts.password:
        hint = "let the index take this network without a password: what installs packages has no credentials"
        raise UsageError(f"{INDEX_VARIABLE} holds a password", hint=hint)
    return text
