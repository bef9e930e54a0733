"""Stored credentials: written by people, read by workers only (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noetl_stream.model.credential import CredentialValue
from noetl_stream.model.envelope import Time
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.verbs import verb


class CredentialDocument(Document, frozen=True):
    """What may be shown of a credential; ``version`` counts its values."""

    name: str
    kind: str
    description: str
    tags: list[str]
    version: int
    key_id: str
    created: Time
    updated: Time


class CredentialsDocument(Document, frozen=True):
    items: list[CredentialDocument]


class RotatedDocument(Document, frozen=True):
    """Those that are under the current key now, and why others are not."""

    rotated: list[str]
    problems: list[str]


class CredentialStore(Protocol):
    """No method ever returns a value. ``reason`` goes into the audit."""

    @verb("PUT", "/credentials/{name}", scope="everyone")
    async def put(
        self,
        name: str,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Sequence[str] = (),
        *,
        reason: str = "",
    ) -> CredentialDocument:
        """Stores the next version; ``kind``, … stay as they were if not given.

        Raises:
            UsageError: the name or the value cannot be stored.
            NotReady: no encryption key is configured.
        """
        ...

    @verb("GET", "/credentials", scope="everyone")
    async def list_all(self) -> list[CredentialDocument]: ...

    @verb("GET", "/credentials/{name}", scope="everyone")
    async def get(self, name: str) -> CredentialDocument:
        """What may be shown of one.

        Raises:
            NotFound: no credential has that name.
        """
        ...

    @verb("DELETE", "/credentials/{name}", scope="everyone")
    async def delete(self, name: str, by: str, reason: str = "") -> None: ...

    @verb("POST", "/credentials/rotate", scope="everyone")
    async def rotate(self, by: str, reason: str = "") -> RotatedDocument:
        """Encrypts with the current key what is under an older one. Repeating it is harmless."""
        ...
