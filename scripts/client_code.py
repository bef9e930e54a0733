"""Writes the generated modules of the Python client: ``python scripts/client_code.py``.

Documents, verbs and problems are made from the OpenAPI document, which is made from the verbs of the operations; the
modules without ``async`` are made from those with it.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill, indent
from typing import Any, Final, NamedTuple, cast

from noetl_stream.errors import NoetlError
from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.gateway.http.openapi import component_schemas, openapi_of
from noetl_stream.gateway.resources.system import system_routes
from noetl_stream.gateway.status_report import GatewayStatus
from noetl_stream.model.envelope import EventDocument
from noetl_stream.ports.operations.problems import PROBLEMS, ProblemKind
from noetl_stream.ports.operations.verbs import API

PACKAGE: Final = Path(__file__).resolve().parents[1] / "clients" / "python" / "src" / "noetl_stream_client"
MADE: Final = "Made by scripts/client_code.py: do not edit."
WIDTH: Final = 110

OF_BROWSERS: Final = ("signOut",)
OF_CALL: Final = {
    "X-Reason": "reason",
    "X-Correlation-Id": "correlation_id",
    "If-Match": "if_match",
    "traceparent": "traceparent",
}
"""Headers that callers give, each as a parameter."""

JSON: Final = "application/json"
KEY: Final = "Idempotency-Key"
DURATION: Final = "^([0-9]{1,9}"
PAIRS: Final = "^[^=]+="

WITHOUT_ASYNC: Final = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\bfrom asyncio import sleep\b", "from time import sleep"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b(aclosing|aclose|aread|aiter_bytes)\b", lambda found: found[1][1:]),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\banext\b", "next"),
    (r"\b_async\b", "_sync"),
)
"""What a module with ``async`` says, and what the one without says for it."""


def client_code() -> dict[Path, str]:
    """The generated modules, by their paths."""
    routes = [*RESOURCES, *system_routes(cast(GatewayStatus, None), dict)]
    described = openapi_of(routes, "")
    schemas = described["components"]["schemas"] | component_schemas([EventDocument])
    verbs = list(_verbs(described))
    found = {
        PACKAGE / "documents.py": _documents(schemas),
        PACKAGE / "problems.py": _problems(),
        PACKAGE / "routes.py": _routes_module(verbs),
        PACKAGE / "_async" / "verbs.py": _verbs_module(verbs, schemas),
    }
    found = dict(zip(found, _formatted(list(found.values())), strict=True))
    written = {*(PACKAGE / "_async").glob("[!_]*.py"), PACKAGE / "_async" / "verbs.py"}
    for file in sorted(written):
        text = found.get(file) or file.read_text()
        found[PACKAGE / "_sync" / file.name] = _without_async(text)
    return found


def _formatted(texts: list[str]) -> Iterator[str]:
    ruff = Path(sys.executable).with_name("ruff")
    for text in texts:
        for command in (["check", "--fix-only", "--unsafe-fixes", "--select", "F401,I,UP028", "-"], ["format", "-"]):
            text = subprocess.run(
                [ruff, "--quiet", *command, "--stdin-filename", str(PACKAGE / "x.py")],
                input=text,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        yield text


def _without_async(text: str) -> str:
    for pattern, said in WITHOUT_ASYNC:
        text = re.sub(pattern, said, text)
    head, rest = text.split("\n", 1)
    if MADE not in text:
        head = f"{head}\n# {MADE}" if head.endswith('"""') else head
    return next(_formatted([f"{head}\n{rest}"]))


# Documents.

OPEN: Final = """# A newer gateway may have more values: where documents are read, a Literal is any text.
globals()["Literal"] = AnyText
"""


def _documents(schemas: dict[str, Any]) -> str:
    head = f'''"""The documents of the HTTP API, as msgspec structs. {MADE}"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from noetl_stream_client.open_values import AnyText


class Document(Struct, frozen=True, kw_only=True):
    """Base of what a gateway answers. Keys that it does not know are ignored."""
'''
    answers = {name: one for name, one in sorted(schemas.items()) if not name.endswith("Request")}
    structs = "".join(_struct(name, one) for name, one in answers.items() if one.get("properties"))
    return f"{head}{structs}\n\n{OPEN}"


