"""The doors at which one tenant does its worst to another (``noisy_neighbour.py``): each makes one attack of many.

A door is prepared once, as the loud tenant, and then attacked again and again over several connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
from yarl import URL

JSON: Final = {"Content-Type": "application/json"}
YAML: Final = {"Content-Type": "application/yaml"}
PLAIN: Final = [{"kind": "noop"}]
SLEEPS: Final = [{"kind": "wait", "for_s": 30}]
DEAR: Final = "{{ range(100000) | map('string') | join(',') | length }}"
SERIAL: Final = itertools.count()


def document(kind: str, path: str, **more: Any) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": kind, "metadata": {"name": path.rpartition("/")[2], "path": path}}
    return json.dumps({**head, **more})


def playbook(path: str, tasks: Sequence[Mapping[str, Any]], **more: Any) -> str:
    step = {"step": "only", "tool": list(tasks), **more.pop("step", {})}
    return document("Playbook", path, workflow=[step, *more.pop("steps", ())], **more)


def looped(count: int, **tool: Any) -> str:
    loop = {
        "in": f"{{{{ range({count}) | list }}}}",
        "iterator": "item",
        "spec": {"mode": "parallel", "max_in_flight": 200},
    }
    return playbook("loud/loop", [{"kind": "noop", "args": {"text": "x" * 200}, **tool}], step={"loop": loop})


def python(code: str) -> str:
    return playbook("loud/python", [{"kind": "python", "code": code}])


def keyed(key: str) -> str:
    policy = {"concurrency": {"key": key, "limit": 1}}
    return playbook("loud/held", SLEEPS, executor={"spec": {"policy": policy}})


class Tenant:
    """A caller of the gateway.

    Attributes:
        answers: How many it got, by status.
    """

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.host, self.url = session, url, f"{url}/api/v1"
        self.answers: Counter[int] = Counter()

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, bytes]:
        async with self.session.request(method, URL(self.url + path, encoded=True), **more) as answer:
            body = await answer.read()
            self.answers[answer.status] += 1
            return answer.status, body

    async def start(self, text: str, **more: Any) -> tuple[int, dict[str, Any]]:
        status, body = await self.call("POST", "/executions", json={"playbook": text}, **more)
        return status, json.loads(body or b"{}")

    async def started(self, text: str, wait: str = "") -> str:
        """Starts an execution, waits for its end if ``wait`` says how long, and returns its id."""
        status, begun = await self.start(text, **({"params": {"wait": wait}} if wait else {}))
        if status >= 300:
            raise RuntimeError(f"cannot start {text[:200]}: {begun}")
        return str(begun["execution_id"])

    async def register(self, text: str) -> None:
        status, body = await self.call("POST", "/playbooks", data=text, headers=YAML)
        if status >= 300:
            raise RuntimeError(f"cannot register {text[:200]}: {body.decode()}")


Attack = Callable[[], Awaitable[object]]
Door = Callable[[Tenant], Awaitable[Attack]]


def starting(text: str, **more: Any) -> Door:
    """Starts this playbook, again and again."""

    async def door(loud: Tenant) -> Attack:
        return lambda: loud.start(text, **more)

    return door


def asking(method: str, path: str, **more: Any) -> Door:
    async def door(loud: Tenant) -> Attack:
        return lambda: loud.call(method, path, **more)

    return door


def asking_of(text: str, *paths: str) -> Door:
    """Runs a playbook, and asks for these parts of its execution."""

    async def door(loud: Tenant) -> Attack:
        one = await loud.started(text, "60s")
        turns = itertools.cycle(paths)
        return lambda: loud.call("GET", f"/executions/{one}{next(turns)}")

    return door


async def comparisons(loud: Tenant) -> Attack:
    one, other = [await loud.started(looped(5_000), "60s") for _ in range(2)]
    return lambda: loud.call("GET", f"/executions/{one}/diff/{other}")


async def reruns(loud: Tenant) -> Attack:
    one = await loud.started(looped(500), "60s")
    return lambda: loud.call("POST", f"/executions/{one}/rerun", json={"step": "only"})


async def bulk_reruns(loud: Tenant) -> Attack:
    await asyncio.gather(*(loud.started(playbook("loud/plain", PLAIN), "60s") for _ in range(50)))
    selection = {"path": "loud/plain", "status": ["completed"], "limit": 1_000, "step": "only"}
    return lambda: loud.call("POST", "/bulk/rerun", json=selection)


def asking_to(what: str, *requests: tuple[str, str, Any]) -> Door:
    """Sends these requests to an execution that waits, in turns; ``what`` is the playbook's name."""

    async def door(loud: Tenant) -> Attack:
        one = await loud.started(playbook(f"loud/{what}", [{"kind": "wait", "for_s": 3_000}]))
        turns = itertools.cycle(requests)

        async def attack() -> None:
            method, path, body = next(turns)
            await loud.call(method, f"/executions/{one}{path}", json=body)

        return attack

    return door


