"""The verbs, documents and problems of the HTTP API, as input of the generators of clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from noetl_stream.errors import NoetlError
from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.gateway.http.openapi import component_schemas, openapi_of
from noetl_stream.gateway.resources.session import CallerDocument
from noetl_stream.gateway.resources.system import system_routes
from noetl_stream.gateway.status_report import GatewayStatus
from noetl_stream.model.envelope import EventDocument
from noetl_stream.ports.operations.problems import PROBLEMS, ProblemKind
from noetl_stream.ports.operations.verbs import API

OF_BROWSERS: Final = ("signIn", "signOut")
"""Operations that are of no use with a token."""

HEADERS: Final = {
    "reason": "X-Reason",
    "correlation_id": "X-Correlation-Id",
    "if_match": "If-Match",
    "traceparent": "traceparent",
}
"""Arguments that are sent as headers."""

EVENTS: Final = "text/event-stream"
OCTETS: Final = "application/octet-stream"
"""What clients read piece by piece."""

JSON: Final = "application/json"
KEY: Final = "Idempotency-Key"
DURATION: Final = "^([0-9]{1,9}"
PAIRS: Final = "^[^=]+="


class ApiArgument(NamedTuple):
    """An argument of a verb. ``kinds`` are the schemas of its value without ``null``."""

    name: str
    kinds: tuple[dict[str, Any], ...]
    required: bool = False
    says: str = ""

    @property
    def is_duration(self) -> bool:
        return str(self.kinds[0].get("pattern", "")).startswith(DURATION)

    @property
    def is_pairs(self) -> bool:
        """Whether the argument is a list of labels, sent as ``name=value``."""
        return str(self.kinds[0].get("items", {}).get("pattern", "")).startswith(PAIRS)


class ApiVerb(NamedTuple):
    """A verb.

    Attributes:
        reads: Whether it changes nothing, though it is no GET.
        whole: The argument that is the whole body.
        answer: The name of the document that it answers with, or ``text``, ``object``, ``bytes``, ``none``.
        next: The argument that leads to the next page, if it has pages.
    """

    operation: str
    method: str
    path: str
    says: str
    places: tuple[ApiArgument, ...]
    query: tuple[ApiArgument, ...]
    headers: tuple[ApiArgument, ...]
    body: tuple[ApiArgument, ...]
    whole: ApiArgument | None
    media: tuple[str, ...]
    takes_key: bool
    reads: bool
    answer: str
    next: str

    @property
    def arguments(self) -> list[ApiArgument]:
        """The arguments without those in the path and in a whole body; required ones first."""
        return sorted([*self.body, *self.query, *self.headers], key=lambda one: not one.required)

    @property
    def route(self) -> dict[str, Any]:
        """The places of its arguments, without empty ones."""
        found: dict[str, Any] = {
            "query": [one.name for one in self.query],
            "body": [one.name for one in self.body],
            "whole": self.whole.name if self.whole else "",
            "pairs": [one.name for one in (*self.query, *self.body) if one.is_pairs],
            "media": self.media[0] if self.media and self.media[0] != JSON else "",
            "takes_key": self.takes_key,
            "reads": self.reads,
            "bytes": self.answer == "bytes",
            "next": self.next,
        }
        return {name: value for name, value in found.items() if value}


def api_document() -> dict[str, Any]:
    """The OpenAPI document, with the documents of events and of the caller among its components."""
    found = openapi_of([*RESOURCES, *system_routes(cast(GatewayStatus, None), dict)], "")
    found["components"]["schemas"] |= component_schemas([EventDocument, CallerDocument])
    return found


def documents_of(described: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The schemas of the responses of the API, by name."""
    schemas = described["components"]["schemas"]
    return {name: one for name, one in sorted(schemas.items()) if not name.endswith("Request")}


def verbs_of(
    described: dict[str, Any], *, of_browsers: bool = False, with_downloads: bool = False
) -> Iterator[ApiVerb]:
    """The verbs that a token opens, streams of events aside.

    Args:
        of_browsers: Whether those of a browser's session are among them.
        with_downloads: Whether those that answer with bytes are.
    """
    streamed = (EVENTS,) if with_downloads else (EVENTS, OCTETS)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            is_stream = any(media in str(operation["responses"]) for media in streamed)
            is_of_browsers = operation["operationId"] in OF_BROWSERS
            is_offered = of_browsers if is_of_browsers else "x-role" in operation
            if path.startswith(f"{API}/") and is_offered and not is_stream:
                yield _verb(method.upper(), path, operation, described["components"]["schemas"])


