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

PACKAGE: Final = Path(__file__).resolve().parents[1] / "clients" / "python" / "src" / "noetl_stream_client"
MADE: Final = "Made by scripts/client_code.py: do not edit."
WIDTH: Final = 110

WITHOUT_ASYNC: Final = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAwaitable\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", r"\1"),
    (r"\bfrom asyncio import sleep\b", "from time import sleep"),
    (r" +from asyncio import to_thread\n\n", ""),
    (r"\bto_thread\(([\w.]+)\)", r"\1()"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\b(aclosing|aclose|aread|aiter_bytes)\b", lambda found: found[1][1:]),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\banext\b", "next"),
    (r"\b_async\b", "_sync"),
)
"""The phrases of modules with ``async``, and their replacements in the modules without."""


def client_code() -> dict[Path, str]:
    """The generated modules, by their paths."""
    described = api_document()
    verbs = list(verbs_of(described))
    found = {
        PACKAGE / "documents.py": _documents(documents_of(described)),
        PACKAGE / "problems.py": _problems(),
        PACKAGE / "routes.py": _routes_module(verbs),
        PACKAGE / "_async" / "verbs.py": _verbs_module(verbs),
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

FEED_EVENT: Final = '''

class FeedEvent(Event, frozen=True, kw_only=True):
    """An event of all executions. ``feed_id`` is its place among them: a reader goes on after it."""

    feed_id: str = ""
'''

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
    structs = "".join(_struct(name, one) for name, one in schemas.items() if one.get("properties"))
    return f"{head}{structs}{FEED_EVENT}\n\n{OPEN}"


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


def _kind(argument: ApiArgument) -> str:
    """The type of an argument."""
    if argument.is_duration:
        return "timedelta | str"
    if argument.is_pairs:
        return "Mapping[str, object] | Sequence[str]"
    found = " | ".join(_type_of(one, "documents.") for one in argument.kinds)
    if argument.kinds[0].get("type") == "array":
        return found.replace("list[", "Sequence[", 1)
    return found.replace("dict[", "Mapping[", 1) if found.startswith("dict[") else found


def _returned(verb: ApiVerb) -> str:
    return {"text": "str", "none": "None", "object": "dict[str, Any]"}.get(verb.answer, f"documents.{verb.answer}")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _routes_module(verbs: list[ApiVerb]) -> str:
    rows = "".join(f"    {_snake(verb.operation)!r}: {_route(verb)},\n" for verb in verbs)
    return f'''"""The places of verbs in the HTTP API, and of their arguments. {MADE}"""

from __future__ import annotations

from typing import Final

from noetl_stream_client.calls import Route

HEADERS: Final = {HEADERS!r}
"""Arguments that are headers."""

ROUTES: Final = {{
{rows}}}
'''


def _route(verb: ApiVerb) -> str:
    given = {name: tuple(map(_python_name, one)) if isinstance(one, list) else one for name, one in verb.route.items()}
    return (
        f"Route({', '.join([repr(verb.method), repr(verb.path), *(f'{key}={one!r}' for key, one in given.items())])})"
    )


def _verbs_module(verbs: list[ApiVerb]) -> str:
    start = next(one for one in verbs if one.operation == "startExecution")
    given = [one for one in (*start.body, *start.headers) if one.name not in ("path", "workload")]
    options = "\n".join(f"    {one.name}: {_kind(one)}" for one in given)
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


def _method(verb: ApiVerb) -> str:
    first = [f"{_python_name(one.name)}: {_kind(one)}" for one in verb.places]
    if verb.whole is not None:
        first.append(f"{verb.whole.name}: {'str | bytes' if verb.whole.name == 'source' else _kind(verb.whole)}")
    rest = [
        f"{_python_name(one.name)}: {_kind(one)}"
        if one.required
        else f"{_python_name(one.name)}: {_or_none(_kind(one))} = None"
        for one in verb.arguments
    ]
    if len(verb.media) > 1:
        rest.append(f"media: Literal[{', '.join(map(repr, verb.media))}] = {verb.media[0]!r}")
    if verb.takes_key:
        rest.append("request_id: str | None = None")
    signature, returned = ", ".join(["self", *first, *(["*", *rest] if rest else [])]), _returned(verb)
    name = _snake(verb.operation)
    asked = f"await self._ask({name!r}, {'type(None)' if returned == 'None' else returned}, locals())"
    says = "\n\n".join(filter(None, (verb.says, _explained((*verb.places, *verb.arguments)))))
    return (
        f"    async def {name}({signature}) -> {returned}:\n"
        f"{indent(_docstring(says), '    ')}\n        {asked if returned == 'None' else f'return {asked}'}\n"
    )


def _or_none(kind: str) -> str:
    return kind if kind == "Any" else f"{kind} | None"


def _explained(arguments: tuple[ApiArgument, ...]) -> str:
    lines = [
        fill(f"{_python_name(one.name)}: {one.says}", 104, subsequent_indent="    ") for one in arguments if one.says
    ]
    return "Args:\n" + indent("\n".join(lines), "    ") if lines else ""


# Problems.


def _problems() -> str:
    classes = list(problem_classes())
    written = "\n\n".join(
        f"class {one.name}({one.base or 'ApiError'}):\n{_docstring(one.words)}\n\n"
        f"    code = {one.kind.name!r}\n    status = {one.kind.status}\n"
        for one in classes
    )
    table = ", ".join(f"{kind.name!r}: {next(one.name for one in classes if one.kind is kind)}" for kind in PROBLEMS)
    return f'''"""Refusals of the HTTP API: an exception for each kind of problem. {MADE}"""

from __future__ import annotations

from typing import Final

from noetl_stream_client.errors import ApiError

{written}

PROBLEMS: Final[dict[str, type[ApiError]]] = {{{table}}}
'''


if __name__ == "__main__":
    for file, text in client_code().items():
        file.write_text(text, encoding="utf-8")
