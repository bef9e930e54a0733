"""A route: the router, the OpenAPI document, the roles and the documentation are made from it. Those of verbs are made
from their records, so that no handler need be written that only passes a call through.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from pydantic import Field, create_model
from yarl import URL

from noetl_stream.errors import Forbidden
from noetl_stream.gateway.access.authentication import SignIns
from noetl_stream.gateway.http import inputs
from noetl_stream.mcp.tools import Door
from noetl_stream.model.events.fact_parts import Path
from noetl_stream.model.rights import Role, includes_role
from noetl_stream.ports.operations import Operations, port_of, verbs
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.stores.identities import Caller
from noetl_stream.settings.gateway_settings import AgentAccess

Given = TypeVar("Given", bound=inputs.Parameters)
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
            hint = f"this needs the role {role} or a higher one"
            raise Forbidden(f"{self.caller.principal} has the role {self.caller.role} and may not {what}", hint=hint)

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

    method: verbs.Method
    path: str
    operation: str
    role: Role | None
    summary: str
    description: str
    handler: Handler[Given, Sent]
    answers: Mapping[int, Answer]
    parameters: type[Given]
    body: inputs.Body[Sent]
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
        return self.path.removeprefix(verbs.API).removeprefix("/api").split("/")[1].removesuffix(".json")

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
        if isinstance(returned, verbs.DocumentPage):
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
        method: verbs.Method,
        path: str,
        operation: str,
        role: Role | None,
        answers: Mapping[int, Answer] | None = None,
        body: inputs.Body[Any] | None = None,
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
                    body=body or (inputs.NOTHING if sent is type(None) else inputs.json_body(sent)),
                    **more,
                )
            )
            return handler

        return served


def _answers(returned: type[msgspec.Struct | None], *, is_paged: bool = False) -> dict[int, Answer]:
    if not issubclass(returned, msgspec.Struct):
        return {204: Answer("No content")}
    return {200: Answer("OK", returned, ("Link",) if is_paged or issubclass(returned, verbs.DocumentPage) else ())}


_METAS: Final = ("ge", "le", "pattern", "min_length", "max_length", "description")


def routes_of(noun: str, but: Iterable[AnyRoute] = ()) -> list[AnyRoute]:
    """The routes of all verbs of a noun whose records have an operation, in order.

    Args:
        but: The routes that exist already.
    """
    there = {"", *(route.operation for route in but)}
    return [
        route_of(noun, one)
        for one in vars(port_of(noun)).values()
        if verbs.is_verb(one) and verbs.verb_of(one).operation not in there
    ]


def route_of(noun: str, asked: Callable[..., Any]) -> AnyRoute:
    verb, returned = verbs.verb_of(asked), get_type_hints(asked)["return"]
    return Route(
        method=verb.method,
        path=verb.path,
        operation=verb.operation,
        role=verb.role,
        summary=(inspect.getdoc(asked) or "").partition("\n")[0].removesuffix("."),
        description=verb.description,
        handler=_handler(noun, verb, verbs.parameters_of(asked)),
        answers=_answers(verb.document or returned, is_paged=verb.next != "cursor"),
        parameters=_parameters(verb, verbs.parameters_of(asked)),
        body=_body(verb, verbs.parameters_of(asked)),
        refuses=verb.refuses,
        adds_work=verb.adds_work,
        reads=verb.reads,
        heavy=verb.heavy,
    )


def _parameters(verb: verbs.Verb, parameters: Sequence[verbs.VerbParameter]) -> type[inputs.Parameters]:
    fields: dict[str, Any] = {one.name: field_of(one) for one in parameters if one.place != "body"}
    if "reason" in verb.parameters:
        fields |= {name: (field.annotation, field) for name, field in inputs.Explained.model_fields.items()}
    first = verb.listed_first
    ordered = sorted(fields, key=lambda name: first.index(name) if name in first else len(first))
    return create_model(verb.operation, __base__=inputs.Parameters, **{name: fields[name] for name in ordered})


def _body(verb: verbs.Verb, parameters: Sequence[verbs.VerbParameter]) -> inputs.Body[Any]:
    if "source" in verb.parameters:
        return inputs.zip_body() if verb.sends == "zip" else inputs.yaml_body()
    fields: dict[str, Any] = {one.name: field_of(one) for one in parameters if one.place == "body"}
    if not fields:
        return inputs.NOTHING
    name, description = verb.request or (f"{verb.operation[0].upper()}{verb.operation[1:]}Request", None)
    return inputs.json_body(create_model(name, __base__=inputs.RequestModel, __doc__=description, **fields))


def field_of(parameter: verbs.VerbParameter) -> tuple[Any, Any]:
    """The type and the default of the field for a parameter in a model."""
    hint, default, marks = parameter.hint, parameter.default, verbs.marks_of(parameter.hint)
    if parameter.kind == "moment":
        hint = _annotated(inputs.Moment | None if default is None else inputs.Moment, marks)
    elif parameter.kind == "duration":
        hint = _annotated(inputs.Duration if default is verbs.REQUIRED else inputs.Duration | None, marks)
    elif parameter.kind == "iteration":
        hint = _annotated(inputs.Iteration if default is verbs.REQUIRED else inputs.Iteration | None, marks)
        default = default or None
    elif parameter.place == "body" and default == ():
        (item,) = get_args(verbs.plain_of(hint))
        return _annotated(list[_as_pydantic(item)], marks), Field(default_factory=list)  # type: ignore[misc]
    else:
        hint = _as_pydantic(hint)
    hint = Annotated[hint, inputs.InPath()] if parameter.place == "path" else hint
    return hint, ... if default is verbs.REQUIRED else () if parameter.kind == "labels" else default


def _as_pydantic(hint: Any) -> Any:
    """The type of a verb's parameter as Pydantic reads it from a request."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_as_pydantic(args[0]), args[1:])
    if type(None) in args:
        return Union[tuple(map(_as_pydantic, args))]  # noqa: UP007  # as many as there are
    if verbs.plain_of(hint) == Path:
        return inputs.Iteration
    if origin is Mapping:
        return tuple[inputs.Label, ...]
    if origin in (Sequence, Collection):
        return tuple[(_as_pydantic(args[0]), ...)]  # type: ignore[misc]
    return hint


