"""The encrypted credential store (LANGUAGE §11). It never sees a value: callers encrypt."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from noetl_stream.model.redaction import MAX_SECRETS_HIDDEN

CREDENTIAL_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Valid names of stored credentials."""

MAX_VALUES_USED: Final = MAX_SECRETS_HIDDEN
"""How many values of one execution are looked up."""


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


class SealedValue(NamedTuple):
    """A value that a credential has, or had: encrypted as ``version`` of ``name``."""

    name: str
    version: int
    key_id: str
    sealed: bytes


class FormerCredential(NamedTuple):
    """A value that was handed out and then replaced or deleted. ``number`` is its own and rises."""

    number: int
    value: SealedValue


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

    async def record_use(self, execution_id: str, read: StoredCredential) -> bool:
        """Records that this value is handed out for an execution. Once replaced or deleted, it is kept as long as an
        execution that it was handed out for.

        ``False``, and nothing is recorded, if it is no longer the stored one: it must be read again.
        """
        ...

    async def used_by(self, execution_ids: Collection[str]) -> Mapping[str, list[SealedValue]]:
        """Every value that was handed out for these executions, and today's values of the same credentials; without
        entries for executions that used none.

        Former values come first, oldest first. Of more than :data:`MAX_VALUES_USED`, these are left out first.
        """
        ...

    async def read_former(self, after: int, limit: int) -> list[FormerCredential]:
        """Former values with a number above ``after``, by number, for key rotation."""
        ...

    async def reencrypt_former(self, number: int, key_id: str, sealed: bytes) -> bool:
        """Replaces the encryption of a former value; ``False`` if it is no longer kept."""
        ...
