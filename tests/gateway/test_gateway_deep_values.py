"""No body of a request nests deeper than values may, on any route there is or will be (LANGUAGE §12)."""

from __future__ import annotations

import pytest
from gateway_stage import GatewayStage
from openapi_checks import Described
from yarl import URL

from noetl_stream.errors import TooDeep
from noetl_stream.gateway.http.problems import problem_of

JSON = {"Content-Type": "application/json", "Sec-Fetch-Site": "same-origin"}


def nested(levels: int) -> bytes:
    return b'{"workload":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def routes_with_json(api: Described) -> list[tuple[str, str]]:
    """Method and address of each route that takes JSON."""
    return [
        (method, template.format_map(_Any()))
        for method, template, operation in api.operations.values()
        if "application/json" in operation.get("requestBody", {}).get("content", {})
    ]


class _Any(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "x"


DEEP = "the body is nested more than 200 levels deep"
MANY = "The body has more than 100000 texts, keys, lists and objects"


@pytest.mark.parametrize(
    ("levels", "status", "words"), [(201, 422, DEEP), (960, 422, DEEP), (90_000, 422, DEEP), (100_000, 413, MANY)]
)
async def test_every_route_that_takes_json_refuses_a_body_that_nests_too_deeply(
    stage: GatewayStage, api: Described, levels: int, status: int, words: str
) -> None:
    routes = routes_with_json(api)
    assert len(routes) > 15
    for method, address in routes:
        async with stage.client.request(
            method, URL(address, encoded=True), data=nested(levels), headers=JSON
        ) as answer:
            document = await answer.json(content_type="application/problem+json")
            assert (answer.status, document["detail"]) == (status, words), address


async def test_the_deepest_body_there_may_be_is_read(stage: GatewayStage) -> None:
    async with stage.client.post("/api/v1/executions", data=nested(200), headers=JSON) as answer:
        document = await answer.json(content_type="application/problem+json")
        assert [fault["pointer"] for fault in document["errors"]] == ["/workload"], "it is read, and is no object"


def test_a_stored_value_too_deep_to_read_is_answered_with_an_error() -> None:
    found = problem_of(RecursionError("maximum recursion depth exceeded"), "/api/v1/executions/x")
    assert (found.status, found.document.type) == (422, "/problems/payload-refused")
    assert "nested too deeply" in found.document.detail
    assert problem_of(TooDeep("it is nested"), "/x").status == 422
