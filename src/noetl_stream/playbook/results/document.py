"""Documents of ``kind: Schema``, which are in the catalog beside playbooks (LANGUAGE §15)."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from typing import Annotated, Any

import msgspec

from noetl_stream.playbook.diagnostics import BareLocation, Position, Problems
from noetl_stream.playbook.model.document import check_kind, read_metadata
from noetl_stream.playbook.model.sections import Part, Required, Section, is_null, read_section, recover_keys
from noetl_stream.playbook.results.result_schema import read_json_schema
from noetl_stream.playbook.yaml.nodes import Node


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
    root = recover_keys(root, SchemaRoot, problems)
    top = read_section(root, SchemaRoot, problems, at=BareLocation(Position(1, 1)))
    check_kind(root, "Schema", problems)
    metadata = read_metadata(top.metadata, problems)
    content = None if is_null(top.spec) else read_json_schema(top.spec, "`spec`", problems)
    if content is None:
        return None
    path = metadata.path.removeprefix("/")
    return SchemaDocument(digest, metadata.name, path, metadata.version, metadata.labels or {}, content)
