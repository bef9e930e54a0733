"""``/api/v1/credentials``: written, listed, deleted; no answer ever has a value."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from noetl_stream.gateway.http.bodies import RequestModel, json_body
from noetl_stream.gateway.http.parameters import InPath, Nothing, Parameters
from noetl_stream.gateway.http.routes import API, Answer, AnyRoute, Call, Reply, Route
from noetl_stream.ports.operations.credentials import CredentialDocument, CredentialsDocument, RotatedDocument

CREDENTIALS: Final = f"{API}/credentials"
ONE: Final = CREDENTIALS + "/{name}"


class CredentialRequest(RequestModel):
    """A value: text, or an object. What is not given of the rest stays as it was."""

    value: str | dict[str, Any]
    kind: str = ""
    description: str = ""
    tags: Annotated[list[str], Field(default_factory=list)]


class CredentialAt(Parameters):
    name: Annotated[str, InPath(), Field(min_length=1, max_length=128)]


async def put(call: Call[CredentialAt, CredentialRequest]) -> Reply:
    given = call.body
    return Reply(
        await call.operations.credentials.put(
            call.parameters.name, given.value, call.caller.principal, given.kind, given.description, given.tags
        )
    )


async def list_all(call: Call[Nothing, None]) -> Reply:
    return Reply(CredentialsDocument(await call.operations.credentials.list_all()))


async def get(call: Call[CredentialAt, None]) -> Reply:
    return Reply(await call.operations.credentials.get(call.parameters.name))


async def delete(call: Call[CredentialAt, None]) -> Reply:
    await call.operations.credentials.delete(call.parameters.name, call.caller.principal)
    return Reply(None, 204)


async def rotate(call: Call[Nothing, None]) -> Reply:
    return Reply(await call.operations.credentials.rotate(call.caller.principal))


CREDENTIAL_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "GET",
        CREDENTIALS,
        "listCredentials",
        "What may be shown of all credentials",
        role="author",
        handler=list_all,
        answers={200: Answer("By name", CredentialsDocument)},
    ),
    Route(
        "POST",
        f"{CREDENTIALS}/rotate",
        "rotateCredentials",
        "Encrypt what is under an older key with the current one",
        role="admin",
        handler=rotate,
        answers={200: Answer("What was done", RotatedDocument)},
    ),
    Route(
        "GET",
        ONE,
        "getCredential",
        "What may be shown of a credential",
        role="author",
        handler=get,
        answers={200: Answer("It", CredentialDocument)},
        parameters=CredentialAt,
    ),
    Route(
        "PUT",
        ONE,
        "putCredential",
        "Store a credential, or its next version",
        role="admin",
        handler=put,
        answers={200: Answer("What may be shown of it", CredentialDocument)},
        parameters=CredentialAt,
        body=json_body(CredentialRequest),
    ),
    Route(
        "DELETE",
        ONE,
        "deleteCredential",
        "Forget a credential",
        role="admin",
        handler=delete,
        answers={204: Answer("It is forgotten")},
        parameters=CredentialAt,
    ),
)
