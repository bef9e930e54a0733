"""Many executions at once, asked of a gateway."""

from __future__ import annotations

from typing import Any

from noetl_stream.adapters.gateway_client.connection import GatewayConnection
from noetl_stream.adapters.gateway_client.executions import filter_query, headers_of
from noetl_stream.ports.operations.executions import ExecutionFilter, RequestIds
from noetl_stream.ports.operations.selections import (
    BulkDocument,
    BulkOrder,
    ExecutionGroupsDocument,
    ExecutionHistogramDocument,
)


class GatewaySelections:
    """:class:`~noetl_stream.ports.operations.selections.Selections`. The token names who acts: ``by`` is not sent."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    async def act(self, wanted: BulkOrder, by: str, ids: RequestIds | None = None) -> BulkDocument:
        body: dict[str, Any] = {"dry_run": wanted.dry_run}
        if wanted.ids is not None:
            body["ids"] = list(wanted.ids)
        else:
            body |= {"limit": wanted.limit} | ({} if wanted.cursor is None else {"cursor": wanted.cursor})
            for name, value in filter_query(wanted.chosen):
                if name in ("status", "label"):
                    body.setdefault(name, []).append(value)
                else:
                    body[name] = value
        if wanted.verb in ("retry", "rerun"):
            options = wanted.options
            body |= {"ctx": dict(options.ctx), "args": None if options.args is None else dict(options.args)}
            body |= {"step": options.step} if wanted.verb == "rerun" else {}
            body |= {} if options.priority is None else {"priority": options.priority}
        key = None if ids is None else ids.request_id
        at, headers = ("bulk", wanted.verb), headers_of(wanted.options)
        return await self._connection.post(BulkDocument, *at, body=body, key=key, headers=headers)

    async def histogram(self, chosen: ExecutionFilter, bars: int) -> ExecutionHistogramDocument:
        query = [("bars", str(bars)), *filter_query(chosen)]
        return await self._connection.get(ExecutionHistogramDocument, "executions", "histogram", query=query)

    async def groups(self, chosen: ExecutionFilter, key: str) -> ExecutionGroupsDocument:
        query = [("by", key), *filter_query(chosen)]
        return await self._connection.get(ExecutionGroupsDocument, "executions", "groups", query=query)
