"""What one tenant's worst does to another: latencies of a plain execution and of a list, alone and beside each attack.

    python benchmarks/noisy_neighbour.py [attack …] [--lasts 15]

Two servers, two workers and a gateway of their own processes on embedded stores. The loud tenant's token is limited to
``loud``, the quiet one's to ``quiet``. Prints for each attack the 99th percentile of both latencies beside the quiet
tenant, as a ratio to that without any attack, and what failed for it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from bench_stack import access_to, running, until
from noetl_stream.local.processes import listen
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import open_stack, prepare_embedded

EVERY_S: Final = 0.2
AT_ONCE: Final = 10
"""The connections of an attack."""
REST_S: Final = 5.0
"""How long the stack rests between two attacks, with what is left of the first cancelled."""

PLAIN: Final = [{"kind": "noop"}]
SLEEPS: Final = [{"kind": "wait", "seconds": 30}]
DEAR: Final = "{{ range(100000) | map('string') | join(',') | length }}"


def playbook(path: str, tasks: Sequence[Mapping[str, Any]], **more: Any) -> str:
    step = {"step": "only", "tool": list(tasks), **more.pop("step", {})}
    head = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": path.rpartition("/")[2], "path": path},
    }
    return json.dumps({**head, **more, "workflow": [step]})


def looped(count: int, **tool: Any) -> str:
    loop = {
        "in": f"{{{{ range({count}) | list }}}}",
        "iterator": "item",
        "spec": {"mode": "parallel", "max_in_flight": 200},
    }
    return playbook("loud/loop", [{"kind": "noop", "args": {"text": "x" * 200}, **tool}], step={"loop": loop})


class Tenant:
    """A caller of the gateway."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, f"{url}/api/v1"

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, bytes]:
        async with self.session.request(method, self.url + path, **more) as answer:
            return answer.status, await answer.read()

    async def start(self, text: str, **query: str) -> tuple[int, dict[str, Any]]:
        status, body = await self.call("POST", "/executions", json={"playbook": text}, params=query)
        return status, json.loads(body or b"{}")


Attack = Callable[[Tenant], Awaitable[object]]


def starting(text: str) -> Attack:
    """Starts this playbook, again and again."""
    return lambda loud: loud.start(text)


def asking(method: str, path: str, **more: Any) -> Attack:
    return lambda loud: loud.call(method, path, **more)


async def reading_a_long_result(loud: Tenant) -> None:
    _, begun = await loud.start(looped(5_000), wait="60s")
    for _ in range(20):
        await loud.call("GET", f"/executions/{begun['execution_id']}/result")


async def holding_streams(loud: Tenant) -> None:
    async with loud.session.get(f"{loud.url}/events/stream") as stream:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stream.read(), 10)


def python(code: str) -> str:
    return playbook("loud/python", [{"kind": "python", "code": code}])


ATTACKS: Final[Mapping[str, Attack]] = {
    "plain starts": starting(playbook("loud/plain", PLAIN)),
    "starts that wait": starting(playbook("loud/sleeps", SLEEPS)),
    "wide loops": starting(looped(2_000)),
    "large workloads": starting(playbook("loud/large", PLAIN, workload={"text": "x" * 500_000})),
    "dear templates": starting(playbook("loud/dear", [{"kind": "noop", "args": {"n": DEAR}}])),
    "large results": starting(playbook("loud/result", [{"kind": "python", "code": "return 'x' * 8_000_000"}])),
    "python that spins": starting(python("while True: pass")),
    "python that takes memory": starting(python("x = []\nwhile True: x.append(bytearray(1 << 20))")),
    "python that forks": starting(python("import os\nwhile True: os.fork()")),
    "python that prints": starting(python("for n in range(200_000): print('x' * 100)")),
    "shell that fills its disk": starting(
        playbook("loud/disk", [{"kind": "shell", "command": "head -c 200M /dev/zero > here"}])
    ),
    "duckdb that cannot be interrupted": starting(
        playbook(
            "loud/duckdb", [{"kind": "duckdb", "command": "select length(lpad('a', 500000000, 'b'))", "timeout": 5}]
        )
    ),
    "duckdb with large rows": starting(
        playbook("loud/rows", [{"kind": "duckdb", "command": "select repeat('x', 10000000) from range(100)"}])
    ),
    "a key that is held": starting(
        playbook("loud/held", SLEEPS, executor={"spec": {"policy": {"concurrency": {"key": "shared", "limit": 1}}}})
    ),
    "checks of large playbooks": asking(
        "POST",
        "/playbooks/check",
        data=looped(10).replace("x" * 200, "y" * 900_000),
        headers={"Content-Type": "application/json"},
    ),
    "lists by text": asking("GET", "/executions?error=nothing&limit=200"),
    "groups and histograms": asking("GET", "/executions/groups?by=path"),
    "a long result": reading_a_long_result,
    "event streams": holding_streams,
    "starts that are waited for": lambda loud: loud.start(playbook("loud/sleeps", SLEEPS), wait="20s"),
    "refused bodies": asking("POST", "/executions", data=b"{" * 100_000, headers={"Content-Type": "application/json"}),
    "unknown addresses": asking("GET", "/executions/nothing"),
    "graphs and timelines": asking("GET", "/playbooks?limit=1000"),
}


