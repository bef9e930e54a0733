"""``/api/v1/session`` and ``/api/v1/me``: browser sessions and the rights of a caller; ``/api/v1/tokens`` and
``/api/v1/audit``: access and its use.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from noetl_stream.errors import Forbidden
from noetl_stream.gateway.access.authentication import SESSION_MS, session_cookie
from noetl_stream.gateway.http.inputs import Moment, Nothing, RequestModel
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes, routes_of
from noetl_stream.model.envelope import Time, iso, iso_or_none
from noetl_stream.model.rights import Role, includes_role
from noetl_stream.ports.operations.access import NewApiTokenDocument, NewToken, SignInCodeDocument
from noetl_stream.ports.operations.verbs import API, Document
from noetl_stream.ports.stores.identities import Caller

SESSION: Final = f"{API}/session"


class SessionDocument(Document, frozen=True):
    """``csrf_token`` goes into ``X-CSRF-Token`` of whatever the session changes."""

    csrf_token: str
    expires: Time


class CallerDocument(Document, frozen=True):
    """``paths``: the playbooks it may see, with all below them; empty: all. ``operations``: those its role allows.
    ``expires``: when its browser session or API token ends; null if it has no end that the gateway knows.
    """

    principal: str
    role: Role
    paths: list[str]
    operations: list[str]
    expires: Time | None


class SignInRequest(RequestModel):
    """`code` is the fragment of the link that `noetl-stream sign-in` and `noetl-stream dev` print."""

    code: Annotated[str, Field(min_length=1, max_length=128)]


CODE: Final = {201: Answer("The code", SignInCodeDocument)}
SIGNED_IN: Final = {201: Answer("The session; its cookie is set", SessionDocument)}
SIGNED_OUT: Final = {204: Answer("No content")}

routes = Routes()


@routes("POST", f"{SESSION}/codes", "createSignInCode", "viewer", CODE, unkept=("code",))
async def create_code(call: Call[Nothing, None]) -> Reply:
    """Create a code that signs a browser in with the rights of this token."""
    kind, _, token_id = call.caller.id.partition(":")
    if kind != "token" or call.caller.session:
        raise Forbidden("only an API token can sign a browser in", hint="call this with an API token")
    made = await call.sign_ins.create_code(token_id)
    return Reply(SignInCodeDocument(iso(made.expires_ms), made.code), 201)


@routes("POST", SESSION, "signIn", None, SIGNED_IN, refuses=("unauthenticated", "forbidden", "too-busy"))
async def sign_in(call: Call[Nothing, SignInRequest]) -> Reply:
    """Exchange a code for a browser session.

    The session is a cookie that scripts cannot read. It ends after 12 hours, with its token, or with `signOut`.
    """
    new = await call.sign_ins.sign_in(call.body.code)
    cookie = session_cookie(call.host, new.cookie, SESSION_MS // 1000)
    return Reply(SessionDocument(new.csrf_token, iso(new.expires_ms)), 201, {"Set-Cookie": cookie})


@routes("DELETE", SESSION, "signOut", "viewer", SIGNED_OUT)
async def sign_out(call: Call[Nothing, None]) -> Reply:
    """End the browser session. With a token this does nothing: revoke it instead."""
    await call.sign_ins.sign_out(call.caller.session)
    return Reply(None, 204, {"Set-Cookie": session_cookie(call.host, "", 0)})


def caller_document(caller: Caller, description: dict[str, Any]) -> CallerDocument:
    """The identity and rights of a caller.

    Args:
        description: The OpenAPI document, which has the lowest role of each operation.
    """
    operations = (operation for methods in description["paths"].values() for operation in methods.values())
    allowed = [one["operationId"] for one in operations if includes_role(caller.role, one.get("x-role", "viewer"))]
    expires = iso_or_none(caller.expires_ms)
    return CallerDocument(caller.principal, caller.role, list(caller.paths), sorted(allowed), expires)


TOKENS: Final = f"{API}/tokens"
MADE: Final = {201: Answer("The token, with its secret", NewApiTokenDocument, ("Location",))}

token_routes = Routes()


class ApiTokenRequest(RequestModel):
    """Without `paths`, all playbooks; without `expires`, for 90 days; `never`: until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    role: Role
    paths: Annotated[list[str], Field(default_factory=list, max_length=100)]
    expires: Moment | Literal["never"] | None = None


@token_routes("POST", TOKENS, "createToken", "admin", MADE, refuses=("conflict",), unkept=("secret",))
async def create(call: Call[Nothing, ApiTokenRequest]) -> Reply:
    """Create an API token."""
    given = call.body
    expires_ms = int(given.expires.timestamp() * 1000) if isinstance(given.expires, datetime) else given.expires
    new = NewToken(given.name, given.role, tuple(given.paths), expires_ms)
    made = await call.operations.access.create_token(new, call.caller.principal, call.ids.seed)
    return Reply(made, 201, {"Location": f"{TOKENS}/{made.id}"})


token_routes += routes_of("access", token_routes)