async def idempotency_keys(loud: Tenant) -> Attack:
    text = playbook("loud/plain", PLAIN)
    return lambda: loud.start(text, headers={"Idempotency-Key": f"key-{next(SERIAL) // 2}"})


async def calls(loud: Tenant) -> Attack:
    await loud.register(playbook("loud/called", PLAIN))
    return lambda: loud.start(looped(500, kind="playbook", path="loud/called", args={}))


async def registrations(loud: Tenant) -> Attack:
    def text() -> str:
        steps = [{"step": f"s{number}", "tool": [{"kind": "noop"}]} for number in range(1_000)]
        return playbook("loud/registered", PLAIN, steps=steps, workload={"serial": next(SERIAL)})

    return lambda: loud.register(text())


async def webhooks(loud: Tenant) -> Attack:
    await loud.register(playbook("loud/plain", PLAIN))
    spec = {"on": {"webhook": {"verify": "none"}}, "playbook": "loud/plain"}
    await loud.register(document("Trigger", "loud/hook", spec=spec))
    return lambda: loud.call("POST", "/hooks/loud/hook", data=json.dumps({"text": "x" * 100_000}))


async def triggers(loud: Tenant) -> Attack:
    """Each end starts two more executions."""
    await loud.register(playbook("loud/chain", PLAIN))
    for name in ("one", "other"):
        spec = {"on": {"execution": {"path": "loud/chain"}}, "playbook": "loud/chain", "allow_circle": True}
        await loud.register(document("Trigger", f"loud/{name}", spec=spec))
    return lambda: loud.call("POST", "/executions", json={"path": "loud/chain"})


async def schedules(loud: Tenant) -> Attack:
    """Many are due each second, and all of them again and again when they are asked to be."""
    await loud.register(playbook("loud/plain", PLAIN))
    spec = {"playbook": "loud/plain", "every": "1s", "overlap": "allow"}
    for number in range(50):
        await loud.register(document("Schedule", f"loud/s{number}", spec=spec))
    return lambda: loud.call("POST", f"/schedules/loud%2Fs{next(SERIAL) % 50}/trigger")


async def agents(loud: Tenant) -> Attack:
    one = await loud.started(looped(2_000), "60s")
    turns = itertools.cycle(
        [("why", {"execution_id": one}), ("get_result", {"execution_id": one}), ("list_executions", {})]
    )

    async def attack() -> None:
        name, arguments = next(turns)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        async with loud.session.post(f"{loud.host}/mcp", json=message) as answer:
            body = await answer.read()
            loud.answers[500 if b'"isError":true' in body else answer.status] += 1

    await attack()  # the first loads the library of the protocol
    return attack


def following(path: str, text: str = "") -> Door:
    """Opens streams, and reads each for some seconds."""

    async def door(loud: Tenant) -> Attack:
        one = await loud.started(text) if text else ""

        async def attack() -> None:
            async with loud.session.get(loud.url + path.format(one)) as stream:
                loud.answers[stream.status] += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stream.read(), 10)

        return attack

    return door


async def half_sent_bodies(loud: Tenant) -> Attack:
    """Each announces a large body, and sends little of it."""
    address = URL(loud.host)
    head = f"POST /api/v1/executions HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nContent-Length: 3000000\r\n"
    head += f"Authorization: {loud.session.headers['Authorization']}\r\nContent-Type: application/json\r\n\r\n"

    async def send() -> None:
        _, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(head.encode() + b'{"playbook": "')
            await writer.drain()
            await asyncio.sleep(10)
        finally:
            writer.close()

    return lambda: asyncio.gather(*(send() for _ in range(20)), return_exceptions=True)


