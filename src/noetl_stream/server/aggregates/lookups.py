"""What aggregates may start: playbooks in the catalog, and whether a principal may start them now."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from noetl_stream.engine.aggregates.contract import Found, Lookup
from noetl_stream.model.paths import covers
from noetl_stream.model.roles import includes_role
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.catalog import PLAYBOOK, Catalog, VersionAmbiguous
from noetl_stream.ports.stores.identities import Rights

TOKEN: Final = "token:"
PROVIDER: Final = "oidc:"


class Lookups:
    """Looks up what folds have named. Without ``rights``, nobody is limited."""

    def __init__(self, catalog: Catalog, rights: Rights | None, clock: Clock) -> None:
        self._catalog = catalog
        self._rights = rights
        self._clock = clock

    async def find(self, wanted: Collection[Lookup]) -> dict[Lookup, Found]:
        """
        Raises:
            Unreachable: Postgres is away.
        """
        if not wanted:
            return {}
        addresses = list(dict.fromkeys((one.path, one.version) for one in wanted))
        resolved = await asyncio.gather(*(self._playbook(*address) for address in addresses))
        playbooks = dict(zip(addresses, resolved, strict=True))
        names = dict.fromkeys(one.principal.removeprefix(TOKEN) for one in wanted if one.principal.startswith(TOKEN))
        held = await self._rights.of(names, self._clock.now_ms()) if names and self._rights is not None else {}
        found = {}
        for one in wanted:
            forbidden = ""
            if one.principal.startswith(PROVIDER):
                forbidden = (
                    f"{one.principal} has its rights from an identity provider, which no server can ask later on: "
                    "register it with an API token, which an admin makes "
                    "(`noetl-stream token create NAME --role author`)"
                )
            elif one.principal.startswith(TOKEN) and self._rights is not None:
                right = held.get(one.principal.removeprefix(TOKEN))
                if right is None:
                    forbidden = f"{one.principal} is revoked or has expired"
                elif not includes_role(right.role, "operator"):
                    forbidden = f"{one.principal} has role {right.role}: starting takes operator"
                elif not covers(right.paths, one.path):
                    forbidden = f"{one.principal} has no access to {one.path}"
            digest, missing = playbooks[one.path, one.version]
            found[one] = Found(digest, missing, forbidden)
        return found

    async def _playbook(self, path: str, version: str | None) -> tuple[str, str]:
        """The digest of a playbook, or why there is none."""
        address = path if version is None else f"{path}@{version}"
        try:
            entry = await self._catalog.resolve(path, version)
        except VersionAmbiguous as error:
            return "", error.message
        if entry is None:
            return "", f"playbook {address} is not registered"
        if entry.kind != PLAYBOOK:
            return "", f"{address} is a {entry.kind}, not a playbook"
        return entry.digest, ""
