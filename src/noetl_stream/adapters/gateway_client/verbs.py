"""Verbs on a gateway, by the address in their record (:mod:`noetl_stream.ports.operations.verbs`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, Generic, TypeVar, cast, get_args, get_origin, get_type_hints
from urllib.parse import quote

from noetl_stream.adapters.gateway_client.connection import JSON, GatewayConnection, GatewayRequest
from noetl_stream.model.envelope import iso
from noetl_stream.ports.operations import Operations, port_of
from noetl_stream.ports.operations.verbs import API, Document, Verb, VerbParameter, Verbs, parameters_of

Item = TypeVar("Item")

OWN: Final[Mapping[str, str]] = {
    "access": "own_verbs:GatewayAccess",
    "executions": "executions:GatewayExecutions",
    "feed": "feed:GatewayFeed",
    "selections": "own_verbs:GatewaySelections",
    "triggers": "own_verbs:GatewayTriggers",
}
"""The ports with hand-written verbs, by noun: a module of this package, and its class."""


class _Items(Document, Generic[Item], frozen=True):
    items: list[Item]


class GatewayVerbs(Verbs):
    """A port whose verbs are requests to a gateway. Subclasses have the verbs that are not one request to one address.

    The token names the actor: ``by`` is not sent. The gateway generates ids of its own for ``ids``, the same each time.
    """

    def __init__(self, port: type, connection: GatewayConnection) -> None:
        super().__init__(port)
        self._connection = connection

    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        asked, given = getattr(self._port, verb.name), verb.arguments(args, options)
        answer = get_type_hints(asked)["return"]
        is_list = get_origin(answer) is list
        kind: Any = _Items[get_args(answer)] if is_list else answer  # type: ignore[misc]
        answered = await self._connection.ask(self._request(verb, asked, given), kind)
        return answered.items if is_list else answered

    def _request(self, verb: Verb, asked: Callable[..., Any], given: Mapping[str, Any]) -> GatewayRequest:
        template = verb.path.removeprefix(API + "/").split("/")
        parts = tuple(str(given[part[1:-1]]) if part.startswith("{") else part for part in template)
        values, ids = list(values_of(asked, given)), given.get("ids")
        sent = {one.name: iso(value) if one.kind == "moment" else value for one, value in values if one.place == "body"}
        body, media = (given["source"], f"application/{verb.sends}") if "source" in given else (sent or None, JSON)
        key = None
        if verb.method in ("POST", "PATCH"):
            key = self._connection.new_key() if ids is None else ids.request_id
        query = [(one.name, text) for one, value in values if one.place == "query" for text in texts_of(one, value)]
        headers = {"X-Reason": quote(given["reason"])} if given.get("reason") else {}
        return GatewayRequest(verb.method, parts, query, body=body, media=media, headers=headers, key=key)


def values_of(asked: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[tuple[VerbParameter, Any]]:
    """The parameters in the ``given`` arguments, without those at their defaults."""
    for one in parameters_of(asked):
        value = given.get(one.argument)
        if one.struct is not None and value is not None:
            value = getattr(value, one.field)
        if value is not None and (value or value != one.default):
            yield one, value


def texts_of(parameter: VerbParameter, value: Any) -> list[str]:
    """The texts of a value in a query, one for each repetition."""
    if parameter.kind == "moment":
        return [iso(value)]
    if parameter.kind == "duration":
        return [f"{value:.3f}s"]
    if parameter.kind == "labels":
        return [f"{name}={text}" for name, text in value.items()]
    if parameter.kind == "iteration":
        return [".".join(map(str, value))] if value else []
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [str(value)] if isinstance(value, str | int) else [str(one) for one in value]


class GatewayOperations:
    """The operations on a gateway. A part is imported on first use."""

    def __init__(self, connection: GatewayConnection) -> None:
        self._connection = connection

    def __getattr__(self, noun: str) -> Any:
        kind: Any = GatewayVerbs
        if noun in OWN:
            module, name = OWN[noun].split(":")
            kind = getattr(import_module(f"noetl_stream.adapters.gateway_client.{module}"), name)
        found = kind(port_of(noun), self._connection)
        setattr(self, noun, found)
        return found


def gateway_operations(connection: GatewayConnection) -> Operations:
    return cast(Operations, GatewayOperations(connection))
