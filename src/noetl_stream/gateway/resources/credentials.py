"""``/api/v1/credentials``: written, listed, deleted; no answer ever has a value."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from noetl_stream.gateway.http.bodies import RequestModel
from noetl_stream.gateway.http.parameters import Explained, InPath, Nothing, Parameters
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.ports.operations.credentials import (
    CredentialDocument,
    CredentialsDocument,
    CredentialStore,
    RotatedDocument,
)
from noetl_stream.ports.operations.verbs import address_of

routes = Routes()


class CredentialRequest(RequestModel):
    """A value: text, or an object. What is not given of the rest stays as it was."""

    value: str | dict[str, Any]
    kind: str = ""
    description: str = ""
    tags: Annotated[list[str], Field(default_factory=list, max_length=100)]


class CredentialAt(Parameters):
    name: Annotated[str, InPath(), Field(min_length=1, max_length=128)]


class CredentialChange(Explained, CredentialAt):
    """A change of one."""


@routes(*address_of(CredentialStore.list_all), "listCredentials", "author")
async def list_all(call: Call[Nothing, None]) -> CredentialsDocument:
    """List credentials by name, without their values."""
    return CredentialsDocument(await call.operations.credentials.list_all())


@routes(*address_of(CredentialStore.rotate), "rotateCredentials", "admin")
async def rotate(call: Call[Explained, None]) -> RotatedDocument:
    """Encrypt what is under an older key with the current one."""
    return await call.operations.credentials.rotate(call.caller.principal, call.parameters.reason)


@routes(*address_of(CredentialStore.get), "getCredential", "author")
async def get(call: Call[CredentialAt, None]) -> CredentialDocument:
    """Get a credential without its value."""
    return await call.operations.credentials.get(call.parameters.name)


@routes(*address_of(CredentialStore.put), "putCredential", "admin")
async def put(call: Call[CredentialChange, CredentialRequest]) -> CredentialDocument:
    """Store a credential, or its next version."""
    name, by = call.parameters.name, call.caller.principal
    return await call.operations.credentials.put(name, by=by, **dict(call.body), reason=call.parameters.reason)


@routes(*address_of(CredentialStore.delete), "deleteCredential", "admin")
async def delete(call: Call[CredentialChange, None]) -> None:
    """Delete a credential."""
    at = call.parameters
    await call.operations.credentials.delete(at.name, call.caller.principal, at.reason)
