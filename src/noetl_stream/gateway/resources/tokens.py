"""``/api/v1/tokens`` and ``/api/v1/audit``: who has access, and who used it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from noetl_stream.gateway.http.bodies import RequestModel
from noetl_stream.gateway.http.parameters import Moment, Nothing
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.gateway.http.verbs import routes_of
from noetl_stream.model.rights import Role
from noetl_stream.ports.operations.access import NewApiTokenDocument, NewToken
from noetl_stream.ports.operations.verbs import API

TOKENS: Final = f"{API}/tokens"
MADE: Final = {201: Answer("The token, with its secret", NewApiTokenDocument, ("Location",))}

routes = Routes()


class ApiTokenRequest(RequestModel):
    """Without `paths`, all playbooks; without `expires`, for 90 days; `never`: until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role
    paths: Annotated[list[str], Field(default_factory=list, max_length=100)]
    expires: Moment | Literal["never"] | None = None


@routes("POST", TOKENS, "createToken", "admin", MADE, refuses=("conflict",), unkept=("secret",))
async def create(call: Call[Nothing, ApiTokenRequest]) -> Reply:
    """Create an API token."""
    given = call.body
    expires_ms = int(given.expires.timestamp() * 1000) if isinstance(given.expires, datetime) else given.expires
    new = NewToken(given.name, given.role, tuple(given.paths), expires_ms)
    made = await call.operations.access.create_token(new, call.caller.principal, call.ids.seed)
    return Reply(made, 201, {"Location": f"{TOKENS}/{made.id}"})


routes += routes_of("access", routes)
