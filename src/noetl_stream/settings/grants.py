"""Grants: the rights of playbooks at a path, from the file of an operator, or a text that admins register.

::

    namespaces: [team/a, team/b]
    grants:
      - paths: [team/a]
        credentials: [warehouse_a, "shared_*"]
        calls: [team/a, shared]
        pools: [default]
        kinds: [http, postgres]
        limits: [payment-api]
"""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from noetl_stream.errors import UsageError, usable_file
from noetl_stream.model.rights import GrantsDefault, covers, has_valid_segments, namespace_of
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.yaml.nodes import Node, Sequence, child
from noetl_stream.playbook.yaml.source import read_source

log = logging.getLogger(__name__)

Sort = Literal["credentials", "calls", "pools", "kinds", "limits"]
"""The sorts of grants: credentials by name, callable playbooks and usable schemas by path, pools and kinds by name, and
the keys of limits that are shared with other namespaces.
"""

SORTS: Final[tuple[Sort, ...]] = get_args(Sort)
EVERYTHING: Final = "*"

MAX_GRANTS: Final = 1_000
MAX_NAMES: Final = 1_000
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class PathGrant:
    """A grant to the playbooks at or below ``paths``, or to all without paths. Names may contain ``*``."""

    paths: tuple[str, ...]
    names: Mapping[Sort, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grants:
    """All grants. A playbook may use what any grant for its path gives, and nothing else.

    Attributes:
        namespaces: The paths that are namespaces, where these are not the first part of a path.
        default: The rights of a playbook whose path no grant covers.
        text: The grants and namespaces as written; empty where there are none.
    """

    grants: tuple[PathGrant, ...]
    namespaces: tuple[str, ...] = ()
    default: GrantsDefault = "nothing"
    text: str = field(default="", repr=False)

    def namespace_of(self, path: str) -> str:
        """Returns the namespace that the playbook at ``path`` belongs to."""
        return namespace_of(path, self.namespaces)

    def names_for(self, path: str, sort: Sort) -> tuple[str, ...]:
        """The names of this sort that the playbook at ``path`` may use, as written."""
        covering = self._covering(path)
        if not covering:
            return self._default_names(self.namespace_of(path), sort)
        found = (grant.names.get(sort, ()) for grant in covering)
        return tuple(dict.fromkeys(name for names in found for name in names))

    def allows(self, path: str, sort: Sort, name: str) -> bool:
        """Whether the playbook at ``path`` may use ``name``."""
        names = self.names_for(path, sort)
        if EVERYTHING in names or not names:
            return bool(names)
        is_named = covers(names, name) if sort == "calls" else any(fnmatchcase(name, one) for one in names)
        return is_named and (bool(self._covering(path)) or self._belongs(path, sort, name))

    def allows_below(self, path: str, sort: Sort, name: str) -> bool:
        """Whether any playbook at or below ``path`` may use ``name``."""
        apart = {one for grant in self.grants for one in grant.paths}.union(self.namespaces)
        places = {path, *(one for one in apart if covers((path,), one))}
        return any(self.allows(place, sort, name) for place in places)

    def _covering(self, path: str) -> list[PathGrant]:
        return [grant for grant in self.grants if covers(grant.paths, path)]

    def _default_names(self, namespace: str, sort: Sort) -> tuple[str, ...]:
        if self.default == "nothing":
            return ()
        if self.default == "everything" or sort in ("pools", "kinds"):
            return (EVERYTHING,)
        if sort == "calls":
            return (namespace,)
        return (f"{credential_prefix(namespace)}*",) if sort == "credentials" and "." not in namespace else ()

    def _belongs(self, path: str, sort: Sort, name: str) -> bool:
        """Whether a path or a credential is in the namespace of ``path`` itself, and not in one within it."""
        namespace = self.namespace_of(path)
        if sort == "credentials":
            as_path = name.replace(".", "/")
            return name.startswith(credential_prefix(namespace)) and self.namespace_of(as_path) == namespace
        return self.namespace_of(name) == namespace


def credential_prefix(namespace: str) -> str:
    """The prefix of the names of a namespace's credentials. Names have no slashes: ``team/a`` is ``team.a.``."""
    return namespace.replace("/", ".") + "."


class GrantsSource(Protocol):
    """The source of a server's grants.

    Attributes:
        is_chosen: Whether somebody has configured what playbooks may use, even if it is everything.
    """

    @property
    def is_chosen(self) -> bool: ...

    def current(self) -> Grants | None:
        """The grants in force now; ``None``: every playbook may use everything."""

    async def refresh(self) -> None:
        """Reads the grants again, from a source that :meth:`current` does not examine.

        Raises:
            UsageError: they are invalid; those from before stay in force.
            Unreachable: the database is away.
        """


class DefaultGrants:
    """The rights of playbooks where there are no grants.

    Args:
        is_open: Whether playbooks may use everything without anybody having configured so.
    """

    def __init__(self, default: GrantsDefault | None, *, is_open: bool = False) -> None:
        self.is_chosen = is_open or default is not None
        self._grants = None if default is None or default == "everything" else Grants((), default=default)

    def current(self) -> Grants | None:
        return self._grants

    async def refresh(self) -> None:
        """Does nothing: a default never changes."""


class GrantsFile:
    """The grants of a file, read again whenever it has changed. After an invalid change the old ones stay in force.

    Raises:
        UsageError: the file cannot be read, or is invalid.
    """

    is_chosen: Final = True

    def __init__(self, file: Path, default: GrantsDefault = "nothing") -> None:
        self._file, self._default = file, default
        self._seen = _version(file)
        self._grants = read_grants(file, default)

    def current(self) -> Grants:
        """The grants in force now."""
        try:
            version = _version(self._file)
            if version != self._seen:
                self._seen = version
                self._grants = read_grants(self._file, self._default)
        except UsageError as error:
            log.error("the grants stay as they were: %s", error)
        return self._grants

    async def refresh(self) -> None:
        """Does nothing: :meth:`current` examines the file."""


def read_grants(file: Path, default: GrantsDefault = "nothing") -> Grants:
    """Reads the grants of a file.

    Raises:
        UsageError: it cannot be read, is invalid, or is writable by others.
    """
    with usable_file(file):
        if file.stat().st_mode & _WRITABLE_BY_OTHERS:
            raise UsageError(f"{file}: users other than its owner may write it", hint=f"chmod go-w {file}")
        text = file.read_bytes()
    return parse_grants(text, str(file), default)


def parse_grants(text: bytes, name: str, default: GrantsDefault = "nothing") -> Grants:
    """Reads grants from their text, which messages call ``name``.

    Raises:
        UsageError: it is invalid; the message has the line.
    """
    problems = Problems(name)
    source = read_source(text, problems)
    if source is None:
        first = problems.sorted()[0]
        raise UsageError(f"{name}:{first.line}: {first.message}")
    return replace(_grants(source.root, name), default=default, text=source.text)


def _version(file: Path) -> tuple[int, int, int]:
    with usable_file(file):
        found = file.stat()
    return found.st_mtime_ns, found.st_ino, found.st_size


def _grants(root: Node, name: str) -> Grants:
    found, grants = root.plain(), child(root, "grants")
    is_known = isinstance(found, dict) and set(found) - {"namespaces"} == {"grants"}
    if not is_known or not isinstance(grants, Sequence) or len(grants.items) > MAX_GRANTS:
        message = f"{name}: must have `grants`, a list of at most {MAX_GRANTS}, perhaps `namespaces`, and nothing else"
        raise UsageError(message)
    place = f"{name}:{(child(root, 'namespaces') or root).mark.line}: namespaces"
    return Grants(
        tuple(
            _grant(one.plain(), f"{name}:{one.mark.line}: grant {number}")
            for number, one in enumerate(grants.items, start=1)
        ),
        _paths(_names(found.get("namespaces", []), place), place),
    )


def _grant(found: Any, place: str) -> PathGrant:
    keys = ("paths", *SORTS)
    if not isinstance(found, dict) or not set(found) <= set(keys) or "paths" not in found:
        raise UsageError(f"{place} must be a mapping with `paths` and any of {', '.join(SORTS)}")
    lists = {key: _names(found[key], f"{place}: {key}") for key in keys if key in found}
    if not lists["paths"]:
        raise UsageError(f"{place}: paths is empty", hint=f'for every playbook, write paths: ["{EVERYTHING}"]')
    paths = () if EVERYTHING in lists["paths"] else _paths(lists["paths"], f"{place}: paths")
    names: dict[Sort, tuple[str, ...]] = {sort: lists[sort] for sort in SORTS if sort in lists}
    if "calls" in names and EVERYTHING not in names["calls"]:
        names["calls"] = _paths(names["calls"], f"{place}: calls")
    return PathGrant(paths, names)


def _names(found: Any, place: str) -> tuple[str, ...]:
    is_list = isinstance(found, list) and len(found) <= MAX_NAMES
    if not is_list or not all(isinstance(name, str) and name for name in found):
        raise UsageError(f"{place} must be a list of at most {MAX_NAMES} texts")
    return tuple(found)


def _paths(found: tuple[str, ...], place: str) -> tuple[str, ...]:
    """Reads paths for :func:`covers`; ``team/a/**`` means ``team/a``."""
    paths = tuple(path.removesuffix("/**").strip("/") for path in found)
    for path, written in zip(paths, found, strict=True):
        if not has_valid_segments(path) or "*" in path:
            hint = "write the path of a playbook or folder: team/a"
            raise UsageError(f"{place}: {written!r} is not a path", hint=hint)
    return paths
