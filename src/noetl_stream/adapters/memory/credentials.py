"""Encrypted credentials in memory."""

from __future__ import annotations

from noetl_stream.ports.clock import Clock
from noetl_stream.ports.credentials import CredentialInfo, NewCredential, StoredCredential


class MemoryCredentials:
    """:class:`~noetl_stream.ports.credentials.Credentials` in memory; the port documents each method."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, StoredCredential] = {}

    async def put(self, new: NewCredential) -> bool:
        present = self._stored.get(new.name)
        if new.version != (present.info.version + 1 if present else 1):
            return False
        now_ms = self._clock.now_ms()
        created_ms = present.info.created_ms if present else now_ms
        info = CredentialInfo(*new[:6], created_ms, now_ms)
        self._stored[new.name] = StoredCredential(info, new.sealed)
        return True

    async def get(self, name: str) -> StoredCredential | None:
        return self._stored.get(name)

    async def read_all(self) -> list[StoredCredential]:
        return sorted(self._stored.values())

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        present = self._stored.get(name)
        if present is None or present.info.version != version:
            return False
        self._stored[name] = StoredCredential(present.info._replace(key_id=key_id), sealed)
        return True

    async def delete(self, name: str) -> bool:
        return self._stored.pop(name, None) is not None

    async def list_all(self) -> list[CredentialInfo]:
        return [stored.info for stored in sorted(self._stored.values())]
