"""``/api/v1/playbooks``: check, register, find, show. A path's slashes are written ``%2F``."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

from pydantic import Field

from noetl_stream.gateway.http.bodies import YAML, yaml_body
from noetl_stream.gateway.http.parameters import InPath, Label, Paged, Parameters, labels_in
from noetl_stream.gateway.http.routes import API, Answer, AnyRoute, Call, Reply, Route
from noetl_stream.ports.operations.playbooks import (
    CheckedDocument,
    GraphDocument,
    PlanDocument,
    PlaybookPage,
    PlaybookVersionsDocument,
    PlaybookWithSourceDocument,
    RegisteredDocument,
)

PLAYBOOKS: Final = f"{API}/playbooks"


class TextNamed(Parameters):
    name: Annotated[str, Field(max_length=256, description="What diagnostics call the text.")] = "playbook"


class Filtering(Paged):
    prefix: Annotated[str, Field(max_length=256, description="What the path begins with.")] = ""
    label: tuple[Label, ...] = ()


class PathAt(Parameters):
    path: Annotated[str, InPath(), Field(min_length=1, max_length=512, description="Slashes are written `%2F`.")]


class VersionAt(PathAt):
    version: Annotated[
        str | None, Field(max_length=256, description="`metadata.version`, or a revision; the latest without it.")
    ] = None


async def check(call: Call[TextNamed, bytes]) -> Reply:
    return Reply(await call.operations.playbooks.check(call.body, call.parameters.name))


async def register(call: Call[TextNamed, bytes]) -> Reply:
    entry = await call.operations.playbooks.register(call.body, call.parameters.name, call.caller.principal)
    address = f"{PLAYBOOKS}/{quote(entry.path, safe='')}?version={quote(entry.known_as, safe='')}"
    return Reply(entry, 201 if entry.created else 200, {"Location": address})


async def page(call: Call[Filtering, None]) -> Reply:
    given = call.parameters
    playbooks = call.operations.playbooks
    return call.page(await playbooks.page(given.prefix, labels_in(given.label), given.limit, given.cursor))


async def get(call: Call[VersionAt, None]) -> Reply:
    return Reply(await call.operations.playbooks.get(call.parameters.path, call.parameters.version))


async def source(call: Call[VersionAt, None]) -> Reply:
    entry = await call.operations.playbooks.get(call.parameters.path, call.parameters.version)
    return Reply(entry.source.encode(), media=f"{YAML}; charset=utf-8")


async def versions(call: Call[PathAt, None]) -> Reply:
    return Reply(PlaybookVersionsDocument(await call.operations.playbooks.versions(call.parameters.path)))


async def plan(call: Call[VersionAt, None]) -> Reply:
    return Reply(await call.operations.playbooks.plan(call.parameters.path, call.parameters.version))


async def graph(call: Call[VersionAt, None]) -> Reply:
    return Reply(await call.operations.playbooks.graph(call.parameters.path, call.parameters.version))


async def delete(call: Call[VersionAt, None]) -> Reply:
    given = call.parameters
    await call.operations.playbooks.delete(given.path, given.version, call.caller.principal)
    return Reply(None, 204)


ONE: Final = PLAYBOOKS + "/{path}"


def _looking(path: str, operation: str, summary: str, handler: Any, answer: Answer) -> AnyRoute:
    return Route(
        "GET", path, operation, summary, role="viewer", handler=handler, answers={200: answer}, parameters=VersionAt
    )


PLAYBOOK_ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route(
        "POST",
        f"{PLAYBOOKS}/check",
        "checkPlaybook",
        "Say what is wrong with a text; nothing is stored",
        role="viewer",
        handler=check,
        answers={200: Answer("What is to be said of it", CheckedDocument)},
        parameters=TextNamed,
        body=yaml_body(),
        reads=True,
    ),
    Route(
        "POST",
        PLAYBOOKS,
        "registerPlaybook",
        "Register a playbook",
        role="author",
        handler=register,
        answers={
            200: Answer("It was registered before", RegisteredDocument, ("Location",)),
            201: Answer("It is new", RegisteredDocument, ("Location",)),
        },
        parameters=TextNamed,
        body=yaml_body(),
        refuses=("playbook-refused", "conflict"),
    ),
    Route(
        "GET",
        PLAYBOOKS,
        "listPlaybooks",
        "List playbooks, the latest version of each",
        role="viewer",
        handler=page,
        answers={200: Answer("A page of them, by path", PlaybookPage, ("Link",))},
        parameters=Filtering,
    ),
    _looking(ONE, "getPlaybook", "A playbook with its text", get, Answer("It", PlaybookWithSourceDocument)),
    _looking(f"{ONE}/source", "getSource", "Its text alone", source, Answer("As it was registered", media=YAML)),
    _looking(f"{ONE}/plan", "getPlan", "What it compiles to", plan, Answer("The plan", PlanDocument)),
    _looking(f"{ONE}/graph", "getGraph", "Its steps and arcs", graph, Answer("The graph", GraphDocument)),
    Route(
        "GET",
        f"{ONE}/versions",
        "listVersions",
        "Every version of a playbook",
        role="viewer",
        handler=versions,
        answers={200: Answer("All of them", PlaybookVersionsDocument)},
        parameters=PathAt,
    ),
    Route(
        "DELETE",
        ONE,
        "deletePlaybook",
        "Take a version, or without one all of them, out of the catalog",
        role="author",
        handler=delete,
        answers={204: Answer("It is gone; executions keep their text")},
        parameters=VersionAt,
    ),
)
