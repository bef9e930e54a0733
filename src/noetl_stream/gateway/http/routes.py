"""A route: the router, the OpenAPI document, the roles and the documentation are made from it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, get_args, get_type_hints

import msgspec
from yarl import URL

from noetl_stream.errors import Forbidden
from noetl_stream.gateway.access.sessions import SignIns
from noetl_stream.gateway.http.bodies import NOTHING, Body, json_body
from noetl_stream.gateway.http.parameters import Parameters
from noetl_stream.mcp.tools import Door
from noetl_stream.model.rights import Role, includes_role
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.verbs import API, DocumentPage, Method
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import AgentAccess

Given = TypeVar("Given", bound=Parameters)
Sent = TypeVar("Sent")

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Call(Generic[Given, Sent]):
    """A request, read and validated.

    Attributes:
        operations: The operations that the caller may use.
        ids: The ids for what the call creates, the same for each repetition with one Idempotency-Key.
        address: Of the request, relative.
        host: The host and port by which the request addresses this gateway.
        ending: Set when the caller has disconnected or the gateway stops: waits end early.
        door: The admission of tool calls within this call.
        agents: The settings of tools.
        traceparent: The gateway's own span, as W3C Trace Context; empty if it records none.
        headers: Of the request; names are lower-case, and of a repeated one the last counts.
    """

    operations: Operations
    sign_ins: SignIns
    caller: Caller
    parameters: Given
    body: Sent
    ids: RequestIds
    address: URL
    host: str
    ending: asyncio.Event
    door: Door
    agents: AgentAccess
    traceparent: str
    headers: Mapping[str, str]

    def require(self, role: Role, what: str) -> None:
        """Raises :class:`~noetl_stream.errors.Forbidden` unless the caller has at least this role."""
        if not includes_role(self.caller.role, role):
            raise Forbidden(
                f"{self.caller.principal} has the role {self.caller.role} and may not {what}",
                hint=f"this needs the role {role} or a higher one",
            )

    def link_to(self, **parameter: str | int | None) -> dict[str, str]:
        """The header that links to the same address with another parameter; none for ``None``."""
        changed = {name: value for name, value in parameter.items() if value is not None}
        return {"Link": f'<{self.address.update_query(changed)}>; rel="next"'} if changed else {}


class Reply(NamedTuple):
    """An answer with a status, headers or media of its own.

    Attributes:
        body: A document or an object (as JSON), bytes, or a stream of them; ``None`` for an answer without a body.
    """

    body: msgspec.Struct | Mapping[str, Any] | bytes | AsyncIterator[bytes] | None
    status: int = 200
    headers: Mapping[str, str] = {}
    media: str = JSON


Returned: TypeAlias = Reply | msgspec.Struct | None
Handler: TypeAlias = Callable[[Call[Given, Sent]], Awaitable[Returned]]


class Answer(NamedTuple):
    """A success as the OpenAPI document shows it.

    Attributes:
        document: The document in a JSON body; ``None`` for none, or with another ``media`` type.
        headers: The names of its headers (:data:`noetl_stream.gateway.http.openapi.HEADERS`).
        also: Other media types that a caller may ask for, as text.
    """

    meaning: str
    document: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    media: str = JSON
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route(Generic[Given, Sent]):
    """Attributes:
    path: With its parameters in braces; a slash within one is written ``%2F``.
    operation: The ``operationId``.
    role: The lowest role that may call it; ``None``: anybody, without a token.
    refuses: Its problems in addition to those of every route, by name.
    adds_work: Whether it makes more for servers to fold: each caller gets little of it while they are far behind.
    reads: Whether it changes nothing although it is not a GET.
    heavy: Whether its answer may be long or take much processor time: a caller gets few at a time.
    streams: Whether its answer has no end: it is counted as a stream, not as a request under way.
    unkept: Keys of the answer that are not stored for its Idempotency-Key, since they are secret.
    anywhere: Whether it answers under any host name and behind any proxy, for probes.
    uncounted: Whether it answers even when there are too many requests, for monitoring.
    by_programs: Whether other systems call it, without a token or page; the rest of the address is then its last
        parameter, slashes included.
    """

    method: Method
    path: str
    operation: str
    role: Role | None
    summary: str
    description: str
    handler: Handler[Given, Sent]
    answers: Mapping[int, Answer]
    parameters: type[Given]
    body: Body[Sent]
    refuses: tuple[str, ...] = ()
    adds_work: bool = False
    reads: bool = False
    heavy: bool = False
    streams: bool = False
    unkept: tuple[str, ...] = ()
    anywhere: bool = False
    uncounted: bool = False
    by_programs: bool = False

    @property
    def pattern(self) -> str:
        """The path in the syntax of the router."""
        return f"{self.path[:-1]}:.+}}" if self.by_programs else self.path

    @property
    def checks(self) -> bool:
        """Whether it checks a playbook, which takes much processor time."""
        return self.body.size == "playbook"

    @property
    def tag(self) -> str:
        return self.path.removeprefix(API).removeprefix("/api").split("/")[1].removesuffix(".json")

    @property
    def changes(self) -> bool:
        return self.method != "GET" and not self.reads

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key makes it safe to repeat. Keys belong to callers, so a public route takes none;
        what they store grows with changes only.
        """
        return self.method in ("POST", "PATCH") and self.role is not None and not self.reads

    async def reply(self, call: Call[Given, Sent]) -> Reply:
        """Converts the handler's answer: a page has a link to the next one, ``None`` is 204."""
        returned = await self.handler(call)
        if isinstance(returned, Reply):
            return returned
        if isinstance(returned, DocumentPage):
            return Reply(returned, headers=call.link_to(cursor=returned.next))
        return Reply(returned, 204 if returned is None else 200)


AnyRoute: TypeAlias = Route[Any, Any]


class Routes(list[AnyRoute]):
    """The routes of a module, in the order of their handlers.

    A handler is the source of its route: the annotation of ``call`` has the types of parameters and body, the docstring
    is summary and description, the returned document is the answer.
    """

    def __call__(
        self,
        method: Method,
        path: str,
        operation: str,
        role: Role | None,
        answers: Mapping[int, Answer] | None = None,
        body: Body[Any] | None = None,
        **more: Any,
    ) -> Callable[[Handler[Given, Sent]], Handler[Given, Sent]]:
        """Serves a handler.

        Args:
            answers: Required for a handler that returns a :class:`Reply`.
            body: The body, if it is not a JSON object of the model in the annotation of the call.
            more: Other fields of :class:`Route`.
        """

        def served(handler: Handler[Given, Sent]) -> Handler[Given, Sent]:
            hints = get_type_hints(handler)
            given, sent = get_args(hints["call"])
            summary, _, description = (inspect.getdoc(handler) or "").partition("\n\n")
            self.append(
                Route(
                    method=method,
                    path=path,
                    operation=operation,
                    role=role,
                    summary=summary.removesuffix("."),
                    description=" ".join(description.split()),
                    handler=handler,
                    answers=answers or _answers(hints["return"]),
                    parameters=given,
                    body=body or (NOTHING if sent is type(None) else json_body(sent)),
                    **more,
                )
            )
            return handler

        return served


def _answers(returned: type[msgspec.Struct | None]) -> dict[int, Answer]:
    if not issubclass(returned, msgspec.Struct):
        return {204: Answer("No content")}
    return {200: Answer("OK", returned, ("Link",) if issubclass(returned, DocumentPage) else ())}
