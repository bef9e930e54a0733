"""API tokens and the audit, asked of a gateway."""

from __future__ import annotations

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.envelope import iso
from noetl_stream.ports.operations.access import Access, NewApiTokenDocument, NewToken


class GatewayAccess(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.access.Access`."""

    def __init__(self, connection: GatewayConnection) -> None:
        super().__init__(Access, connection)

    async def create_token(self, new: NewToken, by: str, seed: bytes = b"") -> NewApiTokenDocument:
        """Raises, beside the port's: OutcomeUnknown: it was created, and its secret was lost with the connection."""
        expires = iso(new.expires_ms) if isinstance(new.expires_ms, int) else new.expires_ms
        body = {"name": new.name, "role": new.role, "paths": list(new.paths), "expires": expires}
        made = await self._connection.post(NewApiTokenDocument, "tokens", body=body)
        if not made.secret:
            hint = f"revoke it, and create another: `noetl-stream token revoke {made.id}`"
            raise OutcomeUnknown(f"token {new.name} was created, but its secret was lost on the way", hint=hint)
        return made
