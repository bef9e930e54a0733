"""Parameters of requests: path, query and headers, read into one model per route."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar, get_origin
from urllib.parse import unquote

from multidict import CIMultiDictProxy, MultiMapping
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo

from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.ports.operations.problems import FaultDocument

Place = Literal["path", "query", "header"]
Model = TypeVar("Model", bound="Parameters")

MAX_WAIT_S: Final = 300.0
MAX_PAGE: Final = 1000

MAX_POSITION: Final = 2**31 - 1
_WAIT: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(ms|s|m)")
_SPAN: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class InPath:
    """Marks a field as part of the path."""


class InHeader(NamedTuple):
    """Marks a field as a header of this name."""

    name: str


class Parameters(BaseModel):
    """Base of the parameters of a route. A field without a mark is in the query, where a list may be repeated."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True)

    takes_more: ClassVar[bool] = False
    """Whether the query may have other parameters, which the route reads itself."""

    places: ClassVar[Mapping[str, tuple[Place, str]]]
    """The place of each field, and its name there."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls.places = {name: _place(name, field) for name, field in cls.model_fields.items()}


class Nothing(Parameters):
    """A route without parameters."""


def read_parameters(
    model: type[Model], path: Mapping[str, str], query: MultiMapping[str], headers: CIMultiDictProxy[str]
) -> Model:
    """The parameters of a request.

    Raises:
        HttpProblem: it lists each wrong, missing, repeated or unknown parameter.
    """
    faults: list[FaultDocument] = []
    values: dict[str, Any] = {}
    names = {name: field for field, (place, name) in model.places.items() if place == "query"}
    for name in dict.fromkeys(query):
        given = query.getall(name)
        if name not in names:
            if not model.takes_more:
                faults.append(FaultDocument("unknown parameter", parameter=name))
        elif get_origin(model.model_fields[names[name]].annotation) is tuple:  # a list
            values[names[name]] = given
        elif len(given) > 1:
            faults.append(FaultDocument("given more than once", parameter=name))
        else:
            values[names[name]] = given[0]
    for field, (place, name) in model.places.items():
        if place == "path":
            values[field] = path[name]
        elif place == "header" and name in headers:
            values[field] = headers[name]
    try:
        read = model.model_validate(values)
    except ValidationError as error:
        faults += (
            FaultDocument(found["msg"], parameter=model.places[str(found["loc"][0])][1])
            for found in error.errors(include_url=False, include_context=False, include_input=False)
        )
    if faults:
        raise HttpProblem("invalid-request", "The parameters of the request are invalid", faults)
    return read


def _place(name: str, field: FieldInfo) -> tuple[Place, str]:
    for mark in field.metadata:
        if isinstance(mark, InPath):
            return "path", name
        if isinstance(mark, InHeader):
            return "header", mark.name
    return "query", name


def _seconds(text: object) -> object:
    found = _WAIT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("must be a duration such as 30s, 500ms or 2m")
    return float(found[1]) * _SECONDS[found[2]]


def _span(text: object) -> object:
    found = _SPAN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("must be a duration such as 90s, 15m, 12h or 30d")
    return float(found[1]) * _SECONDS[found[2]]


def ms_of(moment: datetime | None) -> int | None:
    """A time in ms since the epoch."""
    return None if moment is None else int(moment.timestamp() * 1000)


def _unquoted(text: object) -> object:
    return unquote(text, errors="strict") if isinstance(text, str) else text


def _path(text: object) -> object:
    return tuple(text.split(".")) if isinstance(text, str) else text


def labels_in(pairs: tuple[str, ...]) -> dict[str, str]:
    """``("team=sales",)`` → ``{"team": "sales"}``."""
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


WaitS = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(ge=0, le=MAX_WAIT_S, description=f"How long to wait for the end, as in `30s`; at most {MAX_WAIT_S:g}s."),
    WithJsonSchema({"type": "string", "pattern": f"^{_WAIT.pattern}$", "examples": ["30s"]}),
]
Duration = Annotated[
    float,
    BeforeValidator(_span),
    WithJsonSchema({"type": "string", "pattern": f"^{_SPAN.pattern}$", "examples": ["90s"]}),
]
Limit = Annotated[int, Field(ge=1, le=MAX_PAGE, description="Maximum number of items.")]
Cursor = Annotated[str, Field(min_length=1, max_length=4096, description="`next` of the page before.")]
Label = Annotated[str, Field(pattern=r"^[^=]+=", max_length=512, description="`name=value`; all of them must hold.")]
Moment = Annotated[AwareDatetime, Field(description="ISO 8601 with its zone.")]
Iteration = Annotated[
    tuple[Annotated[int, Field(ge=0, lt=10**9)], ...],
    BeforeValidator(_path),
    Field(max_length=8, description="Of a loop, with those of loops within it: `3`, or `3.0`."),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,9}(\.[0-9]{1,9}){0,7}$"}),
]
Name = Annotated[str, Field(min_length=1, max_length=128)]
HeaderText = Annotated[str, BeforeValidator(_unquoted), Field(max_length=1024)]
"""Free text in a header: percent-encoded unless it is plain ASCII."""
ExecutionId = Annotated[str, InPath(), Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="An execution's id.")]


class ExecutionAt(Parameters):
    execution_id: ExecutionId


class Explained(Parameters):
    """The reason for a change; its author is known from the token."""

    reason: Annotated[
        HeaderText, InHeader("X-Reason"), Field(description="Why, for the history. Percent-encoded where not ASCII.")
    ] = ""
    correlation_id: Annotated[
        HeaderText, InHeader("X-Correlation-Id"), Field(description="Identifies what this belongs to in other systems.")
    ] = ""


class Intervention(Explained, ExecutionAt):
    """An intervention in an execution."""
