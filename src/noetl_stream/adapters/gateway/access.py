"""API tokens and the audit, asked of a gateway."""

from __future__ import annotations

from noetl_stream.adapters.gateway.connection import GatewayConnection
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.envelope import iso
from noetl_stream.ports.operations.access import (
    ApiTokenDocument,
    ApiTokensDocument,
    AuditPage,
    NewApiTokenDocument,
    NewToken,
)


class GatewayAccess:
    """:class:`~noetl_stream.ports.operations.access.Access`."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def create_token(self, new: NewToken, by: str) -> NewApiTokenDocument:
        """Raises, beside the port's: OutcomeUnknown: it was made, and its secret was lost with the connection."""
        expires = None if new.expires_ms is None else iso(new.expires_ms)
        body = {"name": new.name, "role": new.role, "paths": list(new.paths), "expires": expires}
        made = await self._connection.post(NewApiTokenDocument, "tokens", body=body)
        if not made.secret:
            hint = f"revoke it, and make another: `noetl-stream token revoke {made.id}`"
            raise OutcomeUnknown(f"the token {new.name} was made, and its secret was lost on the way", hint=hint)
        return made

    async def tokens(self) -> list[ApiTokenDocument]:
        return (await self._connection.get(ApiTokensDocument, "tokens")).items

    async def revoke_token(self, token_id: str, by: str) -> None:
        await self._connection.delete("tokens", token_id)

    async def audit(self, limit: int, cursor: str | None, principal: str | None = None) -> AuditPage:
        query = [] if principal is None else [("principal", principal)]
        return await self._connection.page(AuditPage, "audit", limit=limit, cursor=cursor, query=query)
