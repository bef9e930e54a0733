"""A tool for agents: its text for a model, its arguments, its role, and its work."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final, Generic, NamedTuple, Protocol, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noetl_stream.errors import Forbidden, NotFound, UsageError
from noetl_stream.mcp.answers import ToolAnswer, list_answer, part_answer
from noetl_stream.model.json import codec
from noetl_stream.model.rights import Role, includes_role
from noetl_stream.ports.operations import Operations
from noetl_stream.ports.operations.executions import ExecutionDocument, RequestIds
from noetl_stream.ports.operations.verbs import VerbParameter, arguments_of, parameters_of, verb_of

Given = TypeVar("Given", bound="Arguments")
Declared = TypeVar("Declared", bound=Callable[..., Any])

MAX_FAULTS: Final = 20

RequestId = Annotated[
    str,
    Field(
        pattern=r"^[\x21-\x7e]{1,128}$",
        description="An id of your own for this one change, new for each: repeating a call with it does nothing twice.",
    ),
]
ExecutionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The execution's id.")]
Reason = Annotated[str, Field(max_length=1024, description="Why: recorded with the event.")]
Keys = Annotated[dict[str, Any], Field(default_factory=dict)]


class Arguments(BaseModel):
    """Base of what a tool takes: unknown keys are refused, no value is converted."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)


class OfPart(Arguments):
    """For a tool whose answer may be long."""

    pointer: Annotated[
        str, Field(max_length=2048, description='Only this part of the answer: a JSON pointer such as "/rows/0".')
    ] = ""
    cursor: Annotated[str | None, Field(max_length=4096, description="`next` of the answer before.")] = None


class OfList(Arguments):
    """For a tool that answers with a list."""

    limit: Annotated[int, Field(ge=1, le=100, description="Items at most; fewer where they are long.")] = 20
    cursor: Annotated[str | None, Field(max_length=4096, description="`next` of the answer before.")] = None


class OfChange(Arguments):
    """For a tool that changes something."""

    request_id: RequestId
    reason: Reason = ""


