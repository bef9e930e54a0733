"""Schemas of the OpenAPI document: of answers, which are msgspec structs, and of bodies, which Pydantic reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from inspect import cleandoc
from typing import Any, Final

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from noetl_stream.ports.operations.documents import OpenDocument

REF: Final = "#/components/schemas/{model}"
SUFFIX: Final = "Document"
"""What the names of answers end in here, so that they differ from what they describe."""

_ROLE: Final = re.compile(r":[a-z]+:`~?(?:[\w.]+\.)?(\w+)`")


def reference_to(kind: type) -> dict[str, Any]:
    """A reference to the component of a struct or model."""
    return {"$ref": REF.format(model=_name_of(kind.__name__))}


def component_schemas(kinds: Iterable[type]) -> dict[str, Any]:
    """The components of all these structs and models, and of those that they are made of."""
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
