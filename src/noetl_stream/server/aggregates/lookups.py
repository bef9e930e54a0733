"""The lookups of aggregates: playbooks to start, rights of principals, and slots of limits."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from noetl_stream.engine.aggregates.contract import Found, LimitSlots, Lookup
from noetl_stream.model.aggregates import LimitFact, LimitSlot, SlotAsked, is_limit
from noetl_stream.model.json import codec
from noetl_stream.model.rights import covers, includes_role
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.aggregates import LimitSlotKey, LimitSlotRow, LimitStore, WantedSlots
from noetl_stream.ports.stores.catalog import PLAYBOOK, Catalog, VersionAmbiguous
from noetl_stream.ports.stores.identities import Rights
from noetl_stream.server.ticks.tick import PendingTick

TOKEN: Final = "token:"
PROVIDER: Final = "oidc:"


class Lookups:
    """Lookups for folds. Without ``rights``, nobody is restricted."""

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
        """The digest of a playbook, or the reason why there is none."""
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


MORE_WAITING: Final = 8
"""The waiting slots that are loaded in addition to one for each input: a raised limit grants several at once."""


class LoadedSlots(LimitSlots):
    """The loaded slots of one limit, with the changes made by folds."""

    def __init__(self, limit_id: str, slots: Sequence[LimitSlot], most: int) -> None:
        super().__init__(slots, most)
        self._limit_id = limit_id

    def change(self, changed: Mapping[str, LimitSlot | None], tick: PendingTick) -> None:
        """Applies the changes of a fold and adds their rows to the tick."""
        for holder, slot in changed.items():
            key = LimitSlotKey(self._limit_id, holder)
            if slot is None:
                self._slots.pop(holder, None)
                tick.limit_slots.pop(key, None)
                tick.limit_slots_gone[key] = key
                continue
            if not (slot.granted_ms or self.has_more or holder in self._slots):
                self._waiting.append(slot)
            self._slots[holder] = slot
            tick.limit_slots_gone.pop(key, None)
            tick.limit_slots[key] = _row(self._limit_id, slot)


async def load_slots(store: LimitStore, inputs: Collection[tuple[str, object]]) -> dict[str, LoadedSlots]:
    """The slots that these inputs need, by limit. Each input is given with the id of its aggregate.

    Raises:
        Unreachable: the database is away.
    """
    told: dict[str, list[object]] = {}
    for id, fact in inputs:
        if is_limit(id):
            told.setdefault(id, []).append(fact)
    if not told:
        return {}
    wanted = []
    for id, facts in told.items():
        holders = {fact.holder for fact in facts if isinstance(fact, LimitFact)}
        newer = sum(isinstance(fact, SlotAsked) and fact.on_limit == "cancel_running" for fact in facts)
        wanted.append(WantedSlots(id, holders, len(facts) + MORE_WAITING, newer))
    found = await store.limit_slots(wanted)
    return {
        one.limit_id: LoadedSlots(
            one.limit_id,
            [codec.decode_as(LimitSlot, row.body) for row in found.get(one.limit_id, ())],
            one.waiting,
        )
        for one in wanted
    }


def _row(limit_id: str, slot: LimitSlot) -> LimitSlotRow:
    return LimitSlotRow(
        limit_id=limit_id,
        holder=slot.holder,
        number=slot.number,
        execution_id=slot.execution_id,
        granted_ms=slot.granted_ms or None,
        yields=int(slot.may_be_ended),
        body=codec.encode(slot),
    )
