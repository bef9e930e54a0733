"""Verbs on a gateway that are not one request to the address in their record; :mod:`.executions` has its own."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.adapters.gateway_client.executions import headers_of
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs, texts_of, values_of
from noetl_stream.concurrency import closing
from noetl_stream.errors import OutcomeUnknown
from noetl_stream.model.envelope import iso
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.operations.access import NewApiTokenDocument, NewToken, SignInCodeDocument
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.selections import BulkDocument, BulkOrder, Selections
from noetl_stream.ports.operations.starters import DeliveredDocument
from noetl_stream.trigger.signatures import WebhookDelivery


class GatewaySelections(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.selections.Selections`."""

    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        body: dict[str, Any] = {"dry_run": wanted.dry_run}
        if wanted.ids is not None:
            body["ids"] = list(wanted.ids)
        else:
            body |= {"limit": wanted.limit} | ({} if wanted.cursor is None else {"cursor": wanted.cursor})
            for one, value in values_of(Selections.histogram, {"chosen": wanted.chosen}):
                texts = texts_of(one, value)
                body[one.name] = texts if one.kind == "labels" or one.name == "status" else texts[0]
        if wanted.verb in ("retry", "rerun"):
            options = wanted.options
            body |= {"ctx": dict(options.ctx), "args": None if options.args is None else dict(options.args)}
            body |= {"step": options.step} if wanted.verb == "rerun" else {}
            body |= {} if options.priority is None else {"priority": options.priority}
        key = None if ids is None else ids.request_id
        at, headers = ("bulk", wanted.verb), headers_of(wanted.options)
        return await self._connection.post(BulkDocument, *at, body=body, key=key, headers=headers)


class GatewayAccess(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.access.Access`."""

    async def create_token(self, new: NewToken, by: str, seed: bytes = b"") -> NewApiTokenDocument:
        """Also raises OutcomeUnknown: it was created, but its secret was lost with the connection."""
        expires = iso(new.expires_ms) if isinstance(new.expires_ms, int) else new.expires_ms
        body = {"name": new.name, "role": new.role, "paths": list(new.paths), "expires": expires}
        made = await self._connection.post(NewApiTokenDocument, "tokens", body=body)
        if not made.secret:
            hint = f"revoke it, and create another: `noetl-stream token revoke {made.id}`"
            raise OutcomeUnknown(f"token {new.name} was created, but its secret was lost on the way", hint=hint)
        return made


class GatewayTriggers(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.starters.Triggers`."""

    async def deliver(self, path: str, delivery: WebhookDelivery, ids: RequestIds) -> DeliveredDocument:
        """Is not repeated: only the sender knows whether the delivery may be repeated."""
        media = delivery.headers.get("content-type", "application/octet-stream")
        headers = {name: text for name, text in delivery.headers.items() if name != "content-type"}
        asked = GatewayRequest(
            "POST", ("hooks", path), parse_qsl(delivery.query), delivery.body, media, headers=headers
        )
        return await self._connection.ask(asked, DeliveredDocument)


async def sign_in_link(url: str, token: str | None, clock: Clock) -> str:
    """A link to the gateway at ``url`` that signs one browser in with the rights of the token, once.

    Its code is in the fragment, which browsers do not send.

    Raises:
        NoetlError: as for :meth:`~noetl_stream.adapters.gateway_client.connection.GatewayConnection.ask`.
    """
    async with closing(GatewayConnection(url, token, clock)) as connection:
        made = await connection.ask(GatewayRequest("POST", ("session", "codes")), SignInCodeDocument)
    return f"{connection.url}/#code={made.code}"
