"""The status address: what probes and scrapers get, and its bounds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial
from http.client import HTTPConnection

import pytest
from aiohttp import ClientConnectorError, ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from noetl_stream.adapters.clock import ManualClock
from noetl_stream.concurrency import end_tasks
from noetl_stream.errors import UsageError
from noetl_stream.hosting.role_processes import host_worker
from noetl_stream.local.processes import choose_port
from noetl_stream.settings.monitoring import StatusAddress, read_status_address
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.telemetry import status_server as status
from noetl_stream.telemetry.measures import Durations, Metric, Reading
from noetl_stream.telemetry.status_server import StatusAnswers, open_status
from noetl_stream.wiring.stack import StackAccess

TASKS = Metric("histogram", "noetl_test_task_duration_seconds", "Tasks.", ("kind",))
DONE = Metric("counter", "noetl_test_done", "Done.")


class Puppet:
    """A role that says what the test wants."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.lacks: list[str] = []
        self.durations = Durations()
        self.gate: asyncio.Event | None = None

    def reasons_to_replace(self) -> Sequence[str]:
        return self.reasons

    async def reasons_not_ready(self) -> Sequence[str]:
        return self.lacks

    async def readings(self) -> Sequence[Reading]:
        if self.gate is not None:
            await self.gate.wait()
        return [DONE.read(3), TASKS.read_each({"python": self.durations})]


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[tuple[StatusAnswers, ClientSession, int]]:
    port = choose_port()
    async with (
        open_status("127.0.0.1", port, "worker") as answering,
        ClientSession(f"http://127.0.0.1:{port}") as client,
    ):
        yield answering, client, port


async def test_a_role_that_starts_lives_and_is_not_ready_and_says_why() -> None:
    async with opened() as (_, client, _):
        async with client.get("/livez") as alive:
            assert (alive.status, await alive.json()) == (200, {"status": "alive", "reasons": []})
        async with client.get("/readyz") as ready:
            assert ready.status == 503
            assert (await ready.json())["missing"] == ["the worker is starting: it is not connected yet"]
        async with client.get("/metrics") as measured:
            assert 'noetl_build_info{role="worker",version="' in await measured.text()


async def test_a_process_answers_before_it_is_connected() -> None:
    address = StatusAddress("127.0.0.1", choose_port())
    settings = Settings(nats_url=f"nats://127.0.0.1:{choose_port()}", status_address=address)
    hosting = asyncio.create_task(host_worker(StackAccess(settings, None), "default", 1))
    async with ClientSession(f"http://127.0.0.1:{address.port}") as client:
        assert await answered(client, "/readyz") == 503
        assert await answered(client, "/livez") == 200
    await end_tasks([hosting])


async def answered(client: ClientSession, path: str) -> int:
    """The status of the answer, once somebody listens."""
    while True:
        with contextlib.suppress(ClientConnectorError):
            async with client.get(path) as answer:
                return answer.status


async def test_a_role_that_runs_is_asked_each_time() -> None:
    async with opened() as (answering, client, _):
        role = Puppet()
        answering.attach(role)
        async with client.get("/readyz") as ready:
            assert (ready.status, await ready.json()) == (200, {"ready": True, "missing": []})
        role.lacks = ["it has lost the connection to NATS"]
        async with client.get("/readyz") as ready, client.get("/livez") as alive:
            assert (ready.status, alive.status) == (503, 200)
            assert (await ready.json())["missing"] == role.lacks
        role.reasons = ["its task 'leases' has ended"]
        async with client.get("/readyz") as ready, client.get("/livez") as alive:
            assert (ready.status, alive.status) == (503, 503)
            assert await alive.json() == {"status": "dead", "reasons": role.reasons}


