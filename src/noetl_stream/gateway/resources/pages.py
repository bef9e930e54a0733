"""What describes the gateway itself: the OpenAPI document, and a page for each kind of problem."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from noetl_stream.errors import NotFound
from noetl_stream.gateway.http.parameters import InPath, Nothing, Parameters
from noetl_stream.gateway.http.problems import KINDS, page_of
from noetl_stream.gateway.http.routes import Answer, AnyRoute, Call, Reply, Route
from noetl_stream.ports.operations.documents import OpenDocument
from noetl_stream.ports.operations.problems import TYPE_PREFIX

HTML = "text/html"


class Described(OpenDocument, frozen=True):
    """An OpenAPI 3.1 document."""

    openapi: str
    paths: dict[str, Any]


class ProblemAt(Parameters):
    name: Annotated[str, InPath(), Field(max_length=64)]


async def problem_page(call: Call[ProblemAt, None]) -> Reply:
    kind = KINDS.get(call.parameters.name)
    if kind is None:
        raise NotFound(f"there is no problem called {call.parameters.name!r}", hint=f"there is {', '.join(KINDS)}")
    return Reply(page_of(kind).encode(), media=f"{HTML}; charset=utf-8")


def page_routes(document: dict[str, Any]) -> tuple[AnyRoute, ...]:
    """
    Args:
        document: Filled when the whole table is known; it describes itself too.
    """

    async def described(call: Call[Nothing, None]) -> Reply:
        return Reply(document)

    return (
        Route(
            "GET",
            "/openapi.json",
            "openapi",
            "This description",
            role=None,
            handler=described,
            answers={200: Answer("OpenAPI 3.1", Described)},
        ),
        Route(
            "GET",
            TYPE_PREFIX + "{name}",
            "problem",
            "What a kind of problem means",
            role=None,
            handler=problem_page,
            answers={200: Answer("A page for people", media=HTML)},
            parameters=ProblemAt,
        ),
    )
