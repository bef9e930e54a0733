"""The encrypted credentials in the schema ``noetl``."""

from __future__ import annotations

from typing import Any

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.ports.credentials import CredentialInfo, NewCredential, StoredCredential


class PostgresCredentials:
    """:class:`~noetl_stream.ports.credentials.Credentials`, where each method is described."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, new: NewCredential) -> bool:
        return bool(await self._database.fetch("put_credential", new=new))

    async def get(self, name: str) -> StoredCredential | None:
        rows = await self._database.fetch("credential", name=name)
        return _stored(rows[0]) if rows else None

    async def read_all(self) -> list[StoredCredential]:
        return [_stored(row) for row in await self._database.fetch("credential", name=None)]

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        return bool(
            await self._database.fetch("reencrypt_credential", name=name, version=version, key_id=key_id, sealed=sealed)
        )

    async def delete(self, name: str) -> bool:
        return bool(await self._database.fetch("delete_credential", name=name))

    async def list_all(self) -> list[CredentialInfo]:
        return [_info(row) for row in await self._database.fetch("list_credentials")]


def _stored(row: Any) -> StoredCredential:
    *info, sealed = row
    return StoredCredential(_info(info), sealed)


def _info(row: Any) -> CredentialInfo:
    name, kind, description, tags, *rest = row
    return CredentialInfo(name, kind, description, tuple(tags), *rest)
