"""What a client sends for a verb is what the gateway asks the verb, for every kind of parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, Protocol, cast
from urllib.parse import unquote

import pytest
from msgspec import Meta
from multidict import CIMultiDict, CIMultiDictProxy, MultiDict

from noetl_stream.adapters.gateway_client.connection import GatewayConnection, GatewayRequest
from noetl_stream.adapters.gateway_client.verbs import GatewayVerbs
from noetl_stream.gateway.http.inputs import read_parameters
from noetl_stream.gateway.http.problems import HttpProblem
from noetl_stream.gateway.http.routes import Call, route_of
from noetl_stream.model import json as model_json
from noetl_stream.ports.operations.executions import RequestIds
from noetl_stream.ports.operations.verbs import (
    Cursor,
    Document,
    Inner,
    Labels,
    Limit,
    Named,
    PlaybookPath,
    Without,
    verb,
    verb_of,
)

IDS = RequestIds("01890000-0000-7000-8000-000000000001", "01890000-0000-7000-8000-000000000002")
AT_MS = 1_700_000_000_123


class NoteDocument(Document, frozen=True):
    text: str


class NoteFilter(NamedTuple):
    since_ms: int | None = None
    names: Annotated[Sequence[str], Named("name")] = ()
    within: tuple[int, ...] = ()
    is_open: bool | None = None
    unused: str = ""


class Notes(Protocol):
    @verb("GET", "/playbooks/{path}/notes", "listNotes")
    async def page(
        self,
        path: PlaybookPath,
        chosen: Annotated[NoteFilter, Without("unused")],
        labels: Labels,
        limit: Limit,
        cursor: Cursor | None,
        *,
        whole: bool = False,
        inner: Annotated[str, Inner] = "",
    ) -> NoteDocument:
        """List notes."""
        ...

    @verb("POST", "/playbooks/{path}/notes", "addNote", "author")
    async def add(
        self,
        path: PlaybookPath,
        text: Annotated[str, Meta(max_length=8)],
        at_ms: int,
        by: str,
        tags: Sequence[str] = (),
        *,
        data: str | dict[str, Any] = "",
        reason: str = "",
        ids: RequestIds | None = None,
    ) -> NoteDocument:
        """Add a note."""
        ...


class Line:
    """A connection that brings a request to the route of a verb, which asks ``self.asked``."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def new_key(self) -> str:
        return "key"

    async def ask(self, sent: GatewayRequest, kind: type) -> Any:
        name = "page" if sent.method == "GET" else "add"
        route = route_of("notes", getattr(Notes, name))
        headers = CIMultiDictProxy(CIMultiDict(sent.headers))
        parameters = read_parameters(route.parameters, {"path": sent.parts[1]}, MultiDict(list(sent.query)), headers)
        body = route.body.read(model_json.codec.encode(sent.body), "application/json") if sent.body else None
        call = SimpleNamespace(
            operations=SimpleNamespace(notes=self),
            parameters=parameters,
            body=body,
            caller=SimpleNamespace(principal="token:me"),
            ids=IDS,
        )
        return await route.handler(cast(Call[Any, Any], call))

    def __getattr__(self, name: str) -> Any:
        async def note(**given: Any) -> NoteDocument:
            self.asked = given
            return NoteDocument(name)

        return note


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def notes(line: Line) -> Any:
    return GatewayVerbs(Notes, cast(GatewayConnection, line))


CHOSEN = NoteFilter(since_ms=AT_MS, names=("a", "b c"), within=(2, 0), is_open=False)


@pytest.mark.parametrize("chosen", [CHOSEN, NoteFilter(), NoteFilter(is_open=True)])
@pytest.mark.parametrize("labels", [{}, {"team": "sales=1"}])
async def test_a_query_arrives_as_it_was_given(
    notes: Any, line: Line, chosen: NoteFilter, labels: Mapping[str, str]
) -> None:
    assert (await notes.page("a/b", chosen, labels, 7, "next", whole=True)).text == "page"
    expected = {"path": "a/b", "chosen": chosen, "labels": labels, "limit": 7, "cursor": "next", "whole": True}
    assert line.asked == expected


async def test_a_json_object_arrives_as_it_was_given(notes: Any, line: Line) -> None:
    await notes.add("a/b", "text", AT_MS, "nobody", ["x"], data={"n": 1}, reason="für dich", ids=IDS)
    assert unquote(line.asked.pop("reason")) == "für dich"
    assert line.asked == {
        "path": "a/b",
        "text": "text",
        "at_ms": AT_MS,
        "by": "token:me",
        "tags": ["x"],
        "data": {"n": 1},
        "ids": IDS,
    }


async def test_a_value_above_a_limit_of_the_verb_is_refused(notes: Any) -> None:
    with pytest.raises(HttpProblem):
        await notes.add("a/b", "a long text", AT_MS, "nobody")
    with pytest.raises(HttpProblem):
        await notes.page("a/b", NoteFilter(), {}, 10_000, None)


def test_a_record_says_where_it_is_served() -> None:
    assert (verb_of(Notes.add).path, verb_of(Notes.add).role) == ("/api/v1/playbooks/{path}/notes", "author")
    assert route_of("notes", Notes.add).parameters.places["path"] == ("path", "path")
