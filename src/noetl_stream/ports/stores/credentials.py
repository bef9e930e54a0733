"""The encrypted credential store (LANGUAGE §11). It never sees a value: callers encrypt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from noetl_stream.model.secrets.credential import MAX_SECRETS_HIDDEN

MAX_VALUES_USED: Final = MAX_SECRETS_HIDDEN
"""The most values of one execution that are looked up."""

MAX_VALUES_GIVEN: Final = 100
MAX_GIVEN_BYTES: Final = 256 * 1024
"""The most values from one giver that are kept for an execution, and their total size, encrypted."""


class CredentialInfo(msgspec.Struct, frozen=True, gc=False):
    """The public part of a credential. ``version`` counts its values from 1; times are ms since the epoch."""

    name: str
    kind: str
    description: str
    tags: tuple[str, ...]
    version: int
    key_id: str
    created_ms: int
    updated_ms: int


class StoredCredential(msgspec.Struct, frozen=True, gc=False):
    """A credential with its encrypted value, in the form :mod:`noetl_stream.sealing.keys` reads."""

    info: CredentialInfo
    sealed: bytes


class SealedValue(NamedTuple):
    """A present or former value of a credential, encrypted as ``version`` of ``name``."""

    name: str
    version: int
    key_id: str
    sealed: bytes


def given_name(giver: str, name: str, mark: str) -> str:
    """The name under which a value that belongs to no credential is kept. Its slashes distinguish it from credentials.

    Args:
        giver: The giver of the value, without a slash.
        mark: Tells values of one name apart.
    """
    return f"{giver}/{mark}/{name}"


def giver_of(name: str) -> str:
    """The giver in a :func:`given_name`; empty for the name of a credential."""
    giver, slash, _ = name.partition("/")
    return giver if slash else ""


class FormerCredential(msgspec.Struct, frozen=True, gc=False):
    """A value that executions were given and no credential has: it was replaced or deleted, or came from elsewhere.
    ``number`` is its own and increases.
    """

    number: int
    value: SealedValue


class NewCredential(msgspec.Struct, frozen=True, gc=False):
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

    async def get(self, name: str) -> StoredCredential | None: ...

    async def read_all(self) -> list[StoredCredential]:
        """All credentials by name, for key rotation."""

    async def list_all(self) -> list[CredentialInfo]:
        """All credentials by name, without values."""

    async def reencrypt(self, name: str, version: int, key_id: str, sealed: bytes) -> bool:
        """Replaces the encryption of a version; ``False`` if that version is no longer stored."""

    async def delete(self, name: str) -> bool:
        """Deletes a credential; returns whether it existed."""

    async def record_use(self, execution_id: str, read: StoredCredential) -> bool:
        """Records that this value is handed out for an execution. Once replaced or deleted, it is kept as long as that
        execution.

        ``False``, and nothing is recorded, if it is no longer the stored value: it must be read again.
        """

    async def record_given(self, execution_id: str, given: SealedValue) -> None:
        """Keeps a value with the execution that was given it, unless a value of this :func:`given_name` is kept.

        Of more than :data:`MAX_VALUES_GIVEN` from this giver, or :data:`MAX_GIVEN_BYTES`, the oldest are dropped.
        """

    async def inherit_uses(self, pairs: Collection[tuple[str, str]]) -> None:
        """Records the giver's values as given to the heir too, for each pair of execution ids (giver, heir): the heir
        gets values of the giver. At most the :data:`MAX_VALUES_USED` newest values of each.
        """

    async def used_by(self, execution_ids: Collection[str]) -> Mapping[str, list[SealedValue]]:
        """Every value that these executions were given, and the present values of the same credentials; without entries
        for executions that used none.

        Former values come first, oldest first. Of more than :data:`MAX_VALUES_USED`, these are left out first.
        """

    async def read_former(self, after: int, limit: int) -> list[FormerCredential]:
        """Former values with a number above ``after``, by number, for key rotation."""

    async def reencrypt_former(self, number: int, key_id: str, sealed: bytes) -> bool:
        """Replaces the encryption of a former value; ``False`` if it is no longer kept."""
