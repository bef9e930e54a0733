"""The inputs of requests: parameters in path, query and headers, read into one model per route; and bodies."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar, get_origin
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDictProxy, MultiMapping
from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo

from noetl_stream.errors import PayloadRefused, TooDeep
from noetl_stream.gateway.http.problems import MAX_FAULTS, HttpProblem
from noetl_stream.model.json import codec
from noetl_stream.model.json.texts import digits_lost
from noetl_stream.model.labels import MAX_LABELS, MAX_NAME_CHARS
from noetl_stream.model.priorities import HIGHEST_PRIORITY, LOWEST_PRIORITY
from noetl_stream.ports.operations.problems import FaultDocument
from noetl_stream.settings.gateway_settings import BodySize, GatewayLimits

Sent = TypeVar("Sent")
Model = TypeVar("Model", bound=BaseModel)

MISMATCH: Final = "The body does not match the schema"
UNKNOWN_KEY: Final = "Extra inputs are not permitted"

YAML: Final = "application/yaml"
ZIP: Final = "application/zip"
ANY_MEDIA: Final = "*/*"
YAML_MEDIA: Final = (YAML, "application/x-yaml", "text/yaml", "text/x-yaml")


class RequestModel(BaseModel):
    """Base of JSON bodies: unknown keys are refused, no value is converted."""

    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, strict=True)


Keys = Annotated[dict[str, Any], Field(default_factory=dict)]
"""An object in a JSON body, empty by default."""


LabelsGiven = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)], str | int | float | bool | None],
    Field(
        default_factory=dict, max_length=MAX_LABELS, description="Added to the playbook's labels, and override them."
    ),
]

_Priority = Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)]
PriorityGiven = Annotated[
    _Priority | None, Field(description="What waits in a pool comes from the highest. Default: the playbook's, else 5.")
]
PriorityKept = Annotated[_Priority | None, Field(description="Default: that of the original.")]


@dataclass(frozen=True, slots=True)
class Body(Generic[Sent]):
    """The body that a route accepts. ``size`` names its limit; ``media`` is empty for a route without a body;
    ``synonyms`` are also accepted, but not in the OpenAPI document.
    """

    media: Mapping[str, type[BaseModel] | Mapping[str, Any]]
    read: Callable[[bytes, str], Sent]
    size: BodySize = "json"
    synonyms: tuple[str, ...] = ()
    required: bool = True

    def takes(self, media: str) -> bool:
        return media in self.media or media in self.synonyms


NOTHING: Final[Body[None]] = Body({}, lambda data, media: None)


def json_body(model: type[Model], *, required: bool = True) -> Body[Model]:
    """A JSON object; if it is not ``required``, an empty body counts as ``{}``."""

    def read(data: bytes, media: str) -> Model:
        return validated(model, data if data or required else b"{}")

    return Body({"application/json": model}, read, required=required)


class Numbered(NamedTuple, Generic[Model]):
    """A request, and the JSON pointers of its numbers that no double can represent."""

    request: Model
    digits_lost: list[str]


def numbered_body(model: type[Model], *, required: bool = True) -> Body[Numbered[Model]]:
    """:func:`json_body` of a request whose numbers an execution keeps."""
    body = json_body(model, required=required)
    return Body(body.media, lambda data, media: Numbered(body.read(data, media), digits_lost(data)), required=required)


def yaml_body() -> Body[bytes]:
    """The text of a playbook or another YAML document, as bytes."""
    schema = {"type": "string", "minLength": 1, "description": "A document in YAML."}
    return Body({YAML: schema}, lambda data, media: data, "playbook", YAML_MEDIA)


def zip_body() -> Body[bytes]:
    schema = {"type": "string", "format": "binary", "description": "A zip file."}
    return Body({ZIP: schema}, lambda data, media: data, "bundle")


def raw_body() -> Body[bytes]:
    """The body of an event as sent, of any type or empty."""
    schema = {"type": "string", "format": "binary", "description": "Whatever the sender sends."}
    return Body({ANY_MEDIA: schema}, lambda data, media: data, "webhook", required=False)


INLINE_BYTES: Final = 16 * 1024
"""The size above which bodies are read in a thread of their own: smaller ones take the loop less than 5 ms."""

LARGE_BYTES: Final = 64 * 1024
"""The most larger bodies held at the same time."""

MAX_BODY_PARTS: Final = 100_000
"""The most texts, keys, lists and objects in a JSON body."""

MAX_BODY_VALUES: Final = 400_000
"""The most values in a JSON body, all of which may be numbers. Decoding is one call that holds the interpreter in any
thread: these two bound its duration.
"""


class BodyReader:
    """Reads bodies, one large one at a time, outside of the event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "noetl-body")

    async def read(self, body: Body[Sent], data: bytes, media: str) -> Sent:
        """Returns the result of ``body.read``, and raises its errors."""
        if len(data) <= INLINE_BYTES:
            return body.read(data, media)
        return await asyncio.get_running_loop().run_in_executor(self._thread, body.read, data, media)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def json_in(data: bytes) -> Any:
    """Plain JSON values.

    Raises:
        HttpProblem: the bytes are not JSON, or contain too many values.
        TooDeep: they nest too deeply.
    """
    if len(data) > INLINE_BYTES:
        _check_parts(data)
    try:
        return codec.decode_value(data)
    except TooDeep as error:
        raise TooDeep(f"the body is {error.message}") from None
    except PayloadRefused as error:
        fault = FaultDocument(error.message, pointer="")
        raise HttpProblem("invalid-request", "The body is not JSON", [fault]) from None