def _annotated(kind: Any, marks: Iterable[Any]) -> Any:
    given = [{name: getattr(mark, name) for name in _METAS} for mark in marks if isinstance(mark, msgspec.Meta)]
    fields = [Field(**{name: value for name, value in one.items() if value is not None}) for one in given]
    return Annotated[(kind, *fields)] if fields else kind


def _handler(
    noun: str, verb: verbs.Verb, parameters: Sequence[verbs.VerbParameter]
) -> Callable[[Call[Any, Any]], Awaitable[Returned]]:
    verb_at = attrgetter(f"{noun}.{verb.name}")

    async def handle(call: Call[Any, Any]) -> Returned:
        answer = await verb_at(call.operations)(**_arguments(call, verb, parameters))
        if verb.document is not None:
            return Reply(answer) if isinstance(answer, Mapping) else verb.document(answer)
        if verb.next != "cursor":
            return Reply(answer, headers=call.link_to(**{verb.next: answer.next}))
        return cast(Returned, answer)

    return handle


def _arguments(call: Call[Any, Any], verb: verbs.Verb, parameters: Sequence[verbs.VerbParameter]) -> dict[str, Any]:
    of_call = {"by": call.caller.principal, "ids": call.ids, "source": call.body}
    found = {name: value for name, value in of_call.items() if name in verb.parameters}
    if "reason" in verb.parameters:
        found["reason"] = call.parameters.reason
    return found | verbs.arguments_of(
        parameters, lambda one: value_of(one, getattr(call.body if one.place == "body" else call.parameters, one.name))
    )


def value_of(parameter: verbs.VerbParameter, given: Any) -> Any:
    """The value of a model's field as the verb takes it."""
    if parameter.kind == "moment":
        return inputs.ms_of(given)
    if parameter.kind == "labels":
        return inputs.labels_in(given)
    return parameter.default if given is None and parameter.kind == "iteration" else given
