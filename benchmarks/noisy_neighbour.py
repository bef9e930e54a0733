"""What one tenant's worst does to another: latencies of a plain execution and of a list, alone and beside each door.

    python benchmarks/noisy_neighbour.py [--door NAME …] [--lasts 15] [--list]

Two servers, two workers and a gateway of their own processes on embedded stores. The loud tenant's token is limited to
``loud``, the quiet one's to ``quiet``. Prints for each door the 99th percentile of both latencies beside the loud
tenant, as a ratio to that alone just before, what failed for the quiet one, and how the loud one was answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import aiohttp

from bench_stack import access_to, running, until
from neighbour_doors import DOORS, PLAIN, REFUSED, Tenant, playbook
from noetl_stream.local.processes import listen
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import open_stack, prepare_embedded

EVERY_S: Final = 0.2
AT_ONCE: Final = 10
"""The connections of an attack."""
REST_S: Final = 5.0
"""How long the stack rests between two doors, with what is left of the first cancelled."""
MOST_ROUNDS: Final = 100
"""How often what is left of a door is cancelled, at most."""


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
        status, document = await quiet.start(text, params={"wait": "30s"})
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


async def attack_until_asked(name: str, url: str, secret: str) -> None:
    """Attacks a door as a process of its own, whose work is no latency of the observer's, until stdin is closed. It
    yields the processor to the stack, as it would on another machine. Prints a line when it begins, and at the end how
    it was answered.
    """
    os.nice(19)
    async with tenant_of(url, secret) as loud:
        attack = await DOORS[name](loud)
        loud.answers.clear()

        async def again() -> None:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, RuntimeError):
                    await attack()
                await asyncio.sleep(0)

        attackers = [asyncio.create_task(again()) for _ in range(AT_ONCE)]
        print("attacking", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for attacker in attackers:
            attacker.cancel()
        await asyncio.gather(*attackers, return_exceptions=True)
        print(json.dumps(loud.answers), flush=True)


async def attacked(name: str, loud: Tenant, quiet: Tenant, lasts_s: float) -> tuple[Seen, dict[int, int]]:
    """What the quiet tenant sees beside the attack, and the loud one's answers by status."""
    words = [sys.executable, __file__, "--attack", name, loud.host, loud.session.headers["Authorization"]]
    attacker = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
    assert attacker.stdin is not None and attacker.stdout is not None
    if not await attacker.stdout.readline():
        raise RuntimeError(f"the attack at the door {name!r} did not begin")
    await asyncio.sleep(1.0)
    seen = await observe(quiet, lasts_s)
    attacker.stdin.close()
    answers = json.loads(await attacker.stdout.read())
    return seen, {int(status): count for status, count in answers.items()}


@contextlib.asynccontextmanager
async def tenant_of(url: str, authorization: str) -> AsyncIterator[Tenant]:
    timeout, connector = aiohttp.ClientTimeout(total=60), aiohttp.TCPConnector(limit=0)
    headers = {"Authorization": authorization}
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
        yield Tenant(session, url)


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
                return await opened.enter_async_context(tenant_of(url, f"Bearer {made['secret']}"))

            async def answers() -> bool:
                try:
                    async with aiohttp.ClientSession() as session:
                        return (await session.get(f"{url}/livez")).status == 200
                except aiohttp.ClientError:
                    return False

            await until(answers)
            yield await tenant("loud"), await tenant("quiet")


async def clear_up(loud: Tenant) -> None:
    """Removes what starts executions by itself, and cancels all executions of the loud tenant."""
    for kind in ("triggers", "schedules"):
        status, body = await loud.call("GET", f"/{kind}?limit=1000")
        if status >= 300:
            raise RuntimeError(f"cannot list what the loud tenant has left: {body.decode()}")
        for one in json.loads(body)["items"]:
            await loud.call("DELETE", f"/{kind}/{quote(one['path'], safe='')}")
    for _ in range(MOST_ROUNDS):
        _, body = await loud.call("POST", "/bulk/cancel", json={"path": "loud", "limit": 1_000})
        if not json.loads(body).get("items"):
            break
        await asyncio.sleep(EVERY_S)


async def measure(name: str, loud: Tenant, quiet: Tenant, lasts_s: float) -> None:
    """Prints the row of a door."""
    alone = await observe(quiet, lasts_s)
    seen, found = await attacked(name, loud, quiet, lasts_s)
    if name not in REFUSED and found and min(found) >= 300 and 429 not in found:
        raise RuntimeError(f"nothing at the door {name!r} was accepted: {found}")
    answers = ", ".join(f"{count} × {status}" for status, count in sorted(found.items()))
    cells = [
        f"{p99_ms(one) / p99_ms(other):.1f} x ({p99_ms(other):.0f} to {p99_ms(one):.0f} ms)"
        for one, other in zip(seen[:2], alone[:2], strict=True)
    ]
    failed = ", ".join(sorted(set(seen.failed))) or "nothing"
    print(f"| {name} | {cells[0]} | {cells[1]} | {failed} | {answers} |", flush=True)
    await clear_up(loud)
    await asyncio.sleep(REST_S)


async def main(chosen: Sequence[str], lasts_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="neighbour-") as folder:
        async with tenants(Path(folder) / "home") as (loud, quiet):
            await observe(quiet, 5.0)
            print("| door | execution | list | failed | answers to the loud one |\n| --- | --- | --- | --- | --- |")
            for name in chosen:
                await measure(name, loud, quiet, lasts_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--door", action="append", choices=DOORS, metavar="NAME", help="one of --list; default: all")
    parser.add_argument("--lasts", type=float, default=15.0, help="seconds, of each door and of alone before it")
    parser.add_argument("--list", action="store_true", help="print the names of the doors")
    parser.add_argument("--attack", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:
        asyncio.run(attack_until_asked(*arguments.attack))
    elif arguments.list:
        print("\n".join(DOORS))
    else:
        asyncio.run(main(arguments.door or list(DOORS), arguments.lasts))
