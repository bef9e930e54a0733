"""``/api/v1/playbooks``: check, register, find, show. A path's slashes are written ``%2F``."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field

from noetl_stream.gateway.http.bodies import YAML, yaml_body
from noetl_stream.gateway.http.parameters import InPath, Label, Moment, Nothing, Paged, Parameters, labels_in, ms_of
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes
from noetl_stream.ports.operations.graphs import GraphDocument
from noetl_stream.ports.operations.playbooks import (
    CheckedDocument,
    PlanDocument,
    PlaybookDiffDocument,
    PlaybookPage,
    Playbooks,
    PlaybookSchemaDocument,
    PlaybookVersionsDocument,
    PlaybookWithSourceDocument,
    RegisteredDocument,
)
from noetl_stream.ports.operations.statistics import PlaybookStatisticsDocument
from noetl_stream.ports.operations.verbs import API, address_of

PLAYBOOKS: Final = f"{API}/playbooks"
REGISTERED: Final = {
    200: Answer("It was registered before", RegisteredDocument, ("Location",)),
    201: Answer("It is new", RegisteredDocument, ("Location",)),
}
REGISTER_REFUSED: Final = ("playbook-refused", "conflict")
TEXT: Final = yaml_body()
SOURCE: Final = {200: Answer("The text as it was registered", media=YAML)}

routes = Routes()


class TextNamed(Parameters):
    name: Annotated[str, Field(max_length=256, description="What diagnostics call the text.")] = "playbook"


class TextChecked(TextNamed):
    graph: Annotated[bool, Field(description="Whether to answer its steps and arcs, too.")] = False


class Filtering(Paged):
    prefix: Annotated[str, Field(max_length=256, description="What the path begins with.")] = ""
    label: tuple[Label, ...] = ()
    words: Annotated[
        str,
        Field(
            max_length=256,
            description="What is in the path, name, description, tags or labels: each word anywhere, at most eight.",
        ),
    ] = ""


class PathAt(Parameters):
    path: Annotated[str, InPath(), Field(min_length=1, max_length=512, description="Slashes are written `%2F`.")]


class VersionAt(PathAt):
    version: Annotated[
        str | None, Field(max_length=256, description="`metadata.version`, or a revision; the latest without it.")
    ] = None


@routes("POST", f"{PLAYBOOKS}/check", "checkPlaybook", "viewer", body=TEXT, reads=True)
async def check(call: Call[TextChecked, bytes]) -> CheckedDocument:
    """Check a text; nothing is stored."""
    return await call.operations.playbooks.check(call.body, call.parameters.name, graph=call.parameters.graph)


@routes("POST", PLAYBOOKS, "registerPlaybook", "author", REGISTERED, TEXT, refuses=REGISTER_REFUSED)
async def register(call: Call[TextNamed, bytes]) -> Reply:
    """Register a playbook."""
    entry = await call.operations.playbooks.register(call.body, call.parameters.name, call.caller.principal)
    address = f"{PLAYBOOKS}/{quote(entry.path, safe='')}?version={quote(entry.known_as, safe='')}"
    return Reply(entry, 201 if entry.created else 200, {"Location": address})


@routes("GET", PLAYBOOKS, "listPlaybooks", "viewer")
async def page(call: Call[Filtering, None]) -> PlaybookPage:
    """List playbooks by path, the latest version of each."""
    given = call.parameters
    labels = labels_in(given.label)
    return await call.operations.playbooks.page(given.prefix, labels, given.limit, given.cursor, words=given.words)


@routes(*address_of(Playbooks.get), "getPlaybook", "viewer")
async def get(call: Call[VersionAt, None]) -> PlaybookWithSourceDocument:
    """Get a playbook with its text."""
    return await call.operations.playbooks.get(call.parameters.path, call.parameters.version)


@routes("GET", f"{PLAYBOOKS}/{{path}}/source", "getSource", "viewer", SOURCE)
async def source(call: Call[VersionAt, None]) -> Reply:
    """Get its text alone."""
    entry = await call.operations.playbooks.get(call.parameters.path, call.parameters.version)
    return Reply(entry.source.encode(), media=f"{YAML}; charset=utf-8")


@routes(*address_of(Playbooks.plan), "getPlan", "viewer", {200: Answer("OK", PlanDocument)})
async def plan(call: Call[VersionAt, None]) -> Reply:
    """Get the plan it compiles to."""
    return Reply(await call.operations.playbooks.plan(call.parameters.path, call.parameters.version))


class TextAt(VersionAt):
    digest: Annotated[
        str | None, Field(pattern="^[0-9a-f]{64}$", description="Of a text of this path, in place of a version.")
    ] = None


@routes(*address_of(Playbooks.graph), "getGraph", "viewer")
async def graph(call: Call[TextAt, None]) -> GraphDocument:
    """Get its steps and arcs."""
    given = call.parameters
    return await call.operations.playbooks.graph(given.path, given.version, given.digest)


@routes(*address_of(Playbooks.versions), "listVersions", "viewer")
async def versions(call: Call[PathAt, None]) -> PlaybookVersionsDocument:
    """List every version of a playbook."""
    return PlaybookVersionsDocument(await call.operations.playbooks.versions(call.parameters.path))


class VersionsAt(PathAt):
    before: Annotated[
        str | None, Field(max_length=256, description="A version; without it the one registered before `after`.")
    ] = None
    after: Annotated[str | None, Field(max_length=256, description="A version; without it the latest.")] = None


@routes(*address_of(Playbooks.diff), "diffVersions", "viewer")
async def diff(call: Call[VersionsAt, None]) -> PlaybookDiffDocument:
    """Compare two versions: text, steps and arcs."""
    given = call.parameters
    return await call.operations.playbooks.diff(given.path, given.before, given.after)


class TextAgainst(PathAt, TextNamed):
    before: Annotated[str | None, Field(max_length=256, description="A version; without it the latest.")] = None


@routes("POST", f"{PLAYBOOKS}/{{path}}/diff", "diffText", "viewer", body=TEXT, reads=True)
async def diff_text(call: Call[TextAgainst, bytes]) -> PlaybookDiffDocument:
    """Compare a text with a version; nothing is stored."""
    given = call.parameters
    return await call.operations.playbooks.diff_text(given.path, given.before, call.body, given.name)


class Since(PathAt):
    since: Annotated[
        Moment | None, Field(description="Of executions that started then or later; without it of seven days.")
    ] = None


@routes(*address_of(Playbooks.statistics), "getStatistics", "viewer")
async def statistics(call: Call[Since, None]) -> PlaybookStatisticsDocument:
    """Get how its executions ended and how long they and its steps took.

    Of at most 10,000 executions, the newest. For steps, journals of at most 200 of those that have ended are read,
    the newest, up to 20,000 events.
    """
    given = call.parameters
    return await call.operations.playbooks.statistics(given.path, ms_of(given.since))


@routes(*address_of(Playbooks.schema), "getSchema", "viewer", {200: Answer("OK", PlaybookSchemaDocument)})
async def schema(call: Call[Nothing, None]) -> Reply:
    """Get the JSON Schema of playbooks, with the tool kinds there are."""
    return Reply(await call.operations.playbooks.schema())


@routes(*address_of(Playbooks.delete), "deletePlaybook", "author", refuses=("conflict",))
async def delete(call: Call[VersionAt, None]) -> None:
    """Delete a version, or without one all of them, from the catalog.

    Executions keep their text.
    """
    given = call.parameters
    await call.operations.playbooks.delete(given.path, given.version, call.caller.principal)
