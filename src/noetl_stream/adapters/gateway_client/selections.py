"""Many executions at once, asked of a gateway."""

from __future__ import annotations

from typing import Any

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.executions import headers_of
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs, texts_of, values_of
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.selections import BulkDocument, BulkOrder, Selections


class GatewaySelections(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.selections.Selections`."""

    def __init__(self, connection: GatewayConnection) -> None:
        super().__init__(Selections, connection)

    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        body: dict[str, Any] = {"dry_run": wanted.dry_run}
        if wanted.ids is not None:
            body["ids"] = list(wanted.ids)
        else:
            body |= {"limit": wanted.limit} | ({} if wanted.cursor is None else {"cursor": wanted.cursor})
            for one, value in values_of(Selections.histogram, {"chosen": wanted.chosen}):
                texts = texts_of(one, value)
                body[one.name] = texts if one.name in ("status", "label") else texts[0]
        if wanted.verb in ("retry", "rerun"):
            options = wanted.options
            body |= {"ctx": dict(options.ctx), "args": None if options.args is None else dict(options.args)}
            body |= {"step": options.step} if wanted.verb == "rerun" else {}
            body |= {} if options.priority is None else {"priority": options.priority}
        key = None if ids is None else ids.request_id
        at, headers = ("bulk", wanted.verb), headers_of(wanted.options)
        return await self._connection.post(BulkDocument, *at, body=body, key=key, headers=headers)
