"""``/api/v1/tokens`` and ``/api/v1/audit``: who has access, and who used it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from noetl_stream.gateway.http.bodies import RequestModel
from noetl_stream.gateway.http.parameters import Explained, InPath, Moment, Nothing, Paged
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.model.roles import Role
from noetl_stream.ports.operations.access import Access, ApiTokensDocument, AuditPage, NewApiTokenDocument, NewToken
from noetl_stream.ports.operations.verbs import API, address_of

TOKENS: Final = f"{API}/tokens"
MADE: Final = {201: Answer("The token, with its secret", NewApiTokenDocument, ("Location",))}

routes = Routes()


class ApiTokenRequest(RequestModel):
    """Without `paths`, all playbooks; without `expires`, until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role
    paths: Annotated[list[str], Field(default_factory=list, max_length=100)]
    expires: Moment | None = None


class TokenAt(Explained):
    token_id: Annotated[str, InPath(), Field(min_length=1, max_length=64)]


class AuditOf(Paged):
    principal: Annotated[str | None, Field(max_length=256, description="Only what this principal did.")] = None
    operation: Annotated[str | None, Field(max_length=64, description="Only calls of this operation.")] = None
    target: Annotated[str | None, Field(max_length=256, description="Only what was done to this.")] = None
    refused: Annotated[bool | None, Field(description="Only what was refused, or only what was not.")] = None


@routes("POST", TOKENS, "createToken", "admin", MADE, refuses=("conflict",), unkept=("secret",))
async def create(call: Call[Nothing, ApiTokenRequest]) -> Reply:
    """Create an API token."""
    given = call.body
    expires_ms = None if given.expires is None else int(given.expires.timestamp() * 1000)
    new = NewToken(given.name, given.role, tuple(given.paths), expires_ms)
    made = await call.operations.access.create_token(new, call.caller.principal, call.ids.seed)
    return Reply(made, 201, {"Location": f"{TOKENS}/{made.id}"})


@routes(*address_of(Access.tokens), "listTokens", "admin")
async def list_all(call: Call[Nothing, None]) -> ApiTokensDocument:
    """List tokens in the order they were created, without their secrets."""
    return ApiTokensDocument(await call.operations.access.tokens())


@routes(*address_of(Access.revoke_token), "revokeToken", "admin")
async def revoke(call: Call[TokenAt, None]) -> None:
    """Revoke a token, within two seconds on every gateway."""
    at = call.parameters
    await call.operations.access.revoke_token(at.token_id, call.caller.principal, at.reason)


@routes(*address_of(Access.audit), "listAudit", "admin")
async def audit(call: Call[AuditOf, None]) -> AuditPage:
    """List calls that changed something, and calls that were refused, newest first."""
    at = call.parameters
    return await call.operations.access.audit(
        at.limit, at.cursor, at.principal, operation=at.operation, target=at.target, refused=at.refused
    )
