"""Verbs asked of a gateway at the address they carry (:mod:`noetl_stream.ports.operations.verbs`)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.ports.operations.documents import Document
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.verbs import API, is_verb, verb_of

Item = TypeVar("Item")

_NOT_SENT: Final = frozenset({"self", "by"})
"""The token names who acts."""


class _Items(Document, Generic[Item], frozen=True):
    items: list[Item]


class GatewayVerbs:
    """Base of a gateway's ports: a subclass has all verbs of its port that have an address, and those it defines."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    def __init_subclass__(cls, port: type) -> None:
        for name, verb in vars(port).items():
            if is_verb(verb) and name not in vars(cls):
                setattr(cls, name, _asked(verb))


def _asked(verb: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    record, signature = verb_of(verb), inspect.signature(verb)
    answer = get_type_hints(verb)["return"]
    is_list = get_origin(answer) is list
    kind: Any = _Items[get_args(answer)] if is_list else answer  # type: ignore[misc]
    template = record.path.removeprefix(API + "/").split("/")

    async def ask(self: GatewayVerbs, *args: Any, **options: Any) -> Any:
        bound = signature.bind(self, *args, **options)
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name not in _NOT_SENT and value is not None}
        reason, ids = given.pop("reason", ""), given.pop("ids", None)
        headers = reason_headers(reason)
        parts = tuple(str(given.pop(part[1:-1])) if part.startswith("{") else part for part in template)
        answered = await self._connection.ask(
            _request(self._connection, record.method, parts, given, headers, ids), kind
        )
        return answered.items if is_list else answered

    return ask


def reason_headers(reason: str) -> dict[str, str]:
    """The header that says why."""
    return {"X-Reason": quote(reason)} if reason else {}


def _request(
    connection: GatewayConnection,
    method: str,
    parts: tuple[str, ...],
    given: Mapping[str, Any],
    headers: Mapping[str, str],
    ids: RequestIds | None,
) -> GatewayRequest:
    key = (ids.request_id if ids is not None else connection.new_key()) if method in ("POST", "PATCH") else None
    if method in ("GET", "DELETE"):
        return GatewayRequest(method, parts, [(name, str(value)) for name, value in given.items()], headers=headers)
    return GatewayRequest(method, parts, body=given or None, headers=headers, key=key)