class AgentCall(NamedTuple):
    """The context of a tool's work: operations, caller and ids.

    Attributes:
        operations: The operations that the caller may use.
        by: The principal that acts.
        ids: The ids for what the call creates, the same for each call with one request id.
        ended: Waits for an execution to end, at most this many seconds, and returns it as it is then.
    """

    operations: Operations
    by: str
    role: Role
    ids: RequestIds
    ended: Callable[[str, float], Awaitable[ExecutionDocument]]

    def require(self, role: Role, what: str) -> None:
        """Raises :class:`~noetl_stream.errors.Forbidden` unless the caller has at least this role."""
        if not includes_role(self.role, role):
            raise Forbidden(f"the role {self.role} may not {what}", hint=f"this needs the role {role} or a higher one")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool(Generic[Given]):
    """A tool for agents.

    Attributes:
        operation: The ``operationId`` of the tool's operation in the HTTP API, which has its role and its name in the
            audit.
        given: The model of the arguments.
        changes: Whether the tool changes something. If so, its arguments have a ``request_id``.
        adds_work: Whether the tool makes more work for servers.
        destructive: Whether the tool ends or replaces something.
    """

    name: str
    operation: str
    role: Role
    title: str
    description: str
    given: type[Given]
    work: Callable[[AgentCall, Given], Awaitable[ToolAnswer]]
    changes: bool = False
    adds_work: bool = False
    destructive: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, draft 2020-12."""
        schema: dict[str, Any] = _without_titles(self.given.model_json_schema())
        return schema

    def read(self, arguments: Mapping[str, Any]) -> Given:
        """Validates the arguments of a call.

        Raises:
            UsageError: names each wrong argument.
        """
        data = codec.encode(arguments)
        codec.decode_value(data)  # stricter than Pydantic: no NUL, no lone surrogates
        try:
            return self.given.model_validate_json(data)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
        faults = [f"{'.'.join(str(part)[:80] for part in one['loc'])}: {one['msg']}" for one in found[:MAX_FAULTS]]
        known = ", ".join(self.given.model_fields)
        raise UsageError(f"{self.name} does not take these arguments: {'; '.join(faults)}", hint=f"it takes {known}")


AnyAgentTool = AgentTool[Any]


class Tools(list[AnyAgentTool]):
    """The tools of a module, in the order of their functions.

    A function is the source of its tool: its name, the annotation of its arguments, and its docstring, whose first
    line is the title.
    """

    def __call__(
        self,
        operation: str,
        role: Role = "viewer",
        work: Callable[[AgentCall, Any], Awaitable[ToolAnswer]] | None = None,
        **more: bool,
    ) -> Callable[[Declared], Declared]:
        """Registers a function as a tool. Without ``work`` the function does it itself; ``more`` are other fields."""

        def offer(declared: Declared) -> Declared:
            title, _, description = (inspect.getdoc(declared) or "").partition("\n\n")
            self.append(
                AgentTool(
                    name=declared.__name__,
                    operation=operation,
                    role=role,
                    title=title.removesuffix("."),
                    description=" ".join(description.split()),
                    given=get_type_hints(declared, include_extras=True)["given"],
                    work=work or declared,
                    **more,
                )
            )
            return declared

        return offer

    def asks(self, noun: str, asked: Callable[..., Any]) -> Callable[[Declared], Declared]:
        """Registers a function without a body as a tool that calls one verb and returns its answer.

        Parameters of the verb are arguments of the tool by the same name, or by that of their field.
        """
        record, parameters = verb_of(asked), parameters_of(asked)
        verb_at = attrgetter(f"{noun}.{record.name}")

        async def work(call: AgentCall, given: Any) -> ToolAnswer:
            ask = partial(verb_at(call.operations), **arguments_of(parameters, partial(_value, given)))
            if isinstance(given, OfList):
                return await list_answer(lambda limit: ask(limit=limit), given.limit)
            return await part_answer(await ask(), given.pointer, given.cursor)

        return self(record.operation, record.role, work)


def _value(given: Arguments, parameter: VerbParameter) -> Any:
    """The argument of a tool for a parameter of its verb, or the default."""
    names = [name for name in (parameter.name, parameter.field) if name in type(given).model_fields]
    value = getattr(given, names[0]) if names else parameter.default
    if isinstance(value, list):
        return tuple(value)
    return int(value.timestamp() * 1000) if isinstance(value, datetime) else value


class InnerCall(NamedTuple):
    """A call of a tool before its admission.

    Attributes:
        arguments: The arguments as sent; validated, unless there is a refusal.
        refusal: The reason for refusing the call; ``None`` if it may be admitted.
    """

    tool: AnyAgentTool
    arguments: Mapping[str, Any]
    refusal: Forbidden | None

    @property
    def target(self) -> str:
        """The execution or path that the call is about."""
        return self._text("execution_id") or self._text("path")

    @property
    def request_id(self) -> str:
        """The request id of the call; empty for one that changes nothing."""
        return self._text("request_id")

    @property
    def reason(self) -> str:
        return self._text("reason")

    @property
    def waits(self) -> bool:
        """Whether the call waits for the end of the execution that it starts."""
        return bool(self.arguments.get("wait_s"))

    @property
    def content(self) -> bytes:
        """The content of the call, which is equal for equal calls."""
        return codec.encode_sorted([self.tool.name, self.arguments])

    def _text(self, name: str) -> str:
        found = self.arguments.get(name)
        return found if isinstance(found, str) else ""


Work = Callable[[AgentCall], Awaitable[ToolAnswer]]


class PerformedTool(NamedTuple):
    """The answer of a tool as a ``document``, and whether it is an error."""

    document: dict[str, Any]
    is_error: bool = False


class Door(Protocol):
    """The checks of a call before the operations: rights, bounds, the audit, its request id."""

    async def perform(self, inner: InnerCall, work: Work) -> PerformedTool:
        """Admits a call and does its ``work``, once for each request id.

        Raises:
            NoetlError: the call's ``refusal``, or what ``work`` raises.
        """


class Toolbox:
    """The tools that a caller may use.

    Args:
        changes: Whether tools that change something are included.
    """

    def __init__(self, every: list[AnyAgentTool], role: Role, *, changes: bool) -> None:
        self._every = {tool.name: tool for tool in every}
        self._role = role
        self._changes = changes

    @property
    def offered(self) -> list[AnyAgentTool]:
        return [tool for tool in self._every.values() if self._refusal(tool) is None]

    async def call(self, name: str, arguments: Mapping[str, Any], door: Door) -> PerformedTool:
        """Calls a tool and returns its answer.

        Raises:
            NoetlError: there is no such tool, its arguments are wrong, the caller may not, or it fails.
        """
        tool = self._every.get(name)
        if tool is None:
            raise NotFound(f"there is no tool {name[:80]!r}", hint=f"there are {', '.join(self._every)}")
        refusal = self._refusal(tool)
        given = None if refusal is not None else tool.read(arguments)

        async def work(call: AgentCall) -> ToolAnswer:
            answer: ToolAnswer = await tool.work(call, given)
            return answer

        return await door.perform(InnerCall(tool, arguments, refusal), work)

    def _refusal(self, tool: AnyAgentTool) -> Forbidden | None:
        if not includes_role(self._role, tool.role):
            return Forbidden(
                f"{tool.name} needs the role {tool.role}; you have {self._role}", hint="ask for a token with it"
            )
        if tool.changes and not self._changes:
            hint = "whoever runs this server allows it: --allow-changes, or NOETL_GATEWAY_MCP=changes for a gateway"
            return Forbidden(f"{tool.name} changes something, and agents may only read here", hint=hint)
        return None


def _without_titles(schema: Any) -> Any:
    """Removes the titles that Pydantic makes of names from a schema: they cost tokens and tell a model nothing."""
    if isinstance(schema, list):
        return [_without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _without_titles(value) for key, value in schema.items() if key not in ("title", "properties")}
    if "properties" in schema:
        found["properties"] = {name: _without_titles(one) for name, one in schema["properties"].items()}
    return found
