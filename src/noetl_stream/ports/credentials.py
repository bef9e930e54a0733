"""The encrypted credential store (LANGUAGE §11). It never sees a value: callers encrypt."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Valid names of stored credentials."""


class CredentialInfo(NamedTuple):
    """The public part of a credential. ``version`` counts its values from 1; times are ms since the epoch."""

    name: str
    kind: str
    description: str
    tags: tuple[str, ...]
    version: int
    key_id: str
    created_ms: int
    updated_ms: int


class StoredCredential(NamedTuple):
    """A credential with its encrypted value, in the form :mod:`noetl_stream.sealing.keys` reads."""

    info: CredentialInfo
    sealed: bytes


class NewCredential(NamedTuple):
    """A value to store. ``version`` is the one it was encrypted as: the stored one plus 1, or 1 for a new name."""

    name: str
    kind: str
    description: str
    tags: tuple[str, ...]
    version: int
    key_id: str
    sealed: bytes


class Credentials(Protocol):
    """Any method raises :class:`~noetl_stream.errors.Unreachable` when the database is away."""

    async def put(self, new: NewCredential) -> bool:
        """Stores the next version; ``False``, and nothing is written, if another writer came first."""
        ...

    async def get(self, name: str) -> StoredCredential | None: ...

    async def read_all(self) -> list[StoredCredential]:
        """All credentials by name, for key rotation."""
        ...

    async def list_all(self) -> list[CredentialInfo]:
        """All credentials by name, without values."""
        ...

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        """Replaces the encryption of a version; ``False`` if that version is no longer stored."""
        ...

    async def delete(self, name: str) -> bool:
        """Whether it existed."""
        ...

    async def record_use(self, execution_id: str, name: str) -> None:
        """Records that the credential is handed out for an execution."""
        ...

    async def used_by(self, execution_ids: Collection[str]) -> Mapping[str, list[StoredCredential]]:
        """What was handed out for these executions and is still stored, with today's value; without entries for
        executions that used none.
        """
        ...