def _struct(name: str, schema: dict[str, Any]) -> str:
    lines = [f"class {name}(Document, frozen=True, kw_only=True):"]
    if says := schema.get("description"):
        lines.append(_docstring(_plain_words(says)))
    required = schema.get("required", ())
    lines += [f"    {_field(key, one, key in required)}" for key, one in schema["properties"].items()]
    return "\n\n\n" + "\n".join(lines) + "\n"


def _plain_words(text: str) -> str:
    return text.replace("\nAttributes:\n", "\nFields:\n")


def _docstring(text: str) -> str:
    paragraphs = text.strip().split("\n\n")
    filled = [one if "\n    " in one else fill(" ".join(one.split()), WIDTH) for one in paragraphs]
    body = "\n\n".join(filled).replace("\\", "\\\\")
    one_line = "\n" not in body and len(body) <= WIDTH
    return indent(f'"""{body}"""' if one_line else f'"""{body}\n"""', "    ")


def _field(key: str, schema: dict[str, Any], required: bool) -> str:
    name, kind = _python_name(key), _type_of(schema)
    given: dict[str, str] = {} if name == key else {"name": json.dumps(key)}
    if not required:
        if "default" not in schema:
            plain = kind.removesuffix(" | None")
            kind, given["default"] = f"{plain} | UnsetType{kind.removeprefix(plain)}", "UNSET"
        elif not schema["default"] and isinstance(schema["default"], list | tuple | dict):
            builtin = next((one for one in ("list", "dict") if kind.startswith(f"{one}[")), None)
            given["default_factory"] = builtin or f"lambda: {kind}()"
        else:
            given["default"] = repr(schema["default"])
    if not given:
        return f"{name}: {kind}"
    if given.keys() == {"default"}:
        return f"{name}: {kind} = {given['default']}"
    return f"{name}: {kind} = field({', '.join(f'{one}={value}' for one, value in given.items())})"


def _python_name(key: str) -> str:
    name = key.replace("-", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


def _type_of(schema: Any, prefix: str = "") -> str:
    if not isinstance(schema, dict) or not schema:
        return "Any"
    if "$ref" in schema:
        return prefix + str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(_type_of(one, prefix) for one in choices))
    match schema.get("type"):
        case "string":
            return "datetime" if schema.get("format") == "date-time" else "str"
        case "integer":
            return "int"
        case "number":
            return "float"
        case "boolean":
            return "bool"
        case "null":
            return "None"
        case "array":
            return f"list[{_type_of(schema.get('items'), prefix)}]"
        case "object":
            more = schema.get("additionalProperties")
            return f"dict[str, {_type_of(more, prefix)}]"
    return "Any"


# Verbs.


class VerbArgument(NamedTuple):
    """A parameter of a method, and its type. ``is_pairs``: labels, sent as ``name=value``."""

    name: str
    kind: str
    required: bool = False
    says: str = ""
    is_pairs: bool = False


class ClientVerb(NamedTuple):
    """A method of the client. ``next`` is the parameter that leads to the next page, if it has pages."""

    name: str
    method: str
    path: str
    says: str
    places: tuple[VerbArgument, ...]
    query: tuple[VerbArgument, ...]
    headers: tuple[VerbArgument, ...]
    body: tuple[VerbArgument, ...]
    whole: VerbArgument | None
    media: tuple[str, ...]
    takes_key: bool
    answer: str
    next: str

    @property
    def arguments(self) -> list[VerbArgument]:
        """All but those in its path and a body that is one argument; those that are required first."""
        return sorted([*self.body, *self.query, *self.headers], key=lambda one: not one.required)


def _verbs(described: dict[str, Any]) -> Iterator[ClientVerb]:
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            is_stream = "text/event-stream" in str(operation["responses"])
            is_offered = "x-role" in operation and operation["operationId"] not in OF_BROWSERS
            if path.startswith(f"{API}/") and is_offered and not is_stream:
                yield _verb(method.upper(), path, operation, schemas)


