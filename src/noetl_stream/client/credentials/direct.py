"""Stored credentials, directly on Postgres: encrypted here, never shown."""

from __future__ import annotations

from collections.abc import Sequence

from noetl_stream.client.audit import Recorded, unrecorded
from noetl_stream.client.credentials.storage import CredentialStorage
from noetl_stream.model.credential import CredentialValue
from noetl_stream.model.envelope import iso
from noetl_stream.ports.credentials import CredentialInfo
from noetl_stream.ports.operations.credentials import CredentialDocument, RotatedDocument


class DirectCredentials:
    """:class:`~noetl_stream.ports.operations.credentials.CredentialStore`.

    Args:
        recorded: What each change is done within.
    """

    def __init__(self, keeper: CredentialStorage, recorded: Recorded = unrecorded) -> None:
        self._keeper = keeper
        self._recorded = recorded

    async def put(
        self,
        name: str,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Sequence[str] = (),
    ) -> CredentialDocument:
        async with self._recorded("putCredential", name, by):
            stored = await self._keeper.store(name, value, kind=kind, description=description, tags=tuple(tags))
        return credential_document(stored)

    async def list_all(self) -> list[CredentialDocument]:
        return [credential_document(info) for info in await self._keeper.list_all()]

    async def get(self, name: str) -> CredentialDocument:
        return credential_document(await self._keeper.show(name))

    async def delete(self, name: str, by: str) -> None:
        async with self._recorded("deleteCredential", name, by):
            await self._keeper.delete(name)

    async def rotate(self, by: str) -> RotatedDocument:
        async with self._recorded("rotateCredentials", "", by):
            names, problems = await self._keeper.rotate()
        return RotatedDocument(names, problems)


def credential_document(info: CredentialInfo) -> CredentialDocument:
    """Everything but its value."""
    return CredentialDocument(
        name=info.name,
        kind=info.kind,
        description=info.description,
        tags=list(info.tags),
        version=info.version,
        key_id=info.key_id,
        created=iso(info.created_ms),
        updated=iso(info.updated_ms),
    )
