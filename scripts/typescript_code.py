"""Writes the generated modules of the TypeScript client: ``python scripts/typescript_code.py``.

The page has its documents from there, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from api_verbs import (
    HEADERS,
    ApiArgument,
    ApiVerb,
    api_document,
    documents_of,
    problem_classes,
    verbs_of,
)
from noetl_stream.ports.operations.problems import PROBLEMS

PACKAGE: Final = Path(__file__).resolve().parents[1] / "clients" / "typescript" / "src"
MADE: Final = "Made by scripts/typescript_code.py: do not edit."

FEED_EVENT: Final = """
/** An event of all executions. `feed_id` is its place among them: a reader goes on after it. */
export interface FeedEvent extends Event {
  feed_id: string
}
"""


def typescript_code() -> dict[Path, str]:
    """The generated modules, by their paths."""
    described = api_document()
    schemas, verbs = (
        described["components"]["schemas"],
        list(verbs_of(described, of_browsers=True, with_downloads=True)),
    )
    documents = documents_of(described)
    return {
        PACKAGE / "documents.ts": f"// The documents of the HTTP API. {MADE}\n"
        + "".join(f"\n{_declaration(name, schema)}" for name, schema in sorted(schemas.items()))
        + FEED_EVENT,
        PACKAGE / "verbs.ts": _verbs_module(verbs, documents),
        PACKAGE / "problems.ts": _problems_module(),
    }


# Documents.


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


def _type_of(schema: Any, prefix: str = "") -> str:
    if not isinstance(schema, dict):
        return "unknown"
    if "$ref" in schema:
        return prefix + str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " | ".join(dict.fromkeys(_type_of(one, prefix) for one in schema[choice]))
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
            inner = _type_of(schema.get("items"), prefix)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case "object":
            return f"Record<string, {_type_of(schema.get('additionalProperties'), prefix)}>"
    return "unknown"


# Verbs.


def _verbs_module(verbs: list[ApiVerb], documents: dict[str, Any]) -> str:
    used = sorted({verb.answer for verb in verbs} & documents.keys())
    methods, imported = "\n".join(map(_method, verbs)), ",\n  ".join(used)
    rows = "".join(f"  {verb.operation}: {_route(verb)},\n" for verb in verbs)
    return f"""// The verbs of the HTTP API, by their operation ids. {MADE}

import type {{
  {imported},
}} from './documents.js'
import type {{ Asked, Changing, Route }} from './transport.js'

/** Each takes its arguments as one object. What is null or undefined is not sent. */
export interface Verbs {{
{methods}}}

/** Arguments that are headers. */
export const HEADERS = {json.dumps(HEADERS)} as const

/** Where verbs are in the HTTP API, and which of their arguments are where. */
export const ROUTES: {{ readonly [Name in keyof Verbs]: Route }} = {{
{rows}}}
"""


def _method(verb: ApiVerb) -> str:
    given = [*verb.places, *([verb.whole] if verb.whole else ()), *verb.arguments]
    fields = [f"{_key(one.name)}{'' if one.required else '?'}: {_kind(one)}" for one in given]
    if len(verb.media) > 1:
        fields.append(f"media?: {' | '.join(map(json.dumps, verb.media))}")
    base = "Changing" if verb.takes_key else "Asked"
    kind = f"{base} & {{ {'; '.join(fields)} }}" if fields else base
    is_needed = any(one.required for one in given)
    answer = {"text": "string", "none": "void", "object": "Record<string, unknown>"}.get(verb.answer, verb.answer)
    returned = "AsyncGenerator<Uint8Array>" if verb.answer == "bytes" else f"Promise<{answer}>"
    says = verb.says.replace("\n\n", " ").replace("*/", "* /")
    return f"  /** {says} */\n  {verb.operation}(given{'' if is_needed else '?'}: {kind}): {returned}\n"


def _kind(argument: ApiArgument) -> str:
    """The type of an argument."""
    found = " | ".join(_type_of(one) for one in argument.kinds)
    if argument.is_pairs:
        found = "Readonly<Record<string, unknown>> | readonly string[]"
    elif argument.kinds[0].get("format") == "date-time":
        found = "Date | string"
    elif found.startswith("Record<"):
        found = f"Readonly<{found}>"
    elif found.endswith("[]"):
        found = f"readonly {found}"
    return found if argument.required else f"{found} | null"


def _route(verb: ApiVerb) -> str:
    given = {"method": verb.method, "path": verb.path, **verb.route}
    return f"{{ {', '.join(f'{key}: {json.dumps(value)}' for key, value in given.items())} }}"


# Problems.


def _problems_module() -> str:
    classes = list(problem_classes())
    written = "\n".join(
        f"/** {one.words} */\nexport class {one.name} extends {one.base or 'ApiError'} {{\n"
        f"  override readonly code: string = '{one.kind.name}'\n"
        f"  override readonly status: number = {one.kind.status}\n}}\n"
        for one in classes
    )
    rows = "".join(f"  '{kind.name}': {next(one.name for one in classes if one.kind is kind)},\n" for kind in PROBLEMS)
    return f"""// Refusals of the HTTP API: an exception for each kind of problem. {MADE}

import {{ ApiError }} from './errors.js'

{written}
export const PROBLEMS: Readonly<Record<string, typeof ApiError>> = {{
{rows}}}
"""


if __name__ == "__main__":
    for file, text in typescript_code().items():
        file.write_text(text, encoding="utf-8")
