"""The operations as data: the record of each verb, its properties beyond its signature, written on the method of its
port; and the answers, structs that HTTP transfers as JSON, field by field, and that the OpenAPI document describes.

A struct is next to the protocol that returns it. Its name in the OpenAPI document lacks ``Document``.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import GenericAlias, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta

from noetl_stream.errors import PayloadRefused
from noetl_stream.model.envelope import iso
from noetl_stream.model.events.fact_parts import Path
from noetl_stream.model.rights import Role

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Asked = TypeVar("Asked", bound=Callable[..., Any])

Scope = Literal["arguments", "items", "everyone", "special"]
"""The scope of a verb for a token with paths: executions and paths named by arguments; items of a list below its paths,
which the verb takes as ``scope``; the same as for every token; or decided by the verb's method in the gateway.
"""

API: Final = "/api/v1"
EXECUTIONS: Final = ("execution_id", "other")
"""Parameters of verbs that are the id of an execution."""

PATH: Final = "path"
"""The parameter of verbs that is the path of a playbook, a schedule or a trigger."""

_RECORD: Final = "__verb__"


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    """A verb.

    Attributes:
        path: The whole path in the HTTP API, with parameters in braces, named as the verb's own.
        operation: Its ``operationId``, if the gateway makes its route from this record; empty: a handler serves it.
        role: The lowest role that may call it.
        parameters: The names of all of its parameters, in order.
        denied: The act that a token with paths may not perform, in words; empty: ``scope`` says what it may do.
        secrets: Whether its answer may contain secrets of executions.
        replica: Whether a replica of the database, which may be behind, may answer.
        refuses: Its problems in addition to those of every route, by name.
        adds_work: Whether it makes more for servers to fold: each caller gets little of it while they are far behind.
        reads: Whether it changes nothing although it is not a GET.
        heavy: Whether its answer may be long or take much processor time: a caller gets few at a time.
        document: The document in HTTP, for a verb that returns a list or an object.
        request: The name and description in the OpenAPI document of the JSON object that it takes; ``None``: the
            operation's name, and none.
        next: The parameter for ``next`` of its answer, unless it is ``cursor``.
        description: The description in the OpenAPI document after the first line of the docstring.
        listed_first: Parameters that precede the others in the OpenAPI document.
        sends: The content of ``source``, if it takes one.
    """

    name: str
    method: Method
    path: str
    parameters: tuple[str, ...]
    operation: str = ""
    role: Role = "viewer"
    scope: Scope = "arguments"
    denied: str = ""
    secrets: bool = True
    replica: bool = False
    refuses: tuple[str, ...] = ()
    adds_work: bool = False
    reads: bool = False
    heavy: bool = False
    document: type[msgspec.Struct] | None = None
    request: tuple[str, str] | None = None
    next: str = "cursor"
    description: str = ""
    listed_first: tuple[str, ...] = ()
    sends: Literal["yaml", "zip"] = "yaml"

    @property
    def takes_object(self) -> bool:
        """Whether parameters that are not in its path are a JSON object; else they are in the query."""
        return self.method not in ("GET", "DELETE") and "source" not in self.parameters

    @property
    def changes(self) -> bool:
        return self.method != "GET" and not self.reads

    def target_of(self, arguments: Mapping[str, Any]) -> str:
        """The target: the first parameter in its path; empty without one."""
        named = (part[1:-1] for part in self.path.split("/") if part.startswith("{"))
        return str(arguments[name]) if (name := next(named, None)) else ""

    def arguments(self, args: Sequence[Any], options: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, by parameter."""
        return {**dict(zip(self.parameters, args, strict=False)), **options}


def verb(
    method: Method, path: str, operation: str = "", role: Role = "viewer", **more: Any
) -> Callable[[Asked], Asked]:
    """Declares a verb at an address of the HTTP API: the gateway serves it there, clients call it there.

    Args:
        path: Below :data:`API`. ``by`` comes from the token, ``reason`` from the header ``X-Reason``, ``source`` from
            the body, and other parameters from where :class:`VerbParameter` says.
        more: Other fields of :class:`Verb`.

    Raises:
        TypeError: no parameter is the target, and ``more`` has no scope.
    """

    def declared(asked: Asked) -> Asked:
        code = asked.__code__
        parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        record = Verb(
            name=asked.__name__,
            method=method,
            path=API + path,
            operation=operation,
            role=role,
            parameters=parameters,
            **more,
        )
        if record.scope == "arguments" and not record.denied and not {PATH, *EXECUTIONS}.intersection(parameters):
            known = ", ".join((PATH, *EXECUTIONS))
            raise TypeError(f"{asked.__qualname__} needs a scope, since none of its parameters is {known}")
        setattr(asked, _RECORD, record)
        return asked

    return declared


def verb_of(asked: Callable[..., Any]) -> Verb:
    """The record of a declared verb."""
    record: Verb = getattr(asked, _RECORD)
    return record