class Seen(NamedTuple):
    """The latencies of the quiet tenant in seconds, and what failed."""

    executions: list[float]
    lists: list[float]
    failed: list[str]


def p99_ms(latencies: Sequence[float]) -> float:
    return 1000 * sorted(latencies)[max(0, int(len(latencies) * 0.99) - 1)] if latencies else float("nan")


async def observe(quiet: Tenant, lasts_s: float) -> Seen:
    """Starts a plain execution and lists, at a steady pace."""
    seen, text = Seen([], [], []), playbook("quiet/plain", PLAIN)

    async def execution() -> None:
        began_s = time.perf_counter()
        status, document = await quiet.start(text, wait="30s")
        if status >= 300 or document.get("status") != "completed":
            seen.failed.append(f"start {status} {document.get('status', '')}")
        seen.executions.append(time.perf_counter() - began_s)

    async def listing() -> None:
        began_s = time.perf_counter()
        status, _ = await quiet.call("GET", "/executions?limit=50")
        if status != 200:
            seen.failed.append(f"list {status}")
        seen.lists.append(time.perf_counter() - began_s)

    under_way = []
    until_s = time.monotonic() + lasts_s
    while time.monotonic() < until_s:
        under_way += [asyncio.create_task(execution()), asyncio.create_task(listing())]
        await asyncio.sleep(EVERY_S)
    for outcome in await asyncio.gather(*under_way, return_exceptions=True):
        if isinstance(outcome, BaseException):
            seen.failed.append(type(outcome).__name__)
    return seen


async def attacked(loud: Tenant, quiet: Tenant, attack: Attack, lasts_s: float) -> Seen:
    async def again() -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, KeyError):
                await attack(loud)
            await asyncio.sleep(0)

    attackers = [asyncio.create_task(again()) for _ in range(AT_ONCE)]
    await asyncio.sleep(1.0)
    seen = await observe(quiet, lasts_s)
    for attacker in attackers:
        attacker.cancel()
    await asyncio.gather(*attackers, return_exceptions=True)
    return seen


@contextlib.asynccontextmanager
async def tenants(home: Path) -> AsyncIterator[tuple[Tenant, Tenant]]:
    with open_stack(Settings(home_folder=home)) as place:
        await prepare_embedded(place)
        with listen(0) as free:
            port = free.getsockname()[1]
        roles = (["server"], ["server"], ["worker"], ["worker"], ["gateway", "--port", str(port)])
        async with running(place, *roles), contextlib.AsyncExitStack() as opened:
            admin, url = await access_to(place), f"http://127.0.0.1:{port}"

            async def tenant(name: str) -> Tenant:
                body = {"name": name, "role": "author", "paths": [name]}
                async with aiohttp.ClientSession(headers=admin) as session:
                    made = json.loads((await Tenant(session, url).call("POST", "/tokens", json=body))[1])
                headers = {"Authorization": f"Bearer {made['secret']}"}
                timeout = aiohttp.ClientTimeout(total=60)
                connector = aiohttp.TCPConnector(limit=0)
                session = aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector)
                return Tenant(await opened.enter_async_context(session), url)

            async def answers() -> bool:
                try:
                    async with aiohttp.ClientSession() as session:
                        return (await session.get(f"{url}/livez")).status == 200
                except aiohttp.ClientError:
                    return False

            await until(answers)
            yield await tenant("loud"), await tenant("quiet")


async def main(chosen: Sequence[str], lasts_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="neighbour-") as folder:
        async with tenants(Path(folder) / "home") as (loud, quiet):
            await observe(quiet, 5.0)
            alone = await observe(quiet, lasts_s)
            print(f"alone: execution {p99_ms(alone.executions):.0f} ms, list {p99_ms(alone.lists):.0f} ms (p99)\n")
            print("| attack | execution | list | failed |\n| --- | --- | --- | --- |")
            for name in chosen or ATTACKS:
                seen = await attacked(loud, quiet, ATTACKS[name], lasts_s)
                ratios = [p99_ms(one) / p99_ms(other) for one, other in zip(seen[:2], alone[:2], strict=True)]
                failed = ", ".join(sorted(set(seen.failed))) or "nothing"
                print(f"| {name} | {ratios[0]:.1f} x | {ratios[1]:.1f} x | {failed} |", flush=True)
                await loud.call("POST", "/bulk/cancel", json={"path": "loud"})
                await asyncio.sleep(REST_S)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attack", nargs="*")
    parser.add_argument("--lasts", type=float, default=15.0)
    arguments = parser.parse_args()
    asyncio.run(main(arguments.attack, arguments.lasts))