DEAR_GUARD: Final = playbook(
    "loud/guard",
    PLAIN,
    step={"next": {"arcs": [{"step": "end", "when": "{{ range(200000) | map('string') | join(',') | length > 0 }}"}]}},
    steps=[{"step": "end", "tool": PLAIN}],
)

REFUSED: Final = {"refused bodies", "bodies that do not end", "unknown addresses"}
"""The doors at which everything is refused."""

DOORS: Final[Mapping[str, Door]] = {
    "plain starts": starting(playbook("loud/plain", PLAIN)),
    "starts that wait": starting(playbook("loud/sleeps", SLEEPS)),
    "starts that are waited for": starting(playbook("loud/sleeps", SLEEPS), params={"wait": "20s"}),
    "starts with idempotency keys": idempotency_keys,
    "refused bodies": asking("POST", "/executions", data=b"{" * 100_000, headers=JSON),
    "bodies that do not end": half_sent_bodies,
    "unknown addresses": asking("GET", "/executions/nothing"),
    "large workloads": starting(playbook("loud/large", PLAIN, workload={"text": "x" * 500_000})),
    "wide loops": starting(looped(2_000)),
    "calls of playbooks": calls,
    "dear templates": starting(playbook("loud/dear", [{"kind": "noop", "args": {"n": DEAR}}])),
    "dear guards": starting(DEAR_GUARD),
    "large results": starting(python("return 'x' * 8_000_000")),
    "python that spins": starting(python("while True: pass")),
    "python that takes memory": starting(python("x = []\nwhile True: x.append(bytearray(1 << 20))")),
    "python that forks": starting(python("import os\nwhile True: os.fork()")),
    "python that prints": starting(python("for n in range(200_000): print('x' * 100)")),
    "shell that fills its disk": starting(
        playbook("loud/disk", [{"kind": "shell", "command": "head -c 200M /dev/zero > here"}])
    ),
    "duckdb that cannot be interrupted": starting(
        playbook(
            "loud/duckdb",
            [{"kind": "duckdb", "command": "select length(lpad('a', 500000000, 'b'))", "spec": {"timeout": 5}}],
        )
    ),
    "duckdb with large rows": starting(
        playbook("loud/rows", [{"kind": "duckdb", "command": "select repeat('x', 10000000) from range(100)"}])
    ),
    "a key that is held": starting(keyed("shared")),
    "a key for each": starting(keyed("{{ execution_id }}")),
    "patches of ctx": asking_to("patched", ("PATCH", "/ctx", {"text": "x" * 900_000})),
    "signals": asking_to("signalled", ("POST", "/signals/go", {"payload": {"text": "x" * 10_000}})),
    "pauses and resumes": asking_to("paused", ("POST", "/pause", {}), ("POST", "/resume", {})),
    "reruns": reruns,
    "bulk reruns": bulk_reruns,
    "checks of large playbooks": asking(
        "POST", "/playbooks/check", data=looped(10).replace("x" * 200, "y" * 900_000), headers=YAML
    ),
    "registrations": registrations,
    "events to webhooks": webhooks,
    "triggers on ends": triggers,
    "schedules": schedules,
    "lists by text": asking("GET", "/executions?error=nothing&limit=200"),
    "groups and histograms": asking("GET", "/executions/groups?by=path"),
    "lists of limits": asking("GET", "/limits?limit=1000"),
    "a long result": asking_of(looped(5_000), "/result", "/steps"),
    "graphs and timelines": asking_of(looped(5_000), "/graph", "/timeline", "/state"),
    "reasons": asking_of(looped(5_000), "/why"),
    "long journals": asking_of(looped(5_000), "/events?limit=1000", "/events?text=nothing&limit=1000"),
    "comparisons": comparisons,
    "event streams": following("/events/stream"),
    "logs that are followed": following("/executions/{}/logs/stream", python("while True: print('x' * 1000)")),
    "agents": agents,
}