def address_of(asked: Callable[..., Any]) -> tuple[Method, str]:
    """The address of a verb."""
    record = verb_of(asked)
    return record.method, record.path


def is_verb(asked: object) -> bool:
    return hasattr(asked, _RECORD)


class Verbs(ABC):
    """Base of objects that answer all verbs of a port in one way. A subclass overrides other verbs."""

    def __init__(self, port: type) -> None:
        self._port: Final = port

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        asked = getattr(self._port, name)
        if not is_verb(asked):
            raise AttributeError(f"{self._port.__name__}.{name} is not a verb")
        return partial(self._ask, verb_of(asked))

    @abstractmethod
    async def _ask(self, verb: Verb, *args: Any, **options: Any) -> Any:
        """Answers a verb that the subclass does not override."""


MAX_PAGE: Final = 1000
MAX_POSITION: Final = 2**31 - 1


class Default(NamedTuple):
    """Marks the value that a request means if it omits a parameter for which the verb has no default."""

    value: Any


class Named(NamedTuple):
    """Marks a parameter that has this name in HTTP."""

    name: str


class Without(NamedTuple):
    """Marks a struct of parameters of which the verb does not use one."""

    field: str


class Inner:
    """Marks a parameter, or a field of one, that requests do not have."""


ItemsBelow = Annotated[Sequence[str], Inner]
"""The paths of a caller's token, none of them below another, to which a list is restricted; empty for all."""

Position = Annotated[int, Meta(ge=0, le=MAX_POSITION)]
Limit = Annotated[int, Default(50), Meta(ge=1, le=MAX_PAGE, description="Maximum number of items.")]
Cursor = Annotated[str, Meta(min_length=1, max_length=4096, description="`next` of the page before.")]
Labels = Annotated[Mapping[str, str], Named("label"), Default({})]
Name = Annotated[str, Meta(min_length=1, max_length=128)]
ExecutionId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="An execution's id.")]
StepRunId = Annotated[str, Meta(max_length=128)]
PlaybookPath = Annotated[str, Meta(min_length=1, max_length=512, description="Slashes are written `%2F`.")]
Prefix = Annotated[str, Default(""), Meta(max_length=256, description="What the path begins with.")]
TextName = Annotated[str, Default("playbook"), Meta(max_length=256, description="What diagnostics call the text.")]

Kind = Literal["plain", "moment", "duration", "labels", "iteration"]
"""The form of a value in HTTP: unchanged; ms since the epoch as a time in ISO 8601; seconds as ``90s``; ``name=value``;
or the numbers of an iteration with dots.
"""

Place = Literal["path", "query", "body"]
"""The place of a parameter in a request: its path, its query, or the JSON object that is its body."""

REQUIRED: Final = inspect.Parameter.empty
_OF_CALL: Final = frozenset({"self", "by", "ids", "reason", "source"})
"""The other parts of a request: its token, its headers, its body."""


class VerbParameter(NamedTuple):
    """A parameter of a request.

    Attributes:
        argument: The argument of the verb that it is, or is a part of.
        struct: The type of that argument, if the parameter is its ``field``; else ``None``.
        hint: Its type, with its marks.
        default: :data:`REQUIRED` for a required one.
    """

    name: str
    argument: str
    struct: type | None
    field: str
    place: Place
    hint: Any
    kind: Kind
    default: Any


@cache
def parameters_of(asked: Callable[..., Any]) -> tuple[VerbParameter, ...]:
    """The parameters of a verb, in order."""
    hints, signature = get_type_hints(asked, include_extras=True), inspect.signature(asked)
    return tuple(
        one
        for name, parameter in signature.parameters.items()
        if name not in _OF_CALL and Inner not in marks_of(hints[name])
        for one in _spread(verb_of(asked), name, hints[name], parameter.default)
    )


def arguments_of(parameters: Iterable[VerbParameter], value_of: Callable[[VerbParameter], Any]) -> dict[str, Any]:
    """The arguments of a verb, by name, made of the values of its parameters."""
    found: dict[str, Any] = {}
    structs: dict[tuple[str, type], dict[str, Any]] = {}
    for one in parameters:
        into = found if one.struct is None else structs.setdefault((one.argument, one.struct), {})
        into[one.field] = value_of(one)
    return found | {argument: struct(**fields) for (argument, struct), fields in structs.items()}


def _spread(verb: Verb, argument: str, hint: Any, default: Any) -> Iterator[VerbParameter]:
    """A parameter, or those in its struct."""
    kind = plain_of(hint)
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
    if not fields:
        yield _parameter(verb, argument, None, argument, hint=hint, default=default)
        return
    hints, signature = get_type_hints(kind, include_extras=True), inspect.signature(kind)
    for field in fields:
        if Without(field) not in marks_of(hint) and Inner not in marks_of(hints[field]):
            given = signature.parameters[field].default
            yield _parameter(verb, argument, kind, field, hint=hints[field], default=given)


