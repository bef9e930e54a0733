"""``/api/v1/tokens`` and ``/api/v1/audit``: who may, and who did."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from noetl_stream.gateway.http.bodies import RequestModel, json_body
from noetl_stream.gateway.http.parameters import InPath, Moment, Nothing, Paged, Parameters
from noetl_stream.gateway.http.routes import API, Answer, AnyRoute, Call, Reply, Route
from noetl_stream.model.roles import Role
from noetl_stream.ports.operations.access import ApiTokensDocument, AuditPage, NewApiTokenDocument, NewToken

TOKENS: Final = f"{API}/tokens"
AUDIT: Final = f"{API}/audit"


class ApiTokenRequest(RequestModel):
    """Without `paths`, all playbooks; without `expires`, until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role
    paths: Annotated[list[str], Field(default_factory=list, max_length=100)]
    expires: Moment | None = None


class TokenAt(Parameters):
    token_id: Annotated[str, InPath(), Field(min_length=1, max_length=64)]


class AuditOf(Paged):
    principal: Annotated[str | None, Field(max_length=256, description="Only what this principal did.")] = None


async def create(call: Call[Nothing, ApiTokenRequest]) -> Reply:
    given = call.body
    expires_ms = None if given.expires is None else int(given.expires.timestamp() * 1000)
    new = NewToken(given.name, given.role, tuple(given.paths), expires_ms)
    made = await call.operations.access.create_token(new, call.caller.principal)
    return Reply(made, 201, {"Location": f"{TOKENS}/{made.id}"})


async def list_all(call: Call[Nothing, None]) -> Reply:
    return Reply(ApiTokensDocument(await call.operations.access.tokens()))


async def revoke(call: Call[TokenAt, None]) -> Reply:
    await call.operations.access.revoke_token(call.parameters.token_id, call.caller.principal)
    return Reply(None, 204)


async def audit(call: Call[AuditOf, None]) -> Reply:
    at = call.parameters
    return call.page(await call.operations.access.audit(at.limit, at.cursor, at.principal))


ACCESS_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "POST",
        TOKENS,
        "createToken",
        "Make an API token",
        role="admin",
        handler=create,
        answers={201: Answer("It, with its secret", NewApiTokenDocument, ("Location",))},
        parameters=Nothing,
        body=json_body(ApiTokenRequest),
        refuses=("conflict",),
        unkept=("secret",),
    ),
    Route(
        "GET",
        TOKENS,
        "listTokens",
        "What may be shown of all tokens",
        role="admin",
        handler=list_all,
        answers={200: Answer("In the order they were made", ApiTokensDocument)},
    ),
    Route(
        "DELETE",
        TOKENS + "/{token_id}",
        "revokeToken",
        "Revoke a token, within two seconds on every gateway",
        role="admin",
        handler=revoke,
        answers={204: Answer("It holds no longer")},
        parameters=TokenAt,
    ),
    Route(
        "GET",
        AUDIT,
        "listAudit",
        "Calls that changed something, and calls that were refused, newest first",
        role="admin",
        handler=audit,
        answers={200: Answer("A page of them", AuditPage, ("Link",))},
        parameters=AuditOf,
    ),
)
