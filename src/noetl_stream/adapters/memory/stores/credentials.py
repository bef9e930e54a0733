"""Stored credentials, and the former values that executions have used, in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter

from msgspec.structs import asdict, replace

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.credentials import (
    MAX_GIVEN_BYTES,
    MAX_VALUES_GIVEN,
    MAX_VALUES_USED,
    CredentialInfo,
    FormerCredential,
    NewCredential,
    SealedValue,
    StoredCredential,
    giver_of,
)


class MemoryCredentials:
    """:class:`~noetl_stream.ports.stores.credentials.Credentials` in memory; the port documents each method."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, StoredCredential] = {}
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._former: dict[int, SealedValue] = {}
        self._uses: dict[str, set[tuple[str, int]]] = {}

    async def put(self, new: NewCredential) -> bool:
        present = self._stored.get(new.name)
        if new.version != (present.info.version + 1 if present else 1):
            return False
        now_ms = self._clock.now_ms()
        created_ms = present.info.created_ms if present else now_ms
        shown = {name: value for name, value in asdict(new).items() if name != "sealed"}
        info = CredentialInfo(**shown, created_ms=created_ms, updated_ms=now_ms)
        self._keep_former(new.name)
        self._stored[new.name] = StoredCredential(info, new.sealed)
        self._last += 1
        self._numbers[new.name] = self._last
        return True

    async def get(self, name: str) -> StoredCredential | None:
        return self._stored.get(name)

    async def read_all(self) -> list[StoredCredential]:
        return self._by_name()

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        present = self._stored.get(name)
        if present is None or present.info.version != version:
            return False
        self._stored[name] = StoredCredential(replace(present.info, key_id=key_id), sealed)
        return True

    async def delete(self, name: str) -> bool:
        self._keep_former(name)
        return self._stored.pop(name, None) is not None

    def _by_name(self) -> list[StoredCredential]:
        return [self._stored[name] for name in sorted(self._stored)]

    async def list_all(self) -> list[CredentialInfo]:
        return [stored.info for stored in self._by_name()]

    async def record_use(self, execution_id: str, read: StoredCredential) -> bool:
        name = read.info.name
        if self._stored.get(name) != read:
            return False
        self._uses.setdefault(execution_id, set()).add((name, self._numbers[name]))
        return True

    async def record_given(self, execution_id: str, given: SealedValue) -> None:
        uses = self._uses.setdefault(execution_id, set())
        if any(name == given.name for name, _ in uses):
            return
        self._last += 1
        self._former[self._last] = given
        uses.add((given.name, self._last))
        size = 0
        own = [use for use in uses if giver_of(use[0]) == giver_of(given.name)]
        for count, use in enumerate(sorted(own, key=itemgetter(1), reverse=True), start=1):
            size += len(self._former[use[1]].sealed)
            if count > MAX_VALUES_GIVEN or size > MAX_GIVEN_BYTES:
                uses.remove(use)
        self._drop_unused()

    async def inherit_uses(self, pairs: Collection[tuple[str, str]]) -> None:
        for giver, heir in pairs:
            newest = sorted(self._uses.get(giver, ()), key=itemgetter(1), reverse=True)
            self._uses.setdefault(heir, set()).update(newest[:MAX_VALUES_USED])

    async def used_by(self, execution_ids: Collection[str]) -> Mapping[str, list[SealedValue]]:
        found = {execution_id: self._values_of(execution_id) for execution_id in execution_ids}
        return {execution_id: values for execution_id, values in found.items() if values}

    async def read_former(self, after: int, limit: int) -> list[FormerCredential]:
        return [FormerCredential(*item) for item in sorted(self._former.items()) if item[0] > after][:limit]

    async def reencrypt_former(self, number: int, key_id: str, sealed: bytes) -> bool:
        if number in self._former:
            self._former[number] = self._former[number]._replace(key_id=key_id, sealed=sealed)
        return number in self._former

    def forget_execution(self, execution_id: str) -> None:
        """Removes an execution from the uses of credentials, as its deletion does."""
        self._uses.pop(execution_id, None)
        self._drop_unused()

    def _drop_unused(self) -> None:
        used = {number for uses in self._uses.values() for _, number in uses}
        self._former = {number: value for number, value in self._former.items() if number in used}

    def _keep_former(self, name: str) -> None:
        stored = self._stored.get(name)
        use = (name, self._numbers.get(name, 0))
        if stored is not None and any(use in uses for uses in self._uses.values()):
            self._former[use[1]] = _value(stored)

    def _values_of(self, execution_id: str) -> list[SealedValue]:
        uses = self._uses.get(execution_id, set())
        former = [self._former[number] for number in sorted(number for _, number in uses) if number in self._former]
        names = sorted({name for name, _ in uses if name in self._stored}, key=self._numbers.__getitem__)
        return [*former, *(_value(self._stored[name]) for name in names)][-MAX_VALUES_USED:]


def _value(stored: StoredCredential) -> SealedValue:
    return SealedValue(stored.info.name, stored.info.version, stored.info.key_id, stored.sealed)