def asked_meanwhile(port: int, *paths: str) -> list[tuple[int, str]]:
    """What these paths answer, in this order, while this thread and its loop stand still."""
    answers: list[tuple[int, str]] = []

    def ask() -> None:
        for path in paths:
            connection = HTTPConnection("127.0.0.1", port)
            connection.request("GET", path)
            answer = connection.getresponse()
            answers.append((answer.status, answer.read().decode()))
            connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    asking.join()
    return answers


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which a loop is late; nobody waits for it."""
    clock = ManualClock()
    monkeypatch.setattr(status, "ANSWER_S", 0.01)
    monkeypatch.setattr(status, "StatusAnswers", partial(StatusAnswers, monotonic_s=clock.monotonic_s))
    return clock


async def test_a_probe_is_answered_while_the_loop_of_the_role_is_busy(passing: ManualClock) -> None:
    async with opened() as (answering, client, port):
        role = Puppet()
        answering.attach(role)
        before_it_was_asked = asked_meanwhile(port, "/livez", "/readyz")
        assert [code for code, _ in before_it_was_asked] == [200, 503]
        assert "it has not said within" in before_it_was_asked[1][1]
        role.lacks = ["NATS is away"]
        async with client.get("/readyz") as ready, client.get("/livez") as alive:
            assert (ready.status, alive.status) == (503, 200)
        role.lacks = []
        (ready_meanwhile, alive_meanwhile) = asked_meanwhile(port, "/readyz", "/livez")
        assert (ready_meanwhile[0], "NATS is away" in ready_meanwhile[1]) == (503, True)
        assert alive_meanwhile[0] == 200
        async with client.get("/readyz") as ready:
            assert ready.status == 200
        assert [code for code, _ in asked_meanwhile(port, "/readyz", "/livez")] == [200, 200]


async def test_a_process_whose_loop_does_not_turn_any_more_is_not_ready_and_then_dead(passing: ManualClock) -> None:
    async with opened() as (answering, client, port):
        answering.attach(Puppet())
        async with client.get("/readyz") as ready, client.get("/livez") as alive:
            assert (ready.status, alive.status) == (200, 200)
        assert [code for code, _ in asked_meanwhile(port, "/readyz", "/livez")] == [200, 200]
        await asyncio.sleep(0)  # it turns: what was asked meanwhile is answered
        seen = []
        for seconds in (status.KEPT_S - 1, 2, status.STUCK_S):
            seen.append(asked_meanwhile(port, "/readyz", "/livez"))
            passing.advance(seconds)
        seen.append(asked_meanwhile(port, "/readyz", "/livez"))
        codes = [[code for code, _ in answers] for answers in seen]
        assert codes == [[200, 200], [200, 200], [503, 200], [503, 503]]
        assert "the loop of its process has not turned for 91 s" in seen[-1][1][1]
        async with client.get("/readyz") as ready, client.get("/livez") as alive:
            assert (ready.status, alive.status) == (200, 200), "it turns again"


async def test_metrics_come_as_prometheus_text_and_as_openmetrics() -> None:
    async with opened() as (answering, client, _):
        role = Puppet()
        for seconds in (0.001, 0.3, 1000):
            role.durations.add(seconds)
        answering.attach(role)
        async with client.get("/metrics") as measured:
            assert measured.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = {family.name: family for family in prometheus(await measured.text())}
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with client.get("/metrics", headers=accept) as measured:
            assert measured.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            open_text = {family.name: family for family in openmetrics(await measured.text())}
    for families in (text, open_text):
        assert [sample.value for sample in families["noetl_test_done"].samples] == [3]
        found = {sample.labels.get("le", sample.name): sample.value for sample in families[TASKS.name].samples}
        assert (found["0.001"], found["0.25"], found["0.5"], found["300.0"], found["+Inf"]) == (1, 1, 2, 2, 3)
        assert found[f"{TASKS.name}_sum"] == pytest.approx(1000.301)
        assert families["process_resident_memory_bytes"].samples


async def test_the_status_address_serves_nothing_else_and_accepts_no_body() -> None:
    async with opened() as (_, client, _):
        async with client.get("/") as nothing, client.post("/livez", data=b"x" * 100_000) as sent:
            assert (nothing.status, sent.status) == (404, 405)
        async with client.head("/livez") as head:
            assert (head.status, await head.read()) == (200, b"")


async def test_a_scrape_that_hangs_is_shared_by_all_that_ask_meanwhile() -> None:
    async with opened() as (answering, client, _):
        role = Puppet()
        role.gate = asyncio.Event()
        answering.attach(role)
        asking = [asyncio.create_task(client.get("/metrics")) for _ in range(3)]
        async with client.get("/livez") as alive:
            assert alive.status == 200
        role.gate.set()
        assert [answer.status for answer in await asyncio.gather(*asking)] == [200, 200, 200]


async def test_a_request_that_is_no_http_is_answered_once_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with opened() as (_, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\x16\x03\x01 what\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.0 400")
        writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\n" + b"X-Many: 1\r\n" * (status.MAX_HEADERS + 10) + b"\r\n")
        assert (await reader.read()).split(b" ")[1] == b"400"
        writer.close()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_connection_serves_one_request_and_ends_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "LONGEST_S", 0.05)
    async with opened() as (_, _, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        assert (await reader.read()).count(b"HTTP/1.1 200") == 1
        silent, _ = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await silent.read() == b""


async def test_the_oldest_of_too_many_connections_gives_way_to_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "MAX_CONNECTIONS", 2)
    async with opened() as (_, client, port):
        oldest, _ = await asyncio.open_connection("127.0.0.1", port)
        kept, writer = await asyncio.open_connection("127.0.0.1", port)
        async with client.get("/livez") as alive:
            assert alive.status == 200
        with contextlib.suppress(ConnectionResetError):
            assert await oldest.read() == b""
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await kept.read()


async def test_an_address_in_use_is_refused_by_name() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{port}: .*in use"):
            async with open_status("127.0.0.1", port, "server"):
                pass


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:9464", StatusAddress("0.0.0.0", 9464)),
        ("[::1]:0", StatusAddress("::1", 0)),
        ("status.internal:80", StatusAddress("status.internal", 80)),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, address: StatusAddress) -> None:
    assert read_status_address("NOETL_STATUS_ADDRESS", {"NOETL_STATUS_ADDRESS": text}) == address


@pytest.mark.parametrize("text", ["9464", ":9464", "::1:9464", "host:65536", "http://host:1", "host:port", "host:1\n"])
def test_an_invalid_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="invalid NOETL_STATUS_ADDRESS"):
        read_status_address("NOETL_STATUS_ADDRESS", {"NOETL_STATUS_ADDRESS": text})


def test_no_library_of_the_status_address_is_loaded_where_it_is_off() -> None:
    program = (
        "import sys; import noetl_stream.hosting.role_processes, noetl_stream.wiring.role_assembly;"
        "from noetl_stream.cli import processes;"
        "import noetl_stream.server.status_report, noetl_stream.worker.status_report;"
        "print([name for name in ('aiohttp', 'prometheus_client') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
