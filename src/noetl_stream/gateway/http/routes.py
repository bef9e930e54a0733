"""What a route is: one value that the router, the OpenAPI document, the roles and the documentation are made from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec
from yarl import URL

from noetl_stream.errors import Forbidden
from noetl_stream.gateway.http.bodies import NOTHING, Body
from noetl_stream.gateway.http.parameters import Nothing, Parameters
from noetl_stream.model.roles import Role, suffices
from noetl_stream.ports.access import Caller
from noetl_stream.ports.gateway import Ingest
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.documents import DocumentPage
from noetl_stream.ports.operations.executions import RequestIds

Given = TypeVar("Given", bound=Parameters)
Sent = TypeVar("Sent")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON: Final = "application/json"
API: Final = "/api/v1"


@dataclass(frozen=True, slots=True)
class Call(Generic[Given, Sent]):
    """A request, read: all of it holds.

    Attributes:
        operations: As far as the caller may use them.
        ids: For what the call makes: the same ones each time it is made with one Idempotency-Key.
        address: Of the request, relative.
        ending: Set when the gateway ends: who waits answers with what there is.
    """

    operations: Operations
    ingest: Ingest
    caller: Caller
    parameters: Given
    body: Sent
    ids: RequestIds
    address: URL
    ending: asyncio.Event

    def require(self, role: Role, what: str) -> None:
        """Raises :class:`~noetl_stream.errors.Forbidden` unless the caller has at least this role."""
        require_role(self.caller, role, what)

    def require_all_paths(self, what: str) -> None:
        """Raises :class:`~noetl_stream.errors.Forbidden` for a token with paths, where nothing says whose it is."""
        if self.caller.paths:
            raise Forbidden(f"a token with paths may not {what}", hint="it takes one for all playbooks")

    def page(self, page: DocumentPage[Any]) -> Reply:
        """One page of a list, with a link to the next."""
        return Reply(page, headers=self.link_to(cursor=page.next))

    def link_to(self, **parameter: str | int | None) -> dict[str, str]:
        """The header that leads to the same address with another parameter; none for ``None``."""
        changed = {name: value for name, value in parameter.items() if value is not None}
        return {"Link": f'<{self.address.update_query(changed)}>; rel="next"'} if changed else {}


class Reply(NamedTuple):
    """What a handler answers with.

    Attributes:
        body: A document or an object (as JSON), bytes, or a stream of them; ``None`` for an answer without a body.
    """

    body: msgspec.Struct | Mapping[str, Any] | bytes | AsyncIterator[bytes] | None
    status: int = 200
    headers: Mapping[str, str] = {}
    media: str = JSON


Handler: TypeAlias = Callable[[Call[Given, Sent]], Awaitable[Reply]]


class Answer(NamedTuple):
    """A success as the OpenAPI document shows it.

    Attributes:
        document: That of a JSON body; ``None`` for none, or with another ``media`` text.
        headers: Names of headers it carries (:data:`noetl_stream.gateway.http.openapi.HEADERS`).
    """

    meaning: str
    document: type[msgspec.Struct] | None = None
    headers: tuple[str, ...] = ()
    media: str = JSON


@dataclass(frozen=True, slots=True)
class Route(Generic[Given, Sent]):
    """Attributes:
    path: With its parameters in braces; a slash within one is written ``%2F``.
    operation: The ``operationId``.
    role: The least that may call it; ``None``: anybody, without a token.
    refuses: Problems beside those that any route may have, by name.
    adds_work: Whether it makes more for servers to fold: not while they are far behind.
    reads: It changes nothing, though it is no GET.
    streams: Its answer has no end: counted as a stream, not as a request under way.
    unkept: Keys of the answer that are not kept for its Idempotency-Key, since they are secret.
    """

    method: Method
    path: str
    operation: str
    summary: str
    role: Role | None
    handler: Handler[Given, Sent]
    answers: Mapping[int, Answer]
    parameters: type[Given] = Nothing  # type: ignore[assignment]
    body: Body[Sent] = NOTHING  # type: ignore[assignment]
    refuses: tuple[str, ...] = ()
    adds_work: bool = False
    reads: bool = False
    streams: bool = False
    unkept: tuple[str, ...] = ()
    description: str = ""

    @property
    def tag(self) -> str:
        """The noun it belongs to."""
        return self.path.removeprefix(API).removeprefix("/api").split("/")[1].removesuffix(".json")

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key makes it safe to repeat."""
        return self.method in ("POST", "PATCH")


AnyRoute: TypeAlias = Route[Any, Any]


def require_role(caller: Caller, role: Role, what: str) -> None:
    """Raises :class:`~noetl_stream.errors.Forbidden` unless ``caller`` has at least this role."""
    if not suffices(caller.role, role):
        raise Forbidden(
            f"{caller.principal} is a {caller.role} and may not {what}",
            hint=f"it takes the role {role} or a higher one",
        )
