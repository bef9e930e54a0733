"""Idempotency keys in the table ``noetl.idempotency``."""

from __future__ import annotations

from noetl_stream.adapters.postgres.database import Database
from noetl_stream.model import codec
from noetl_stream.ports.idempotency import ClaimedKey, KeptAnswer
from noetl_stream.ports.operations.executions import RequestIds

TENANT = ""
"""There is one, so far."""


class PostgresIdempotency:
    """:class:`~noetl_stream.ports.idempotency.Idempotency`, where each method is described."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, key: str, caller: str, content_hash: bytes, ids: RequestIds) -> ClaimedKey:
        while True:
            # One that another call is just claiming is not seen by this statement: it is by the next.
            rows = await self._database.fetch(
                "claim_key",
                tenant=TENANT,
                key=key,
                caller=caller,
                content_hash=content_hash,
                execution_id=ids.execution_id,
                request_id=ids.request_id,
            )
            if rows:
                kept_hash, execution_id, request_id, status, headers, body = rows[0]
                answer = None if status is None else KeptAnswer(status, codec.decode_json(headers), body)
                return ClaimedKey(kept_hash, RequestIds(execution_id, request_id), answer)

    async def finish(self, key: str, caller: str, answer: KeptAnswer) -> KeptAnswer:
        rows = await self._database.fetch(
            "finish_key",
            tenant=TENANT,
            key=key,
            caller=caller,
            status=answer.status,
            headers=codec.encode(answer.headers),
            body=answer.body,
        )
        if not rows:  # the claim is so old that it was forgotten
            return answer
        status, headers, body = rows[0]
        return KeptAnswer(status, codec.decode_json(headers), body)

    async def forget(self, older_than_s: float) -> int:
        return int((await self._database.fetch("forget_keys", older_than_s=older_than_s))[0][0])
