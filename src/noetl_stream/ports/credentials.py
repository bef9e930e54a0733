"""The encrypted credential store (LANGUAGE §11). It never sees a value: what it keeps is encrypted by its callers."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Protocol

CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""What a stored credential may be called."""


class CredentialInfo(NamedTuple):
    """What may be shown of a credential. ``version`` counts its values from 1; times are ms since the epoch."""

    name: str
    kind: str
    description: str
    tags: tuple[str, ...]
    version: int
    key_id: str
    created_ms: int
    updated_ms: int


class StoredCredential(NamedTuple):
    """A credential with its encrypted value, as :mod:`noetl_stream.sealing.envelope` reads it."""

    info: CredentialInfo
    sealed: bytes


class NewCredential(NamedTuple):
    """A value to store. ``version`` is the one it was encrypted as: one above what is stored, 1 for a new name."""

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
        """Stores the next version; ``False`` if another came first, and nothing was written."""
        ...

    async def get(self, name: str) -> StoredCredential | None: ...

    async def read_all(self) -> list[StoredCredential]:
        """Every credential by name, for rotation."""
        ...

    async def list_all(self) -> list[CredentialInfo]:
        """Every credential by name, without values."""
        ...

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        """The same version under another key; ``False`` if that version is no longer stored."""
        ...

    async def delete(self, name: str) -> bool:
        """Whether there was one."""
        ...
