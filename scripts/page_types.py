"""Writes the documents of the HTTP API as TypeScript, for the page: ``python scripts/page_types.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.gateway.http.openapi import component_schemas, openapi_of
from noetl_stream.gateway.resources.session import CallerDocument

TYPES: Final = Path(__file__).resolve().parents[1] / "web" / "src" / "api" / "types.ts"
HEAD: Final = "// The documents of the HTTP API. Made by scripts/page_types.py: do not edit.\n"


def page_types() -> str:
    """The text of the file."""
    schemas = openapi_of(RESOURCES, "")["components"]["schemas"] | component_schemas([CallerDocument])
    return HEAD + "".join(f"\n{_declaration(name, schema)}" for name, schema in sorted(schemas.items()))


def _declaration(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return f"export type {name} = {_type_of(schema)}\n"
    return f"export interface {name} {_fields(schema)}\n"


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    fields = "".join(
        f"  {_key(name)}{'' if name in required else '?'}: {_type_of(one)}\n"
        for name, one in schema["properties"].items()
    )
    return f"{{\n{fields}}}"


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _type_of(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "unknown"
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " | ".join(dict.fromkeys(_type_of(one) for one in schema[choice]))
    match schema.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            inner = _type_of(schema.get("items"))
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case "object":
            return f"Record<string, {_type_of(schema.get('additionalProperties'))}>"
    return "unknown"


if __name__ == "__main__":
    TYPES.write_text(page_types(), encoding="utf-8")
