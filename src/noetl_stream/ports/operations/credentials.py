"""Stored credentials: written by people, read by workers only (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noetl_stream.model.credential import CredentialValue
from noetl_stream.ports.operations.documents import Document


class CredentialStore(Protocol):
    """No method ever gives a value back."""

    async def put(
        self,
        name: str,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Sequence[str] = (),
    ) -> Document:
        """Stores the next version; what is not given of ``kind``, … stays as it was.

        Raises:
            UsageError: the name or the value cannot be stored.
            NotReady: there is no key to encrypt it with.
        """
        ...

    async def list_all(self) -> list[Document]: ...

    async def get(self, name: str) -> Document:
        """What may be shown of one.

        Raises:
            NotFound: there is none of that name.
        """
        ...

    async def delete(self, name: str, by: str) -> None: ...

    async def rotate(self, by: str) -> Document:
        """``{"rotated": [names], "problems": [texts]}``."""
        ...
