"""Requests that nobody would think of, made from the OpenAPI document: none is answered 5xx or off its schema."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
import schemathesis
from gateway_playbooks import LOOP
from gateway_stage import TOKEN, GatewayStage
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from effort import REQUESTS
from noetl_stream.gateway.gateway import RESOURCES
from noetl_stream.settings.gateway_settings import GatewayLimits
from noetl_testkit.waiting import TIMEOUT_S


@schemathesis.serializer("application/zip")
def zip_file(_context: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = REQUESTS
MAX_ADDRESS = 8000
"""What is longer is no request to the HTTP library, which answers it by itself."""

OWN = ("live", "ready", "metrics", "openapi", "me", "problem")
OPERATIONS = sorted((*OWN, *(route.operation for route in RESOURCES if not route.streams)))


class Served:
    """A gateway in a thread of its own, with an execution in it. Each test leaves it to the next as it is."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {TOKEN}"
        document = self.session.get(f"{address}/openapi.json", timeout=TIMEOUT_S).json()
        self.schema = schemathesis.openapi.from_dict(document)
        self.schema.config.update(base_url=address)
        started = self.session.post(
            f"{address}/api/v1/executions?wait=60s", json={"playbook": LOOP}, timeout=TIMEOUT_S
        ).json()
        assert started["status"] == "completed", started
        self.execution_id = started["execution_id"]

    def operation(self, operation_id: str) -> Any:
        return self.schema.find_operation_by_id(operation_id)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    address: Future[str] = Future()
    ending: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        end = asyncio.Event()
        ending.set_result((asyncio.get_running_loop(), end))
        async with GatewayStage(GatewayLimits()).open() as stage:
            address.set_result(stage.url)
            await end.wait()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    yield Served(address.result(TIMEOUT_S))
    loop, end = ending.result()
    loop.call_soon_threadsafe(end.set)
    thread.join(TIMEOUT_S)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_every_answer_is_as_described(served: Served, operation_id: str, mode: Any) -> None:
    operation = served.operation(operation_id)
    statuses = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    def ask(case: Any, known: bool) -> None:
        if known and "execution_id" in (case.path_parameters or {}):
            case.path_parameters["execution_id"] = served.execution_id
        assume(len(case.as_transport_kwargs()["url"]) + len(urlencode(case.query or {}, doseq=True)) < MAX_ADDRESS)
        answer = case.call_and_validate(session=served.session, checks=CHECKS, timeout=TIMEOUT_S)
        statuses.append(answer.status_code)

    if mode is GenerationMode.NEGATIVE and not can_be_wrong(operation):
        return
    ask()
    assert statuses


def can_be_wrong(operation: Any) -> bool:
    """Whether a request for it can be anything but right: it has a parameter or a body."""
    raw = operation.definition.raw
    return bool(raw["parameters"] or "requestBody" in raw)