def _verb(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> ClientVerb:
    given = {(one["name"], one["in"]): one for one in operation["parameters"]}
    content = operation.get("requestBody", {}).get("content", {})
    answer, next_by = _answer(operation, schemas)
    body: tuple[VerbArgument, ...] = ()
    whole = None
    first: dict[str, Any] = next((one["schema"] for one in content.values()), {})
    if "$ref" in first:
        request = schemas[first["$ref"].rpartition("/")[2]]
        required = request.get("required", ())
        body = tuple(_argument(key, one, key in required) for key, one in request["properties"].items())
    elif content:
        kind, name = ("Mapping[str, Any]", "changes") if first["type"] == "object" else ("str | bytes", "source")
        whole = VerbArgument(name, kind, True)
    return ClientVerb(
        name=_snake(operation["operationId"]),
        method=method,
        path=path.removeprefix(API),
        says="\n\n".join(filter(None, (f"{operation['summary']}.", operation.get("description")))),
        places=tuple(_argument(name, given[name, "path"]["schema"], True) for name in re.findall(r"\{(\w+)\}", path)),
        query=tuple(
            _argument(one["name"], one["schema"], one["required"], one.get("description", ""))
            for one in operation["parameters"]
            if one["in"] == "query"
        ),
        headers=tuple(VerbArgument(said, "str") for name, said in OF_CALL.items() if (name, "header") in given),
        body=body,
        whole=whole,
        media=tuple(content),
        takes_key=(KEY, "header") in given,
        answer=answer,
        next=next_by,
    )


def _answer(operation: dict[str, Any], schemas: dict[str, Any]) -> tuple[str, str]:
    """What a method returns, and the parameter that leads to the next page."""
    good = [one for status, one in sorted(operation["responses"].items()) if status < "300"]
    content = good[0].get("content", {})
    schema = content.get(JSON, {}).get("schema")
    if schema is None:
        return "str" if content else "None", ""
    name = schema["$ref"].rpartition("/")[2]
    properties = schemas[name].get("properties", {})
    if not properties:
        return "dict[str, Any]", ""
    parameters = {one["name"] for one in operation["parameters"]}
    has_pages = "items" in properties and {"type": "null"} in properties.get("next", {}).get("anyOf", ())
    by = next((one for one in ("cursor", "after", "first") if one in parameters), "")
    return f"documents.{name}", by if has_pages else ""


def _argument(key: str, schema: dict[str, Any], required: bool, says: str = "") -> VerbArgument:
    choices = [one for one in schema.get("anyOf", (schema,)) if one.get("type") != "null"]
    one = choices[0]
    kind = " | ".join(_type_of(choice, "documents.") for choice in choices)
    is_pairs = one.get("type") == "array" and one["items"].get("pattern", "").startswith(PAIRS)
    if str(one.get("pattern", "")).startswith(DURATION):
        kind = "timedelta | str"
    elif is_pairs:
        kind = "Mapping[str, object] | Sequence[str]"
    elif one.get("type") == "array":
        kind = kind.replace("list[", "Sequence[", 1)
    elif one.get("type") == "object" and len(choices) == 1:
        kind = kind.replace("dict[", "Mapping[", 1)
    says = says or one.get("description", schema.get("description", ""))
    return VerbArgument(_python_name(key), kind, required, says, is_pairs)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _routes_module(verbs: list[ClientVerb]) -> str:
    headers = {said: name for name, said in OF_CALL.items()}
    rows = "".join(f"    {verb.name!r}: {_route(verb)},\n" for verb in verbs)
    return f'''"""The places of verbs in the HTTP API, and of their arguments. {MADE}"""

from __future__ import annotations

from typing import Final

from noetl_stream_client.calls import Route

HEADERS: Final = {headers!r}
"""Arguments that are headers."""

ROUTES: Final = {{
{rows}}}
'''


def _route(verb: ClientVerb) -> str:
    found: dict[str, Any] = {
        "query": tuple(one.name for one in verb.query),
        "body": tuple(one.name for one in verb.body),
        "whole": verb.whole.name if verb.whole else "",
        "pairs": tuple(one.name for one in (*verb.query, *verb.body) if one.is_pairs),
        "media": verb.media[0] if verb.media and verb.media[0] != JSON else "",
        "takes_key": verb.takes_key,
        "next": verb.next,
    }
    given = "".join(f", {name}={value!r}" for name, value in found.items() if value)
    return f"Route({verb.method!r}, {verb.path!r}{given})"


def _verbs_module(verbs: list[ClientVerb], schemas: dict[str, Any]) -> str:
    start = schemas["StartRequest"]["properties"]
    arguments = [_argument(key, one, False) for key, one in start.items() if key not in ("path", "workload")]
    arguments += [VerbArgument(said, "str") for said in OF_CALL.values() if said != "if_match"]
    options = "\n".join(f"    {one.name}: {one.kind}" for one in arguments)
    return f'''"""The verbs of the HTTP API, a method each. {MADE}"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from noetl_stream_client._async.asking import AsyncAsking
from noetl_stream_client.lazy import LazyModule

if TYPE_CHECKING:
    from noetl_stream_client import documents
else:
    documents = LazyModule("noetl_stream_client.documents")


class StartOptions(TypedDict, total=False):
    """How to start an execution, beside its path and workload."""

{options}


class AsyncVerbs(AsyncAsking):
    """The verbs of the HTTP API by their operation ids. What is ``None`` is not sent; ``request_id`` is the
    Idempotency-Key: asking again with it does nothing twice, and one is drawn where none is given.

    Each raises :class:`~noetl_stream_client.problems.ApiError` for a refusal.
    """

''' + "\n".join(map(_method, verbs))


def _method(verb: ClientVerb) -> str:
    first = [f"{one.name}: {one.kind}" for one in (*verb.places, *([verb.whole] if verb.whole else ()))]
    rest = [
        f"{one.name}: {one.kind}" if one.required else f"{one.name}: {_or_none(one.kind)} = None"
        for one in verb.arguments
    ]
    if len(verb.media) > 1:
        rest.append(f"media: Literal[{', '.join(map(repr, verb.media))}] = {verb.media[0]!r}")
    if verb.takes_key:
        rest.append("request_id: str | None = None")
    signature = ", ".join(["self", *first, *(["*", *rest] if rest else [])])
    kind = {"str": "str", "None": "type(None)"}.get(verb.answer, verb.answer)
    asked = f"await self._ask({verb.name!r}, {kind}, locals())"
    says = "\n\n".join(filter(None, (verb.says, _explained((*verb.places, *verb.arguments)))))
    return (
        f"    async def {verb.name}({signature}) -> {verb.answer}:\n"
        f"{indent(_docstring(says), '    ')}\n        {asked if verb.answer == 'None' else f'return {asked}'}\n"
    )


def _or_none(kind: str) -> str:
    return kind if kind == "Any" else f"{kind} | None"


def _explained(arguments: tuple[VerbArgument, ...]) -> str:
    lines = [fill(f"{one.name}: {one.says}", 104, subsequent_indent="    ") for one in arguments if one.says]
    return "Args:\n" + indent("\n".join(lines), "    ") if lines else ""


# Problems.


def _problems() -> str:
    named = {kind.name: _problem_name(kind) for kind in PROBLEMS}
    text = f'''"""Refusals of the HTTP API: an exception for each kind of problem. {MADE}"""

from __future__ import annotations

from typing import Final

from noetl_stream_client.errors import ApiError

'''
    by_error: dict[type[NoetlError], str] = {}
    written, left = [], list(PROBLEMS)
    while left:
        kind = next(one for one in left if _base(one, by_error, left) is not None)
        left.remove(kind)
        base, name = _base(kind, by_error, left) or "", named[kind.name]
        by_error.setdefault(kind.error, name)
        words = f"{kind.meaning}. {kind.words}".replace("?.", "?")
        written.append(
            f"class {name}({base}):\n{_docstring(words)}\n\n    code = {kind.name!r}\n    status = {kind.status}\n"
        )
    table = ", ".join(f"{name!r}: {one}" for name, one in named.items())
    return text + "\n\n".join(written) + f"\n\nPROBLEMS: Final[dict[str, type[ApiError]]] = {{{table}}}\n"


def _problem_name(kind: ProblemKind) -> str:
    """That of its error on the command line, for the first kind of the error."""
    first = next(one for one in PROBLEMS if one.error is kind.error)
    if first is kind and kind.error is not NoetlError:
        return kind.error.__name__
    return "".join(part.capitalize() for part in kind.name.split("-"))


def _base(kind: ProblemKind, known: dict[type[NoetlError], str], left: list[ProblemKind]) -> str | None:
    """The exception that this one is a kind of; ``None``: it is not written yet."""
    waiting = {one.error for one in left if one is not kind}
    for error in kind.error.__mro__:
        if error in known:
            return known[error]
        if error is not kind.error and error in waiting and error is not NoetlError:
            return None
    return "ApiError"


if __name__ == "__main__":
    for file, text in client_code().items():
        file.write_text(text, encoding="utf-8")
