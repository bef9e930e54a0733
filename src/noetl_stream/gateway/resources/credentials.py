"""``/api/v1/credentials``: written, listed, deleted; no answer ever has a value."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from noetl_stream.gateway.http.bodies import RequestModel
from noetl_stream.gateway.http.parameters import Explained, InPath, Parameters
from noetl_stream.gateway.http.routes import Call, Routes
from noetl_stream.gateway.http.verbs import route_of, routes_of
from noetl_stream.ports.operations.credentials import (
    CredentialDocument,
    CredentialStore,
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


routes += (
    route_of("credentials", one) for one in (CredentialStore.list_all, CredentialStore.rotate, CredentialStore.get)
)


@routes(*address_of(CredentialStore.put), "putCredential", "admin")
async def put(call: Call[CredentialChange, CredentialRequest]) -> CredentialDocument:
    """Store a credential, or its next version."""
    name, by = call.parameters.name, call.caller.principal
    return await call.operations.credentials.put(name, by=by, **dict(call.body), reason=call.parameters.reason)


routes += routes_of("credentials", routes)
