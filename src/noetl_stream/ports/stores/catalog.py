"""The catalog: playbooks by path and version, each pinned to the digest of its text (LANGUAGE §9, §12 *playbook*).

Its addresses are ``PATH[@VERSION]``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from noetl_stream.errors import NotFound, UsageError
from noetl_stream.playbook.suggestions import list_names, nearest

ADDRESS_FORM: Final = "PATH[@VERSION], as in `examples/airports@1.0`"
MAX_PART_CHARACTERS: Final = 256
SUGGESTED_AMONG: Final = 1000
PLAYBOOK: Final = "Playbook"
SCHEMA: Final = "Schema"
VERSIONS_SHOWN: Final = 10
MAX_WORDS: Final = 8
SEARCHED_CHARACTERS: Final = 1000
"""The characters of a description, all labels or all tags that are searched for words."""

_REVISION: Final = re.compile(r"#?([1-9][0-9]{0,8})")


class KindTaken(UsageError):
    """Documents of another kind are registered at this path."""


class VersionTaken(UsageError):
    """This ``metadata.version`` is registered with a different text: a version never changes."""


class VersionAmbiguous(UsageError):
    """The text after the ``@`` is the version of one entry and the revision of another."""


class CatalogEntry(msgspec.Struct, frozen=True, gc=False):
    """A registered playbook, or another document (LANGUAGE §15).

    Attributes:
        path: Its path, without a leading slash.
        kind: ``Playbook``, ``Schema`` or ``Schedule``; one path has one kind.
        version: The author's ``metadata.version``, if any.
        revision: Counts registrations under the path: 1, 2, 3 …
        digest: SHA-256 of the text, in hex; executions are pinned to it.
        labels: ``metadata.labels``; values are scalars.
        registered_ms: The time of registration, in ms since the epoch.
        registered_by: The principal that registered it.
    """

    path: str
    version: str | None
    revision: int
    digest: str
    name: str
    description: str | None
    labels: Mapping[str, Any]
    tags: list[str]
    registered_ms: int
    registered_by: str
    kind: str = PLAYBOOK

    @property
    def known_as(self) -> str:
        """The name after the ``@`` in addresses: the version, or else the revision."""
        return self.version if self.version is not None else str(self.revision)


class Catalog(Protocol):
    """Registered playbooks. Entries never change; the latest of a path is the one registered last.

    Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away.
    """

    async def register(self, entry: CatalogEntry, source: str) -> CatalogEntry:
        """Registers a playbook and returns its entry; ``entry.revision`` is ignored. Idempotent, also concurrently.

        The same text under the same version, or without a version and equal to the latest, returns the existing entry.
        ``source`` is stored by its digest, where executions find it.

        Raises:
            VersionTaken: the version is registered with a different text.
            KindTaken: another kind is registered at the path.
        """

    async def resolve(self, path: str, version: str | None) -> CatalogEntry | None:
        """The latest entry of ``path``, or the one ``version`` names (:func:`entry_named`).

        Raises:
            VersionAmbiguous: it names two entries.
        """

    async def versions(self, path: str) -> list[CatalogEntry]:
        """All entries of a path, newest first."""

    async def latest(
        self,
        prefix: str,
        labels: Mapping[str, str],
        limit: int,
        after: str | None,
        *,
        words: Sequence[str] = (),
        kinds: Sequence[str] = (),
        scope: Sequence[str] = (),
    ) -> list[CatalogEntry]:
        """The latest entry of each path, ordered by path.

        Args:
            prefix: The start of the paths.
            labels: Labels the entry must have, values as text: ``{"tier": "1"}`` matches ``tier: 1``.
            words: Texts that must all occur in its path, name, description, tags or labels as ``name=value``; see
                :func:`words_in`.
            kinds: The accepted kinds, such as ``Playbook``; empty for all.
            limit: The most entries.
            after: The path to continue after.
            scope: The paths at or below which entries must be; empty for all.
        """

    async def delete(self, path: str, revision: int | None) -> int:
        """Deletes an entry, or all entries of the path with ``None``; returns their number.

        Texts stay where executions find them. A revision is never reused; a version may be.
        """

    async def want_bundle(self, name: str, now_ms: int) -> bool:
        """Keeps a bundle of this name, which need not be stored yet; ``False`` if it is being deleted."""

    async def unwanted_bundles(self, now_ms: int, before_ms: int) -> list[str]:
        """Begins the deletion of bundles that nothing has named since ``before_ms``; returns them, and those of earlier
        calls.

        A bundle is named by the latest text of each path, by each named version and by each execution.
        """

    async def forget_bundle(self, name: str) -> None:
        """Ends the deletion of a bundle after its object is gone: it may be stored again."""


def words_in(text: str) -> list[str]:
    """The words to look for, without regard to the case of ASCII letters.

    Raises:
        UsageError: there are too many.
    """
    words = ascii_lower(text).split()
    if len(words) > MAX_WORDS:
        raise UsageError(f"at most {MAX_WORDS} words can be looked for, not {len(words)}")
    return words


def ascii_lower(text: str) -> str:
    """Converts to lower case like Postgres's ``lower(text collate "C")``, independent of the locale."""
    return text.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def registered_entry(wanted: CatalogEntry, existing: Sequence[CatalogEntry], deleted: int = 0) -> CatalogEntry:
    """The entry after registering ``wanted``: one of ``existing``, or ``wanted`` with the next revision.

    Args:
        existing: Entries of the path, newest first: at least the latest and the one with the wanted version.
        deleted: The highest deleted revision of the path.

    Raises:
        VersionTaken: the version is registered with a different text.
        KindTaken: another kind is registered at the path.
    """
    latest = existing[0] if existing else None
    if latest is not None and latest.kind != wanted.kind:
        hint = "choose another path, or delete what is there first"
        raise KindTaken(f"{wanted.path} is the path of a {latest.kind.lower()}, not a {wanted.kind.lower()}", hint=hint)
    if wanted.version is None:
        same = latest if latest is not None and latest.digest == wanted.digest else None
    else:
        same = next((entry for entry in existing if entry.version == wanted.version), None)
    if same is None:
        return replace(wanted, revision=max(latest.revision if latest else 0, deleted) + 1)
    if same.digest != wanted.digest:
        message = f"{wanted.path}@{wanted.version} is registered with a different text ({same.digest[:12]})"
        raise VersionTaken(message, hint="a version never changes: give the new text another metadata.version")
    return same


