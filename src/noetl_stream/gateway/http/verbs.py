"""Routes of verbs, made from their records, so that no handler need be written that only passes a call through."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from pydantic import Field, create_model

from noetl_stream.gateway.http.bodies import NOTHING, Body, RequestModel, json_body, yaml_body, zip_body
from noetl_stream.gateway.http.parameters import (
    Duration,
    Explained,
    InPath,
    Iteration,
    Label,
    Moment,
    Parameters,
    labels_in,
    ms_of,
)
from noetl_stream.gateway.http.routes import Answer, AnyRoute, Call, Reply, Returned, Route
from noetl_stream.model.events.fact_parts import Path
from noetl_stream.ports.operations import port_of
from noetl_stream.ports.operations.verbs import (
    REQUIRED,
    DocumentPage,
    Verb,
    VerbParameter,
    arguments_of,
    is_verb,
    marks_of,
    parameters_of,
    plain_of,
    verb_of,
)

OK: Final = 200
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
        if is_verb(one) and verb_of(one).operation not in there
    ]


def route_of(noun: str, asked: Callable[..., Any]) -> AnyRoute:
    verb, returned = verb_of(asked), get_type_hints(asked)["return"]
    return Route(
        method=verb.method,
        path=verb.path,
        operation=verb.operation,
        role=verb.role,
        summary=(inspect.getdoc(asked) or "").partition("\n")[0].removesuffix("."),
        description=verb.description,
        handler=_handler(noun, verb, parameters_of(asked)),
        answers=_answers(verb, returned),
        parameters=_parameters(verb, parameters_of(asked)),
        body=_body(verb, parameters_of(asked)),
        refuses=verb.refuses,
        adds_work=verb.adds_work,
        reads=verb.reads,
        heavy=verb.heavy,
    )


def _answers(verb: Verb, returned: Any) -> dict[int, Answer]:
    document = verb.document or returned
    if document is type(None):
        return {204: Answer("No content")}
    has_next = verb.next != "cursor" or issubclass(document, DocumentPage)
    return {OK: Answer("OK", document, ("Link",) if has_next else ())}


def _parameters(verb: Verb, parameters: Sequence[VerbParameter]) -> type[Parameters]:
    fields: dict[str, Any] = {one.name: field_of(one) for one in parameters if one.place != "body"}
    if "reason" in verb.parameters:
        fields |= {name: (field.annotation, field) for name, field in Explained.model_fields.items()}
    first = verb.listed_first
    ordered = sorted(fields, key=lambda name: first.index(name) if name in first else len(first))
    return create_model(verb.operation, __base__=Parameters, **{name: fields[name] for name in ordered})


def _body(verb: Verb, parameters: Sequence[VerbParameter]) -> Body[Any]:
    if "source" in verb.parameters:
        return zip_body() if verb.sends == "zip" else yaml_body()
    fields: dict[str, Any] = {one.name: field_of(one) for one in parameters if one.place == "body"}
    if not fields:
        return NOTHING
    name, description = verb.request or (f"{verb.operation[0].upper()}{verb.operation[1:]}Request", None)
    return json_body(create_model(name, __base__=RequestModel, __doc__=description, **fields))


def field_of(parameter: VerbParameter) -> tuple[Any, Any]:
    """The type and the default of the field for a parameter in a model."""
    hint, default, marks = parameter.hint, parameter.default, marks_of(parameter.hint)
    if parameter.kind == "moment":
        hint = _annotated(Moment | None if default is None else Moment, marks)
    elif parameter.kind == "duration":
        hint = _annotated(Duration if default is REQUIRED else Duration | None, marks)
    elif parameter.kind == "iteration":
        hint = _annotated(Iteration if default is REQUIRED else Iteration | None, marks)
        default = default or None
    elif parameter.place == "body" and default == ():
        (item,) = get_args(plain_of(hint))
        return _annotated(list[_as_pydantic(item)], marks), Field(default_factory=list)  # type: ignore[misc]
    else:
        hint = _as_pydantic(hint)
    hint = Annotated[hint, InPath()] if parameter.place == "path" else hint
    return hint, ... if default is REQUIRED else () if parameter.kind == "labels" else default


def _as_pydantic(hint: Any) -> Any:
    """The type of a verb's parameter as Pydantic reads it from a request."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(_as_pydantic(args[0]), args[1:])
    if type(None) in args:
        return Union[tuple(map(_as_pydantic, args))]  # noqa: UP007  # as many as there are
    if plain_of(hint) == Path:
        return Iteration
    if origin is Mapping:
        return tuple[Label, ...]
    if origin in (Sequence, Collection):
        return tuple[(_as_pydantic(args[0]), ...)]  # type: ignore[misc]
    return hint


def _annotated(kind: Any, marks: Iterable[Any]) -> Any:
    given = [{name: getattr(mark, name) for name in _METAS} for mark in marks if isinstance(mark, msgspec.Meta)]
    fields = [Field(**{name: value for name, value in one.items() if value is not None}) for one in given]
    return Annotated[(kind, *fields)] if fields else kind


def _handler(
    noun: str, verb: Verb, parameters: Sequence[VerbParameter]
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


def _arguments(call: Call[Any, Any], verb: Verb, parameters: Sequence[VerbParameter]) -> dict[str, Any]:
    of_call = {"by": call.caller.principal, "ids": call.ids, "source": call.body}
    found = {name: value for name, value in of_call.items() if name in verb.parameters}
    if "reason" in verb.parameters:
        found["reason"] = call.parameters.reason
    return found | arguments_of(
        parameters, lambda one: value_of(one, getattr(call.body if one.place == "body" else call.parameters, one.name))
    )


def value_of(parameter: VerbParameter, given: Any) -> Any:
    """The value of a model's field as the verb takes it."""
    if parameter.kind == "moment":
        return ms_of(given)
    if parameter.kind == "labels":
        return labels_in(given)
    return parameter.default if given is None and parameter.kind == "iteration" else given