def object_in(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        HttpProblem: the bytes are something else.
    """
    found = json_in(data)
    if not isinstance(found, dict):
        message = "The body is not a JSON object"
        raise HttpProblem("invalid-request", message, [FaultDocument("must be an object", pointer="")])
    return found


def pointer_to(keys: tuple[int | str, ...]) -> str:
    """The JSON pointer (RFC 6901) of a value."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def validated(model: type[Model], data: bytes) -> Model:
    """Reads a model from JSON.

    Raises:
        HttpProblem: it lists each place that does not match.
    """
    found = json_in(data)  # the codec is stricter than Pydantic: no NaN
    if isinstance(found, dict) and len(found) > len(model.model_fields) + MAX_FAULTS:
        # Pydantic would report each key, in one uninterruptible call.
        unknown = found.keys() - model.model_fields
        faults = [FaultDocument(UNKNOWN_KEY, pointer=pointer_to((key,))) for key in islice(unknown, MAX_FAULTS)]
        raise HttpProblem("invalid-request", MISMATCH, faults, left_out=len(unknown) - MAX_FAULTS)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        faults = [
            FaultDocument(found["msg"], pointer=pointer_to(found["loc"]))
            for found in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise HttpProblem("invalid-request", MISMATCH, faults) from None


def _check_parts(data: bytes) -> None:
    """Checks the number of parts by counting bytes, even in texts: unescaped quotes, opening brackets, commas."""
    quotes = data.count(b'"') - data.count(b'\\"')
    if data.count(b"[") + data.count(b"{") + quotes // 2 > MAX_BODY_PARTS:
        message = f"The body has more than {MAX_BODY_PARTS} texts, keys, lists and objects"
        raise HttpProblem("too-large", message, hint="send less")
    if data.count(b",") >= MAX_BODY_VALUES:
        raise HttpProblem("too-large", f"The body has {MAX_BODY_VALUES} commas or more", hint="send fewer values")


BODY_S: Final = 60.0
"""The time in which a body must arrive: meanwhile its request counts as under way."""


def is_large(request: web.Request) -> bool:
    """Whether the body of a request exceeds :data:`LARGE_BYTES`, or has an unknown length."""
    length = request.content_length
    return request.can_read_body and (length is None or length > LARGE_BYTES)


def most_bytes(body: Body[Any], request: web.Request, limits: GatewayLimits) -> int:
    """The most bytes of the request that may be held in memory."""
    if not body.media or not request.can_read_body:
        return 0
    _, limit = limits.body(body.size)
    return limit if request.content_length is None else min(request.content_length, limit)


async def read_body(body: Body[Any], request: web.Request, limits: GatewayLimits) -> tuple[bytes, str]:
    """The bytes of the body and their media type; nothing is read for a route without a body.

    Raises:
        HttpProblem: the body is too large, too slow, broken, or of a type that is not accepted.
    """
    if not body.media:
        return b"", ""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        hint = "send the body uncompressed"
        raise HttpProblem("unsupported-media-type", f"Content-Encoding {encoding!r} is not supported", hint=hint)
    media = _media(body, request) if request.body_exists else next(iter(body.media))
    return await _bytes(request, body, limits), media


def _media(body: Body[Any], request: web.Request) -> str:
    """The declared media type. Nothing is guessed: a page of another origin can send text without a type."""
    given = request.headers.getall("Content-Type", [])
    if ANY_MEDIA in body.media:
        return ", ".join(given)
    is_text = (request.charset or "utf-8").lower() in ("utf-8", "us-ascii")
    if len(given) == 1 and is_text and body.takes(request.content_type):
        return request.content_type
    words = f"Content-Type {given[0]!r} is not supported here" if given else "The body has no Content-Type"
    raise HttpProblem("unsupported-media-type", words, hint=f"send {' or '.join(body.media)}, in UTF-8")


async def _bytes(request: web.Request, body: Body[Any], limits: GatewayLimits) -> bytes:
    variable, limit = limits.body(body.size)
    if (request.content_length or 0) > limit:
        raise _too_large(variable, limit)
    read = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                read += chunk
                if len(read) > limit:
                    raise _too_large(variable, limit)
    except (web.RequestPayloadError, ConnectionError) as error:
        raise HttpProblem("invalid-request", f"The body cannot be read: {error}") from None
    except TimeoutError:
        raise HttpProblem("invalid-request", f"The body did not arrive within {BODY_S:g} s") from None
    return bytes(read)


def _too_large(variable: str, limit: int) -> HttpProblem:
    return HttpProblem(
        "too-large", f"The body is larger than {limit} bytes ({variable})", hint="send less, or raise the limit"
    )


Place = Literal["path", "query", "header"]
Read = TypeVar("Read", bound="Parameters")

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
    model: type[Read], path: Mapping[str, str], query: MultiMapping[str], headers: CIMultiDictProxy[str]
) -> Read:
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