def revision_in(version: str) -> int | None:
    """The revision named by ``3`` or ``#3``; ``None`` if the text is not one."""
    found = _REVISION.fullmatch(version)
    return int(found[1]) if found else None


def entry_named(version: str, entries: Sequence[CatalogEntry]) -> CatalogEntry | None:
    """The entry of a path that ``version`` names, by version or by revision; ``#3`` is revision 3.

    Raises:
        VersionAmbiguous: it is the version of one entry and the revision of another.
    """
    revision = revision_in(version)
    found = [entry for entry in entries if version == entry.version or revision == entry.revision]
    if len(found) > 1:
        spellings = list_names(f"{entry.path}@#{entry.revision}" for entry in found)
        message = f"{found[0].path}@{version} is both a version and, of a different text, a revision"
        raise VersionAmbiguous(message, hint=f"name the revision: {spellings}")
    return found[0] if found else None


class NotRegistered(NotFound):
    """The catalog does not have the path, or not this version of it.

    Attributes:
        near: The path that the hint suggests, if any: not everybody may know that it exists.
    """

    def __init__(self, message: str, *, hint: str | None = None, near: str = "") -> None:
        super().__init__(message, hint=hint)
        self.near = near


class Address(NamedTuple):
    """A playbook in the catalog; ``version`` is ``None`` for the latest."""

    path: str
    version: str | None

    def __str__(self) -> str:
        return self.path if self.version is None else f"{self.path}@{self.version}"


def read_address(text: str) -> Address | None:
    """The address in ``text``; ``None`` if it is invalid. A leading slash is dropped (LANGUAGE §1)."""
    path, at, version = text.removeprefix("/").partition("@")
    if not is_path(path) or (at and not _is_part(version)):
        return None
    return Address(path, version if at else None)


def is_path(text: str) -> bool:
    """Whether a path can be used in an address: names separated by slashes, without white space or ``@``."""
    return _is_part(text) and all(name not in ("", ".", "..") for name in text.split("/"))


def is_version(text: str) -> bool:
    """Whether a version can be used in an address; ``#`` starts a revision."""
    return _is_part(text) and not text.startswith("#")


async def find_entry(catalog: Catalog, address: Address, kind: str | None = None) -> CatalogEntry:
    """The entry at ``address``.

    Args:
        kind: The kind that it must have.

    Raises:
        NotRegistered: it does not exist, or is of another kind; the hint names the nearest path, or the existing
            versions.
        VersionAmbiguous: it names two entries.
    """
    found = await catalog.resolve(*address)
    if found is not None:
        if kind not in (None, found.kind):
            raise NotRegistered(f"{address} is a {found.kind.lower()}, not a {kind.lower()}")
        return found
    entries = await find_versions(catalog, address.path, kind or PLAYBOOK)
    names = list_names(entry.known_as for entry in entries[:VERSIONS_SHOWN])
    more = f" and {len(entries) - VERSIONS_SHOWN} older" if len(entries) > VERSIONS_SHOWN else ""
    raise NotRegistered(f"{address.path} has no version {address.version}", hint=f"it has {names}{more}")


async def find_versions(catalog: Catalog, path: str, kind: str = PLAYBOOK) -> list[CatalogEntry]:
    """All entries of a path, newest first; at least one.

    Raises:
        NotRegistered: the path is unknown; the hint names the nearest one.
    """
    entries = await catalog.versions(path)
    if entries:
        return entries
    known = await catalog.latest("", {}, SUGGESTED_AMONG, None)
    near = nearest(path, (entry.path for entry in known if entry.kind == kind))
    register = "register it: `noetl-stream playbook register FILE`; `noetl-stream playbook list` lists them all"
    hint = f"did you mean `{near}`?" if near else register
    raise NotRegistered(f"no {kind.lower()} {path} in the catalog", hint=hint, near=near or "")


def _is_part(text: str) -> bool:
    return 0 < len(text) <= MAX_PART_CHARACTERS and text.isprintable() and not set(text) & {" ", "@"}


class GrantsRevision(msgspec.Struct, frozen=True, gc=False):
    """A revision of the grants, numbered from 1. ``source`` is their text; the latest revision is in force."""

    revision: int
    source: str
    registered_ms: int
    registered_by: str


class GrantsStore(Protocol):
    """The revisions. Any method raises Unreachable when the database is away."""

    async def latest(self, known: GrantsRevision | None = None) -> GrantsRevision | None:
        """The latest revision; ``None`` if there is none, or if it is ``known``."""

    async def get(self, revision: int) -> GrantsRevision | None: ...

    async def add(self, new: GrantsRevision) -> bool:
        """Adds a revision; ``False``, and nothing is stored, unless its number follows that of the latest."""
