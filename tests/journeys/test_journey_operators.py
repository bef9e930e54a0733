"""Two people operate a real stack over HTTP: one is known by an API token, one by an identity provider."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import psutil
import pytest
from aiohttp import ClientSession, web
from journey_stack import ROOT, LiveStack

sys.path.insert(0, str(ROOT / "tests" / "access"))
from access_issuer import AUDIENCE, running_issuer

pytestmark = pytest.mark.xdist_group("journeys")

APPROVAL: Final = (ROOT / "playbooks" / "approval.yaml").read_text()
EXECUTIONS: Final = "/api/v1/executions"
LONG_S: Final = 3600
QUERIES: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' AND application_name LIKE '%long_postgres%'"
)
TASKS: Final[dict[str, dict[str, Any]]] = {
    "shell": {"command": f"sleep {LONG_S} & wait"},
    "python": {"code": f"import time\ntime.sleep({LONG_S})"},
    "http": {"url": "{{ workload.url }}"},
    "postgres": {"auth": "local_postgres", "command": f"SELECT pg_sleep({LONG_S})"},
    "duckdb": {"command": "SELECT count(*) FROM range(1000000000000) t(a) WHERE a % 7 = 3"},
}


class Person:
    """Somebody who calls the gateway."""

    def __init__(self, session: ClientSession, bearer: str = "") -> None:
        self._session = session
        self._authorization = {"Authorization": f"Bearer {bearer}"} if bearer else {}

    async def call(self, method: str, path: str, status: int, **given: Any) -> tuple[Any, Any]:
        """The answer's body and headers; its status must be the one that is expected."""
        headers = {**self._authorization, **given.pop("headers", {})}
        async with self._session.request(method, path, headers=headers, **given) as response:
            text = await response.text()
            assert response.status == status, (method, path, response.status, text)
            return json.loads(text) if text else None, response.headers


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await condition():
                return
            await asyncio.sleep(0)


def gateway_of(stack: LiveStack) -> str:
    """Its address, as `dev` says it."""
    assert stack.process.stdout is not None
    line = next(line for line in stack.process.stdout if "gateway" in line)
    return line.split()[1]


