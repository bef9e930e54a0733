"""``/api/v1/playbooks``: check, register, find, show. A path's slashes are written ``%2F``."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field

from noetl_stream.gateway.http.inputs import YAML, InPath, Parameters, yaml_body
from noetl_stream.gateway.http.routes import Answer, Call, Reply, Routes, route_of, routes_of
from noetl_stream.ports.operations.playbooks import Playbooks, RegisteredDocument
from noetl_stream.ports.operations.verbs import API

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


class VersionAt(Parameters):
    path: Annotated[str, InPath(), Field(min_length=1, max_length=512, description="Slashes are written `%2F`.")]
    version: Annotated[
        str | None, Field(max_length=256, description="`metadata.version`, or a revision; the latest without it.")
    ] = None


routes.append(route_of("playbooks", Playbooks.check))


@routes("POST", PLAYBOOKS, "registerPlaybook", "author", REGISTERED, TEXT, refuses=REGISTER_REFUSED)
async def register(call: Call[TextNamed, bytes]) -> Reply:
    """Register a playbook."""
    entry = await call.operations.playbooks.register(call.body, call.parameters.name, call.caller.principal)
    address = f"{PLAYBOOKS}/{quote(entry.path, safe='')}?version={quote(entry.known_as, safe='')}"
    return Reply(entry, 201 if entry.created else 200, {"Location": address})


routes += (route_of("playbooks", Playbooks.page), route_of("playbooks", Playbooks.get))


@routes("GET", f"{PLAYBOOKS}/{{path}}/source", "getSource", "viewer", SOURCE)
async def source(call: Call[VersionAt, None]) -> Reply:
    """Get its text alone."""
    entry = await call.operations.playbooks.get(call.parameters.path, call.parameters.version)
    return Reply(entry.source.encode(), media=f"{YAML}; charset=utf-8")


routes += routes_of("playbooks", routes)
