"""Other documents of the catalog (LANGUAGE §15): schemas; and the common keys of schedules and triggers, with their
JSON Schema (draft 2020-12), which is made from the models that the reader uses.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingOf
from typing import Annotated, Any, ClassVar, Final, TypeVar

import msgspec
from pydantic import TypeAdapter

from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.model.document import API_VERSION, Metadata, check_address, check_kind, read_metadata
from noetl_stream.playbook.model.sections import MAPPING, Part, Required, Schema, Section, described, is_null, or_null
from noetl_stream.playbook.results.result_schema import DIALECT, read_json_schema
from noetl_stream.playbook.yaml.nodes import Node

MAX_ENTRIES: Final = 1000
"""The most entries of a list in a document."""

TEXT: Final[Schema] = {"type": "string"}
NAME: Final[Schema] = {"type": "string", "pattern": r"[^\s/]", "maxLength": MAX_PATH_CHARS}


class Shaped(msgspec.Struct, frozen=True):
    """Marks a key whose value has a schema that is made on demand."""

    make: Callable[[], Schema]


def texts(item: Schema, most: int = MAX_ENTRIES, least: int = 1) -> Schema:
    """A list of texts, or null."""
    return or_null({"type": "array", "items": item, "minItems": least, "maxItems": most})


def _described(description: str, schema: Schema) -> Schema:
    return {"description": description, **schema}


_METADATA: Final[Schema] = {
    "type": "object",
    "properties": {
        "name": _described("A name for people.", NAME),
        "path": _described("The place in the catalog: names separated by slashes.", NAME),
        "version": _described("A registered version never changes.", or_null(TEXT)),
        "description": _described("What it is for; shown in lists.", or_null(TEXT)),
        "tags": _described("Words for people.", texts(TEXT, least=0)),
        "labels": _described("Scalars by which it is found.", MAPPING),
        "annotations": _described("Anything else; the engine does not read it.", MAPPING),
    },
    "additionalProperties": False,
    "required": ["name", "path"],
}


class CatalogRoot(Section):
    """Base of the models of documents. A subclass defines ``kind`` and ``spec``."""

    noun: ClassVar[str]

    apiVersion: Annotated[str | None, Required("apiVersion: noetl.io/v2")] = described(  # noqa: N815 - the key's name
        "The version of the language.", {"const": API_VERSION}
    )
    kind: str | None = None
    metadata: Annotated[Part, Required("metadata: { name: …, path: … }")] = described(
        "Its name, and its place in the catalog.", _METADATA
    )
    spec: Part = None


Root = TypeVar("Root", bound=CatalogRoot)


def read_head(root: Node, model: type[Root], problems: Problems) -> tuple[Root, Metadata]:
    root = model.recover(root, problems)
    top = model.from_node(root, problems, at=BareLocation(Position(1, 1)))
    check_kind(root, model.noun.capitalize(), problems)
    metadata = read_metadata(top.metadata, problems)
    check_address(root, problems)
    return top, metadata


def document_schema(model: type[CatalogRoot]) -> Schema:
    """The schema of a kind of documents."""
    return {"$schema": DIALECT, "title": f"NoETL {model.noun}", **schema_of(model)}


def schema_of(model: type[Section]) -> Schema:
    """The schema of a mapping."""
    properties: Schema = {}
    required = []
    for name, field in model.model_fields.items():
        key, schema = field.alias or name, field.json_schema_extra
        for mark in field.metadata:
            if isinstance(mark, Required):
                required.append(key)
            elif isinstance(mark, Shaped):
                schema = mark.make()
        if not isinstance(schema, dict):
            annotation: Any = field.annotation
            schema = TypeAdapter(annotation).json_schema()
        properties[key] = _described(field.description or "", schema)
    mapping = {"type": "object", "properties": properties, "additionalProperties": False, "required": required}
    return {**mapping, **model.schema_rules}


class SchemaRoot(Section):
    title = "the schema"

    apiVersion: Annotated[str | None, Required("apiVersion: noetl.io/v2")] = None  # noqa: N815 - the key's name
    kind: Annotated[str | None, Required("kind: Schema")] = None
    metadata: Annotated[Part, Required("metadata: { name: …, path: … }")] = None
    spec: Annotated[Part, Required("spec: { type: object, properties: { … } }")] = None


class SchemaDocument(msgspec.Struct, frozen=True):
    """A document of ``kind: Schema``: a JSON Schema with an address. ``labels`` are ``metadata.labels``."""

    digest: str
    name: str
    path: str
    version: str | None
    labels: MappingOf[str, Any]
    content: dict[str, Any]


def read_schema_document(root: Node, digest: str, problems: Problems) -> SchemaDocument | None:
    """Reads a schema document; ``None``, after reporting, if its schema has problems."""
    root = SchemaRoot.recover(root, problems)
    top = SchemaRoot.from_node(root, problems, at=BareLocation(Position(1, 1)))
    check_kind(root, "Schema", problems)
    metadata = read_metadata(top.metadata, problems)
    content = None if is_null(top.spec) else read_json_schema(top.spec, "`spec`", problems)
    if content is None:
        return None
    path = metadata.path.removeprefix("/")
    return SchemaDocument(digest, metadata.name, path, metadata.version, metadata.labels or {}, content)
