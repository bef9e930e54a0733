"""The OpenAPI 3.1 document, made from the route table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from inspect import cleandoc
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from noetl_stream.gateway.access.authentication import CSRF_HEADER
from noetl_stream.gateway.http import problems
from noetl_stream.gateway.http.idempotency import HEADER as KEY_HEADER
from noetl_stream.gateway.http.idempotency import KEY
from noetl_stream.gateway.http.problems import KINDS
from noetl_stream.gateway.http.routes import JSON, Answer, AnyRoute
from noetl_stream.ports.operations.problems import ProblemDocument
from noetl_stream.ports.operations.verbs import OpenDocument

HEADERS: Final[dict[str, dict[str, Any]]] = {
    "Location": {"description": "Where to look for it.", "schema": {"type": "string"}},
    "ETag": {"description": "The version, for If-Match.", "schema": {"type": "string"}},
    "Link": {
        "description": 'The next page, as `<…>; rel="next"`, unless this is the last.',
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}},
}

OF_ANY: Final = ("invalid-request", "internal", "unreachable", "query-too-long")
OF_KNOWN: Final = ("unauthenticated", "forbidden", "too-busy", "not-ready", "invalid", "payload-refused")
OF_BODIES: Final = ("too-large", "unsupported-media-type")


def openapi_of(routes: Sequence[AnyRoute], version: str) -> dict[str, Any]:
    """The document. It has every route, and so every address of the gateway."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "noetl-stream",
            "version": version,
            "summary": "Run NoETL playbooks durably, see what they do, and intervene.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": component_schemas(dict.fromkeys(_types(routes))),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API token, or one of your identity provider.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "noetl_session",
                    "description": "A browser session. Its name has the port of the gateway, `noetl_session_8080`. "
                    f"Changes need the header {CSRF_HEADER} too.",
                },
            },
        },
    }


def refusals(route: AnyRoute) -> tuple[str, ...]:
    """The problems a route may answer with, by name."""
    found = (*OF_ANY, *route.refuses)
    if route.role is not None:
        found += OF_KNOWN
    if route.body.media:
        found += OF_BODIES
    if route.takes_key:
        found += ("key-reused",)
    if "{" in route.path:
        found += ("not-found",)
    return tuple(dict.fromkeys(found))


def _types(routes: Sequence[AnyRoute]) -> Iterator[type]:
    yield ProblemDocument
    for route in routes:
        for answer in route.answers.values():
            if answer.document is not None:
                yield answer.document
        for schema in route.body.media.values():
            if isinstance(schema, type):
                yield schema


def _operation(route: AnyRoute) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": list(_parameters(route)),
        "responses": {str(status): _response(answer) for status, answer in route.answers.items()} | _problems(route),
    }
    if route.description:
        operation["description"] = route.description
    if route.reads:
        operation["x-reads"] = True  # may be repeated like a GET
    if route.role is not None:
        operation["security"] = [{"bearer": []}, {"session": []}]
        operation["x-role"] = route.role
    if route.body.media:
        operation["requestBody"] = {
            "required": route.body.required,
            "content": {media: {"schema": _schema(schema)} for media, schema in route.body.media.items()},
        }
    return operation


def _schema(schema: Any) -> dict[str, Any]:
    return {"$ref": REF.format(model=_name_of(schema.__name__))} if isinstance(schema, type) else dict(schema)


def _response(answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.meaning}
    if answer.document is not None:
        found["content"] = {JSON: {"schema": _schema(answer.document)}}
        found["content"] |= {media: {"schema": {"type": "string"}} for media in answer.also}
    elif answer.media != JSON:
        found["content"] = {answer.media.partition(";")[0]: {"schema": {"type": "string"}}}
    if answer.headers:
        found["headers"] = {name: HEADERS[name] for name in answer.headers}
    return found


def _problems(route: AnyRoute) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for name in refusals(route):
        by_status.setdefault(KINDS[name].status, []).append(name)
    found = {}
    for status, names in sorted(by_status.items()):
        meanings = "; ".join(f"`{name}`: {KINDS[name].meaning}" for name in names)
        response: dict[str, Any] = {
            "description": meanings,
            "content": {problems.MEDIA: {"schema": _schema(ProblemDocument)}},
        }
        if status in route.answers:
            own = _response(route.answers[status])
            response = {
                "description": f"{own['description']}; or {meanings}",
                "content": {**own.get("content", {}), **response["content"]},
            }
        if status in (429, 503):
            response["headers"] = {"Retry-After": HEADERS["Retry-After"]}
        found[str(status)] = response
    return found


def _parameters(route: AnyRoute) -> Iterator[dict[str, Any]]:
    shown = route.parameters.model_json_schema(ref_template=REF)
    required = shown.get("required", ())
    for field, schema in shown.get("properties", {}).items():
        place, name = route.parameters.places[field]
        plain = _without_null(schema)
        plain.pop("title", None)
        parameter = {"name": name, "in": place, "required": field in required, "schema": plain}
        if "description" in plain:
            parameter["description"] = plain.pop("description")
        yield parameter
    if route.takes_key:
        yield {
            "name": KEY_HEADER,
            "in": "header",
            "required": False,
            "description": "Repeating the call with the same key does nothing twice, and gives the same answer.",
            "schema": {"type": "string", "pattern": f"^{KEY.pattern}$"},
        }


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that may be omitted cannot be null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default") or not kinds}
    return kinds[0] | rest if len(kinds) == 1 else rest


REF: Final = "#/components/schemas/{model}"
SUFFIX: Final = "Document"
"""The suffix of the names of answers, which distinguishes them from their contents."""

_ROLE: Final = re.compile(r":[a-z]+:`~?(?:[\w.]+\.)?(\w+)`")


def component_schemas(kinds: Iterable[type]) -> dict[str, Any]:
    """The components of all these structs and models, and of their parts."""
    models = [kind for kind in kinds if issubclass(kind, BaseModel)]
    structs = [kind for kind in kinds if not issubclass(kind, BaseModel)]
    _, bodies = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    _, answers = msgspec.json.schema_components(structs, ref_template=REF.format(model="{name}"))
    is_open = {kind.__name__ for kind in structs if issubclass(kind, OpenDocument)}
    found: dict[str, Any] = dict(bodies.get("$defs", {}))
    for name, schema in answers.items():
        found[_name_of(name)] = {**_plain(schema), "title": _name_of(name), "additionalProperties": name in is_open}
    return found


def _name_of(name: str) -> str:
    return name.removesuffix(SUFFIX)


def _plain(schema: Any) -> Any:
    """The schema of a struct with the names and words of the document."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _plain(value) for key, value in schema.items()}
    if "$ref" in found:
        found["$ref"] = _name_of(found["$ref"])
    if isinstance(found.get("description"), str):
        found["description"] = _ROLE.sub(r"`\1`", cleandoc(found["description"])).replace("``", "`")
    if all(isinstance(one, str) for one in found.get("enum", [0])):
        found["type"] = "string"
    return found
