"""``PATH[@VERSION]``: parsing it, resolving it, and suggesting near matches."""

from __future__ import annotations

from typing import Final, NamedTuple

from noetl_stream.errors import NotFound
from noetl_stream.playbook.diagnostics import listed, nearest
from noetl_stream.ports.catalog import Catalog, CatalogEntry

ADDRESS_FORM: Final = "PATH[@VERSION], as in `examples/airports@1.0`"
MAX_PART_CHARACTERS: Final = 256

SUGGESTED_AMONG: Final = 1000
VERSIONS_SHOWN: Final = 10


class NotRegistered(NotFound):
    """The catalog does not have the path, or the path not the version."""


class Address(NamedTuple):
    """A playbook in the catalog; ``version`` is ``None`` for the latest."""

    path: str
    version: str | None

    def __str__(self) -> str:
        return self.path if self.version is None else f"{self.path}@{self.version}"


def read_address(text: str) -> Address | None:
    """The address in ``text``; ``None`` if it is not one. A leading slash is dropped (LANGUAGE §1)."""
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


async def find_entry(catalog: Catalog, address: Address) -> CatalogEntry:
    """The entry at ``address``.

    Raises:
        NotRegistered: it does not exist; the hint names the nearest path, or the existing versions.
        VersionAmbiguous: it names two entries.
    """
    found = await catalog.resolve(*address)
    if found is not None:
        return found
    entries = await find_versions(catalog, address.path)
    names = listed(entry.known_as for entry in entries[:VERSIONS_SHOWN])
    more = f" and {len(entries) - VERSIONS_SHOWN} older" if len(entries) > VERSIONS_SHOWN else ""
    raise NotRegistered(f"{address.path} has no version {address.version}", hint=f"there is {names}{more}")


async def find_versions(catalog: Catalog, path: str) -> list[CatalogEntry]:
    """All entries of a path, newest first; at least one.

    Raises:
        NotRegistered: there are none; the hint names the nearest path.
    """
    entries = await catalog.versions(path)
    if entries:
        return entries
    known = await catalog.latest("", {}, SUGGESTED_AMONG, None)
    near = nearest(path, (entry.path for entry in known))
    hint = f"did you mean `{near}`?" if near else "`noetl-stream playbook list` lists them all"
    raise NotRegistered(f"no playbook {path} in the catalog", hint=hint)


def _is_part(text: str) -> bool:
    return 0 < len(text) <= MAX_PART_CHARACTERS and text.isprintable() and not set(text) & {" ", "@"}