def _verb(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> ApiVerb:
    given = {(one["name"], one["in"]): one for one in operation["parameters"]}
    content = operation.get("requestBody", {}).get("content", {})
    first: dict[str, Any] = next((one["schema"] for one in content.values()), {})
    request = schemas[first["$ref"].rpartition("/")[2]] if "$ref" in first else {}
    whole = None
    if content and not request:
        whole = ApiArgument("changes" if first["type"] == "object" else "source", (first,), True)
    answer, next_by = _answer(operation, schemas)
    return ApiVerb(
        operation=operation["operationId"],
        method=method,
        path=path.removeprefix(API),
        says="\n\n".join(filter(None, (f"{operation['summary']}.", operation.get("description")))),
        places=tuple(_argument(name, given[name, "path"]["schema"], True) for name in re.findall(r"\{(\w+)\}", path)),
        query=tuple(
            _argument(one["name"], one["schema"], one["required"], one.get("description", ""))
            for one in operation["parameters"]
            if one["in"] == "query"
        ),
        headers=tuple(
            ApiArgument(name, ({"type": "string"},)) for name, said in HEADERS.items() if (said, "header") in given
        ),
        body=tuple(
            _argument(key, one, key in request.get("required", ()))
            for key, one in request.get("properties", {}).items()
        ),
        whole=whole,
        media=tuple(content),
        takes_key=(KEY, "header") in given,
        reads=operation.get("x-reads", False),
        answer=answer,
        next=next_by,
    )


def _answer(operation: dict[str, Any], schemas: dict[str, Any]) -> tuple[str, str]:
    """The answer of a verb, and the argument of the next page."""
    good = [one for status, one in sorted(operation["responses"].items()) if status < "300"]
    content = good[0].get("content", {})
    schema = content.get(JSON, {}).get("schema")
    if OCTETS in content:
        return "bytes", ""
    if schema is None:
        return "text" if content else "none", ""
    name = schema["$ref"].rpartition("/")[2]
    properties = schemas[name].get("properties", {})
    if not properties:
        return "object", ""
    parameters = {one["name"] for one in operation["parameters"]}
    has_pages = "items" in properties and {"type": "null"} in properties.get("next", {}).get("anyOf", ())
    by = next((one for one in ("cursor", "after", "first") if one in parameters), "")
    return name, by if has_pages else ""


def _argument(name: str, schema: dict[str, Any], required: bool, says: str = "") -> ApiArgument:
    kinds = tuple(one for one in schema.get("anyOf", (schema,)) if one.get("type") != "null")
    return ApiArgument(name, kinds, required, says or kinds[0].get("description", schema.get("description", "")))


class ProblemClass(NamedTuple):
    """The exception of a kind of problem. ``base`` is the kind that it is a case of; empty without one."""

    name: str
    base: str
    kind: ProblemKind

    @property
    def words(self) -> str:
        return f"{self.kind.meaning}. {self.kind.words}".replace("?.", "?")


def problem_classes() -> Iterator[ProblemClass]:
    """The exceptions, each after its base, in the hierarchy of the program's errors."""
    known: dict[type[NoetlError], str] = {}
    left = list(PROBLEMS)
    while left:
        kind = next(one for one in left if _base(one, known, left) is not None)
        left.remove(kind)
        found = ProblemClass(_class_name(kind), _base(kind, known, left) or "", kind)
        known.setdefault(kind.error, found.name)
        yield found


def _class_name(kind: ProblemKind) -> str:
    """The name of the error on the command line, for the first kind of the error."""
    first = next(one for one in PROBLEMS if one.error is kind.error)
    if first is kind and kind.error is not NoetlError:
        return kind.error.__name__
    return "".join(part.capitalize() for part in kind.name.split("-"))


def _base(kind: ProblemKind, known: dict[type[NoetlError], str], left: list[ProblemKind]) -> str | None:
    """The base of this exception; ``None`` if it is not written yet."""
    waiting = {one.error for one in left if one is not kind}
    for error in kind.error.__mro__:
        if error in known:
            return known[error]
        if error is not kind.error and error in waiting and error is not NoetlError:
            return None
    return ""
