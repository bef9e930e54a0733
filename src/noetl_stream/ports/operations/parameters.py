"""Parameters of verbs: their limits and descriptions, and how HTTP carries them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from noetl_stream.model.events.fact_parts import Path
from noetl_stream.ports.operations.verbs import Verb, verb_of

MAX_PAGE: Final = 1000
MAX_POSITION: Final = 2**31 - 1


class Default(NamedTuple):
    """Marks what is meant if a request does not give a parameter, where the verb itself has no default."""

    value: Any


class Named(NamedTuple):
    """Marks a parameter that has this name over HTTP."""

    name: str


class Without(NamedTuple):
    """Marks a struct of parameters of which the verb does not use one."""

    field: str


class Inner:
    """Marks a parameter that no request has."""


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

Kind = Literal["plain", "moment", "labels", "iteration"]
"""How HTTP writes a value: as it is; ms since the epoch as a time in ISO 8601; as ``name=value``; or the numbers of an
iteration with dots.
"""

Place = Literal["path", "query", "body"]
"""Where a request has a parameter: in its path, its query, or the JSON object that is its body."""

REQUIRED: Final = inspect.Parameter.empty
_OF_CALL: Final = frozenset({"self", "by", "ids", "reason", "source"})
"""What a request has elsewhere: its token, its headers, its body."""


class VerbParameter(NamedTuple):
    """A parameter of a request.

    Attributes:
        argument: The argument of the verb that it is, or is in.
        struct: The type of that argument, of which it is a ``field``; ``None``: it is the argument.
        hint: Its type, with its marks.
        default: :data:`REQUIRED` if it has to be given.
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
    """A parameter, or those that its struct has."""
    kind = plain_of(hint)
    fields: tuple[str, ...] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "_fields", ())
    if not fields:
        yield _parameter(verb, argument, None, argument, hint=hint, default=default)
        return
    hints, signature = get_type_hints(kind, include_extras=True), inspect.signature(kind)
    for field in fields:
        if Without(field) not in marks_of(hint):
            given = signature.parameters[field].default
            yield _parameter(verb, argument, kind, field, hint=hints[field], default=given)


def _parameter(verb: Verb, argument: str, struct: type | None, field: str, *, hint: Any, default: Any) -> VerbParameter:
    marks, plain, name = marks_of(hint), plain_of(hint), field
    kind: Kind = "plain"
    if field.endswith("_ms"):
        kind, name = "moment", field.removesuffix("_ms")
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
    """What a type is annotated with, and what the type is that it may have in place of ``None``."""
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
