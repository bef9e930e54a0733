"""Executions on a gateway."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, Literal
from urllib.parse import quote

from msgspec.structs import asdict

from noetl_stream.adapters.gateway_client.connection import ANSWER_S, JSON, GatewayRequest
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs
from noetl_stream.concurrency import begun
from noetl_stream.model.events import CtxPatched, InterventionFact
from noetl_stream.ports.operations.executions import (
    AcceptedDocument,
    ExecutionDocument,
    RequestIds,
    RerunOptions,
    Start,
)
from noetl_stream.sealing.data_references import DataReference

MERGE_PATCH: Final = "application/merge-patch+json"
_GIVEN: Final = ("path", "version", "digest", "playbook", "priority")
"""Fields that a start has only if they are set: a gateway of version 0.3 does not know priorities, labels and keys."""

MAX_WAIT_S: Final = 300.0
"""The longest time that a gateway waits for one request."""


class GatewayExecutions(GatewayVerbs):
    """:class:`~noetl_stream.ports.operations.executions.Executions`. The ``principal`` of facts is not sent."""

    async def start(self, wanted: Start, by: str, ids: RequestIds | None = None) -> ExecutionDocument:
        given = asdict(wanted)
        named = {name: given[name] for name in _GIVEN if given[name] is not None}
        named |= {name: given[name] for name in ("labels", "key", "unique") if given[name]}
        body = {**named, "workload": dict(wanted.workload), "ctx": dict(wanted.ctx)}
        key, headers = _key(ids), headers_of(wanted)
        if wanted.traceparent:
            headers["traceparent"] = wanted.traceparent
        return await self._connection.post(ExecutionDocument, "executions", body=body, key=key, headers=headers)

    async def wait(self, execution_id: str, timeout_s: float) -> ExecutionDocument:
        """Waits for at most :data:`MAX_WAIT_S`."""
        wait_s = min(timeout_s, MAX_WAIT_S)
        query = [("wait", f"{max(1, round(wait_s * 1000))}ms")]
        return await self._connection.get(ExecutionDocument, "executions", execution_id, query=query, wait_s=wait_s)

    async def file(self, execution_id: str, reference: DataReference) -> AsyncIterator[bytes]:
        query = [(name, str(getattr(reference, name))) for name in ("key", "size", "checksum", "seal", "name")]
        asked = GatewayRequest("GET", ("executions", execution_id, "file"), query)

        async def pieces() -> AsyncGenerator[bytes, None]:
            async with self._connection.stream(asked, ANSWER_S) as chunks:
                async for chunk in chunks:
                    yield chunk

        return await begun(pieces())

    async def ask(self, execution_id: str, fact: InterventionFact) -> AcceptedDocument:
        form, headers = fact.form, headers_of(fact)
        method: Literal["POST", "PATCH"] = "POST"
        body, media = {name: getattr(fact, name) for name in form.body} or None, JSON
        if isinstance(fact, CtxPatched):
            method, body, media = "PATCH", fact.patch, MERGE_PATCH if fact.merge else JSON
            if fact.expected_version is not None:
                headers["If-Match"] = f'"{fact.expected_version}"'
        parts = [getattr(fact, part[1:-1]) if part.startswith("{") else part for part in form.path.split("/")]
        key = fact.request_id or self._connection.new_key()
        at = ("executions", execution_id, *parts)
        asked = GatewayRequest(method, at, body=body, media=media, headers=headers, key=key)
        return await self._connection.ask(asked, AcceptedDocument)

    async def rerun(
        self, execution_id: str, wanted: RerunOptions, by: str, ids: RequestIds | None = None
    ) -> ExecutionDocument:
        body: dict[str, Any] = {"ctx": dict(wanted.ctx)}
        if wanted.args is not None:
            body["args"] = dict(wanted.args)
        if wanted.priority is not None:
            body["priority"] = wanted.priority
        verb = "retry"
        if wanted.undoes:
            verb, body = "compensate", {}
        elif wanted.step is not None or wanted.step_run_id is not None:
            verb = "rerun"
            body |= {"step": wanted.step, "step_run_id": wanted.step_run_id}
        at = ("executions", execution_id, verb)
        return await self._connection.post(
            ExecutionDocument, *at, body=body or None, key=_key(ids), headers=headers_of(wanted)
        )


def headers_of(request: Any) -> dict[str, str]:
    """Headers for the reason and the correlation id of a request, percent-encoded."""
    texts = {"X-Reason": request.reason, "X-Correlation-Id": request.correlation_id}
    return {header: quote(text) for header, text in texts.items() if text}


def _key(ids: RequestIds | None) -> str | None:
    return None if ids is None else ids.request_id
