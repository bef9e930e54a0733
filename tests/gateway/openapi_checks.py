"""Calls a gateway by its OpenAPI document, and checks its answers against the document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import ClientResponse, ClientSession
from jsonschema import Draft202012Validator
from yarl import URL

_DOCUMENT: dict[str, Any] = {}


class Answered(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: Any


class Described:
    """A gateway, known only by its OpenAPI document. ``called`` collects operation ids with their statuses."""

    def __init__(self, client: ClientSession, document: dict[str, Any]) -> None:
        self.client = client
        self.document = document
        self.operations: dict[str, tuple[str, str, dict[str, Any]]] = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        }
        self.called: dict[str, set[int]] = {}

    @classmethod
    async def read(cls, client: ClientSession) -> Described:
        """The gateway that this client calls. Each of this process says the same of itself, so one of them is asked."""
        if not _DOCUMENT:
            async with client.get("/openapi.json") as response:
                assert response.status == 200
                _DOCUMENT.update(await response.json())
        return cls(client, _DOCUMENT)

    async def call(
        self,
        operation_id: str,
        *,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        body: Any = None,
        media: str = "application/json",
        **path: str,
    ) -> Answered:
        """Calls an operation. Returns the answer, checked against its schema.

        Args:
            body: A document, or text or bytes for another ``media``.
        """
        method, template, operation = self.operations[operation_id]
        address = template.format(**{name: value.replace("/", "%2F") for name, value in path.items()})
        given = dict(headers or {})
        data = None
        if body is not None:
            given.setdefault("Content-Type", media)
            text = body if isinstance(body, str | bytes) else json.dumps(body)
            data = text.encode() if isinstance(text, str) else text
        url = URL(address, encoded=True).with_query(query or {})
        async with self.client.request(method, url, data=data, headers=given) as response:
            answered = await self._checked(operation, response)
        self.called.setdefault(operation_id, set()).add(answered.status)
        return answered

    async def _checked(self, operation: dict[str, Any], response: ClientResponse) -> Answered:
        text = await response.text()
        described = operation["responses"].get(str(response.status))
        assert described is not None, (operation["operationId"], response.status, text)
        content = described.get("content", {})
        if not content:
            assert text == "", (operation["operationId"], text)
            return Answered(response.status, response.headers, None)
        schema = content[response.content_type]["schema"]
        is_json = response.content_type.endswith("json")
        body = json.loads(text) if is_json else text
        if is_json:
            found = [str(error) for error in self._validator(schema).iter_errors(body)]
            assert found == [], (operation["operationId"], body)
        return Answered(response.status, response.headers, body)

    def _validator(self, schema: dict[str, Any]) -> Draft202012Validator:
        return Draft202012Validator({**schema, "components": self.document["components"]})