def _parameter(verb: Verb, argument: str, struct: type | None, field: str, *, hint: Any, default: Any) -> VerbParameter:
    marks, plain, name = marks_of(hint), plain_of(hint), field
    kind: Kind = "plain"
    if field.endswith("_ms"):
        kind, name = "moment", field.removesuffix("_ms")
    elif field.endswith("_s"):
        kind, name = "duration", field.removesuffix("_s")
    elif get_origin(plain) is Mapping or plain is Mapping:
        kind = "labels"
    elif plain == Path:
        kind = "iteration"
    if default is REQUIRED:
        default = None if _is_optional(hint) else REQUIRED
        default = next((mark.value for mark in reversed(marks) if isinstance(mark, Default)), default)
    name = next((mark.name for mark in marks if isinstance(mark, Named)), name)
    return VerbParameter(
        name=name,
        argument=argument,
        struct=struct,
        field=field,
        place="path" if f"{{{name}}}" in verb.path else "body" if verb.takes_object else "query",
        hint=hint,
        kind=kind,
        default=default,
    )


def marks_of(hint: Any) -> list[Any]:
    """The annotations of a type, and of its alternative to ``None``."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        return [*marks_of(inner), *marks]
    return marks_of(_other_than_none(hint)) if _is_optional(hint) else []


def plain_of(hint: Any) -> Any:
    """A type without its marks, and without ``None``."""
    if get_origin(hint) is Annotated:
        return plain_of(get_args(hint)[0])
    return plain_of(_other_than_none(hint)) if _is_optional(hint) else hint


def _is_optional(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        return _is_optional(get_args(hint)[0])
    return get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint)


def _other_than_none(hint: Any) -> Any:
    kinds = tuple(kind for kind in get_args(hint) if kind is not type(None))
    return Union[kinds]  # noqa: UP007  # as many as there are


Item = TypeVar("Item")
Value = TypeVar("Value")
Shown = Callable[[Any], Any]

Next = Annotated[str | None, msgspec.Meta(description="The `cursor` of the page after this one; null at the end.")]


class Document(msgspec.Struct, frozen=True):
    """Base of answers. Times are ISO 8601 in UTC, with milliseconds; ``None`` is ``null``, present in the JSON."""


class OpenDocument(Document, frozen=True):
    """Base of answers that may have further keys."""


class DocumentPage(Document, Generic[Item], frozen=True):
    """Base of pages of lists."""

    items: list[Item]
    next: Next


def list_of(name: str, item: type[Document], says: str | None = None) -> type[Document]:
    """The document of a whole list, named ``name`` in the OpenAPI document."""
    fields = [("items", GenericAlias(list, item))]
    namespace = {"__doc__": says, "__module__": item.__module__}
    made: Any = msgspec.defstruct(f"{name}Document", fields, bases=(Document,), namespace=namespace, frozen=True)
    found: type[Document] = made
    return found


def document_from(kind: Callable[..., Value], *rows: object, **others: Any) -> Value:
    """The document with ``others``; each further field is that of the first row that has it, by name. Rows have times
    as ms since the epoch, in fields that end in ``_ms``, tuples for lists, and structs for documents within it.
    """
    for name, place, source, shown in _sources(kind, *map(type, rows)):
        if name not in others:
            value = getattr(rows[place], source)
            others[name] = value if value is None or shown is None else shown(value)
    return kind(**others)


@cache
def _sources(kind: Any, *rows: type[Any]) -> list[tuple[str, int, str, Shown | None]]:
    """The sources of a document's fields: for each name, the index of the row, the field there, and its conversion."""
    found: dict[str, tuple[str, int, str, Shown | None]] = {}
    hints = get_type_hints(kind)
    for name in kind.__struct_fields__:
        for place, row in enumerate(rows):
            for source in (name, f"{name}_ms"):
                if hasattr(row, source):
                    found.setdefault(name, (name, place, source, _shown_as(hints[name]) if source == name else iso))
    return list(found.values())


def _shown_as(hint: Any) -> Shown | None:
    """The conversion of a value in a row to this type in a document; ``None`` if it stays as it is."""
    if get_origin(hint) is UnionType:
        hint = next((one for one in get_args(hint) if one is not NoneType), hint)
    kind, args = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Document):
        return lambda value: value if isinstance(value, hint) else document_from(hint, value)
    inner = _shown_as(args[-1]) if kind in (list, dict) else None
    if kind is list:
        return list if inner is None else lambda values: list(map(inner, values))
    if kind is dict:
        return dict if inner is None else lambda values: {key: inner(value) for key, value in values.items()}
    return None


def document_of(value: Any, kind: type[Value]) -> Value:
    """The answer in these JSON values. Keys that ``kind`` does not have are ignored: a newer release may have more.

    Raises:
        PayloadRefused: they are something else.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise PayloadRefused(str(error)) from None


def plain(document: object) -> Any:
    """A document, or a list of them, as JSON values."""
    return msgspec.to_builtins(document)
