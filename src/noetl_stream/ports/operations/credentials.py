"""Stored credentials: written by people, read by workers only (LANGUAGE §11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

from msgspec import Meta

from noetl_stream.model.envelope import Time
from noetl_stream.model.secrets.credential import CredentialValue
from noetl_stream.ports.operations.documents import Document, list_of
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


class RotatedDocument(Document, frozen=True):
    """Those that are under the current key now, and why others are not."""

    rotated: list[str]
    problems: list[str]


CREDENTIAL: Final = (
    "CredentialRequest",
    "A value: text, or an object. What is not given of the rest stays as it was.",
)
CredentialName = Annotated[str, Meta(min_length=1, max_length=128)]


class CredentialStore(Protocol):
    """No method ever returns a value. ``reason`` goes into the audit."""

    @verb(
        "GET",
        "/credentials",
        "listCredentials",
        "author",
        scope="special",
        document=list_of("Credentials", CredentialDocument),
    )
    async def list_all(self) -> list[CredentialDocument]:
        """List credentials by name, without their values.

        A token with paths sees those that a playbook of its paths may use.
        """

    @verb("POST", "/credentials/rotate", "rotateCredentials", "admin", scope="everyone")
    async def rotate(self, by: str, reason: str = "") -> RotatedDocument:
        """Encrypt what is under an older key with the current one.

        Repeating it is harmless.
        """

    @verb("GET", "/credentials/{name}", "getCredential", "author", scope="special")
    async def get(self, name: CredentialName) -> CredentialDocument:
        """Get a credential without its value.

        Raises:
            NotFound: no credential has that name.
        """

    @verb("PUT", "/credentials/{name}", "putCredential", "admin", scope="everyone", request=CREDENTIAL)
    async def put(
        self,
        name: CredentialName,
        value: CredentialValue,
        by: str,
        kind: str = "",
        description: str = "",
        tags: Annotated[Sequence[str], Meta(max_length=100)] = (),
        *,
        reason: str = "",
    ) -> CredentialDocument:
        """Store a credential, or its next version.

        Raises:
            UsageError: the name or the value cannot be stored.
            NotReady: no encryption key is configured.
        """

    @verb("DELETE", "/credentials/{name}", "deleteCredential", "admin", scope="everyone")
    async def delete(self, name: CredentialName, by: str, reason: str = "") -> None:
        """Delete a credential."""