@pytest.mark.verify
async def test_two_people_decide_an_approval_and_stop_what_runs(
    start_stack: Callable[[int, int], LiveStack], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_issuer() as issuer:
        monkeypatch.setenv("NOETL_OIDC_ISSUER", issuer.url)
        monkeypatch.setenv("NOETL_OIDC_AUDIENCE", AUDIENCE)
        stack = await asyncio.to_thread(start_stack, 1, 1)
        url = await asyncio.to_thread(gateway_of, stack)
        async with ClientSession(url) as session:
            admin = Person(session, issuer.token(sub="root", noetl_role="admin"))
            alice = Person(session, issuer.token(email="alice@example.com", email_verified=True))
            token = {"name": "ci", "role": "operator", "paths": ["examples"]}
            made, _ = await admin.call("POST", "/api/v1/tokens", 201, json=token)
            ci = Person(session, made["secret"])
            await admin.call(
                "POST", "/api/v1/playbooks", 201, data=APPROVAL, headers={"Content-Type": "application/yaml"}
            )
            await _check_an_approval(admin, ci, alice, Person(session))
            await _check_a_cancel(stack, admin, alice)


async def _check_an_approval(admin: Person, ci: Person, alice: Person, nobody: Person) -> None:
    start = {"path": "examples/approval", "workload": {"order": "77", "amount": 250}}
    key = {"Idempotency-Key": "order-77", "X-Reason": "order 77 came back"}
    _, headers = await ci.call("POST", EXECUTIONS, 202, json=start, headers=key)
    _, again = await ci.call("POST", EXECUTIONS, 202, json=start, headers=key)
    one = headers["Location"]
    assert again["Location"] == one

    async def is_held() -> bool:
        return bool((await ci.call("GET", one, 200))[0]["status"] == "waiting")

    await until(is_held)
    why, _ = await alice.call("GET", f"{one}/why", 200)
    (reason,) = why["reasons"]
    assert (reason["kind"], reason["step"]) == ("admission", "decide")
    assert "ctx.decision is missing" in why["summary"] and "workload.amount is 250" in why["summary"]

    _, headers = await alice.call("GET", f"{one}/ctx", 200)
    sent = {
        "X-Reason": "spoke with the customer",
        "X-Correlation-Id": "ticket-7",
        "If-Match": headers["ETag"],
    }
    decision = {"decision": "approved"}
    await nobody.call("PATCH", f"{one}/ctx", 401, json=decision, headers=sent)
    await ci.call("PATCH", f"{one}/ctx", 412, json={"decision": "refused"}, headers={"If-Match": '"7"'})
    patched, _ = await alice.call("PATCH", f"{one}/ctx", 200, json=decision, headers=sent)
    ended, _ = await ci.call("GET", f"{one}?wait=30s", 200)
    assert (ended["status"], ended["result"]) == ("completed", {"order": "77", "paid": 250})

    events = (await ci.call("GET", f"{one}/events?limit=1000", 200))[0]["items"]
    assert events[0]["actor"] == "token:ci" and events[0]["data"]["reason"] == "order 77 came back"
    (patch,) = [event for event in events if event["name"] == "ctx.patched"]
    assert (patch["position"], patch["actor"]) == (patched["position"], "oidc:alice@example.com")
    assert patch["data"]["reason"] == "spoke with the customer"
    (change,) = (await ci.call("GET", f"{one}/ctx", 200))[0]["history"]
    shown = {key: change[key] for key in ("principal", "reason", "correlation_id", "keys")}
    assert shown == {
        "principal": "oidc:alice@example.com",
        "reason": "spoke with the customer",
        "correlation_id": "ticket-7",
        "keys": ["decision"],
    }
    audit = (await admin.call("GET", "/api/v1/audit", 200))[0]["items"]
    assert {(one["principal"], one["operation"], one["status"]) for one in audit} >= {
        ("oidc:root", "createToken", 201),
        ("token:ci", "startExecution", 202),
        ("oidc:alice@example.com", "patchCtx", 200),
        ("token:ci", "patchCtx", 412),
    }


class SlowServer:
    """Answers nobody; ``open`` counts those who still wait."""

    def __init__(self) -> None:
        self.open = 0

    async def hold(self, request: web.Request) -> web.Response:
        self.open += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.open -= 1
        raise AssertionError

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        application = web.Application()
        application.router.add_get("/", self.hold)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield "http://{}:{}".format(*runner.addresses[0])
        finally:
            await runner.cleanup()


def steps_side_by_side() -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "long", "path": "tests/long"}}
    arcs = {"spec": {"mode": "inclusive"}, "arcs": [{"step": f"long_{kind}"} for kind in TASKS]}
    steps = [{"step": f"long_{kind}", "tool": {"kind": kind, **inputs}} for kind, inputs in TASKS.items()]
    return json.dumps({**head, "workload": {"url": ""}, "workflow": [{"step": "start", "next": arcs}, *steps]})


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


async def _check_a_cancel(stack: LiveStack, admin: Person, alice: Person) -> None:
    """After a cancel nothing is left of any kind of work: what a status says, the machine says too."""
    server = SlowServer()
    database = await asyncpg.connect(stack.embedded.address.playbooks_dsn)
    worker = psutil.Process(stack.roles("worker")[0])
    busy = "/api/v1/workers"

    async def traces() -> dict[str, Any]:
        commands = [command_of(child) for child in worker.children(recursive=True)]
        while not (items := (await alice.call("GET", busy, 200))[0]["items"]):
            pass  # on a busy machine the worker may answer too late to be listed
        (shown,) = items
        return {
            "shell": f"sleep {LONG_S}" in commands,
            # its zygotes stay, and what they fork for a task has their command line
            "python": any(zygote.children() for zygote in worker.children() if "children.zygote" in command_of(zygote)),
            "http": bool(server.open),
            "postgres": bool(await database.fetchval(QUERIES)),
            "slots": shown["busy"],
        }

    async def all_run() -> bool:
        return all((found := await traces()).values()) and found["slots"] == len(TASKS)

    async def none_is_left() -> bool:
        return not any((await traces()).values())

    async with server.serving() as url:
        body = {"playbook": steps_side_by_side(), "workload": {"url": url}}
        _, headers = await admin.call("POST", EXECUTIONS, 202, json=body)
        one = headers["Location"]
        await until(all_run)
        await alice.call("POST", f"{one}/cancel", 202, headers={"X-Reason": "started by mistake"})
        ended, _ = await alice.call("GET", f"{one}?wait=30s", 200)
        assert (ended["status"], ended["error"]["message"]) == ("cancelled", "started by mistake")
        await until(none_is_left)
    await database.close()
