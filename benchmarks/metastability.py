"""Whether a stack recovers once a trigger is gone: goodput before, during and after, by trigger and load.

    python benchmarks/metastability.py [trigger …] [--loads 1 2 5] [--lasts 60]

Two servers, two workers and a gateway of their own processes on embedded stores. Executions of three steps are started
over HTTP at a part of what the stack was seen to do, whatever is answered; the trigger comes, lasts, and goes. Prints
the executions that ended per second before it, while it lasts, and how many seconds after its end the rate is back
above 90 % of before. A start that is refused (429, 503) was not accepted, and is not started again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import asyncpg
import psutil

from bench_stack import access_to, running, until
from noetl_stream.hosting.bench import chain_playbook
from noetl_stream.local.processes import listen
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import StackAccess, open_stack, prepare_embedded

STEPS: Final = 3
BEFORE_S: Final = 10.0
AFTER_S: Final = 60.0
WINDOW_S: Final = 2.0
ENOUGH: Final = 0.9
TURN_S: Final = 0.5
SLOWED: Final = 0.1
"""The part of its time that a slowed store has."""
MOST_AT_ONCE: Final = 400
COUNT: Final = "select count(*) from noetl.execution where finished_ms is not null"


class Stack(NamedTuple):
    place: StackAccess
    session: aiohttp.ClientSession
    url: str
    watch: asyncpg.Connection[asyncpg.Record]

    async def ended(self) -> int:
        return int(await self.watch.fetchval(COUNT))

    def processes(self, store: str) -> list[psutil.Process]:
        assert self.place.embedded is not None
        process = psutil.Process(self.place.embedded.pids()[store])
        return [process, *process.children(recursive=True)]


async def frozen(stack: Stack, store: str, lasts_s: float, part: float = 0.0) -> None:
    """Gives a store a part of its time."""
    until_s = time.monotonic() + lasts_s
    while time.monotonic() < until_s:
        for number, pause_s in ((signal.SIGSTOP, TURN_S * (1 - part)), (signal.SIGCONT, TURN_S * part)):
            for process in stack.processes(store):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            await asyncio.sleep(pause_s)
    for process in stack.processes(store):
        process.resume()


async def killed(stack: Stack, store: str, lasts_s: float) -> None:
    """Kills a store, again and again; the embedded stack starts it."""
    until_s = time.monotonic() + lasts_s
    while time.monotonic() < until_s:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(stack.processes(store)[0].pid, signal.SIGKILL)
        await asyncio.sleep(lasts_s / 4)


TRIGGERS: Final[Mapping[str, Callable[[Stack, float], Awaitable[None]]]] = {
    "NATS slow": lambda stack, lasts_s: frozen(stack, "nats", lasts_s, SLOWED),
    "NATS away": lambda stack, lasts_s: frozen(stack, "nats", lasts_s),
    "Postgres slow": lambda stack, lasts_s: frozen(stack, "postgres", lasts_s, SLOWED),
    "Postgres away": lambda stack, lasts_s: frozen(stack, "postgres", lasts_s),
    "NATS killed": lambda stack, lasts_s: killed(stack, "nats", lasts_s),
}


class Load:
    """Starts executions at a rate, in the background, and counts the answers."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.answers: Counter[int] = Counter()
        self._asking: set[asyncio.Task[None]] = set()

    async def at(self, rate: float) -> None:
        """Starts ``rate`` executions per second until cancelled; one at once with the most under way is left out."""
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + 1 / rate, time.monotonic() - 1.0)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if len(self._asking) < MOST_AT_ONCE:
                task = asyncio.create_task(self.start())
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)

    async def start(self) -> None:
        try:
            body = {"path": "bench/chain"}
            async with self._stack.session.post(f"{self._stack.url}/api/v1/executions", json=body) as answer:
                self.answers[answer.status] += 1
        except (aiohttp.ClientError, TimeoutError):
            self.answers[0] += 1


@contextlib.asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Stack]:
    with open_stack(Settings(home_folder=home)) as place:
        await prepare_embedded(place)
        assert place.embedded is not None
        with listen(0) as free:
            port = free.getsockname()[1]
        roles = (["server"], ["server"], ["worker"], ["worker"], ["gateway", "--port", str(port)])
        timeout = aiohttp.ClientTimeout(total=30)
        async with running(place, *roles):
            headers = await access_to(place)
            watch = await asyncpg.connect(place.embedded.address.postgres_dsn, command_timeout=None)
            async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
                stack = Stack(place, session, f"http://127.0.0.1:{port}", watch)
                await until(lambda: registered(stack))
                yield stack
            await watch.close()


async def registered(stack: Stack) -> bool:
    """Whether the gateway has taken the playbook."""
    text, headers = chain_playbook(STEPS), {"Content-Type": "application/yaml"}
    try:
        async with stack.session.post(f"{stack.url}/api/v1/playbooks", data=text, headers=headers) as answer:
            return answer.status < 300
    except aiohttp.ClientError:
        return False


async def capacity(stack: Stack) -> float:
    """The executions per second of a closed loop."""
    load = Load(stack)

    async def again() -> None:
        while True:
            await load.start()

    clients = [asyncio.create_task(again()) for _ in range(32)]
    await asyncio.sleep(5.0)
    before, began_s = await stack.ended(), time.monotonic()
    await asyncio.sleep(BEFORE_S)
    rate = (await stack.ended() - before) / (time.monotonic() - began_s)
    for client in clients:
        client.cancel()
    return rate


async def measure(trigger: str, times: float, rate: float, lasts_s: float, home: Path) -> str:
    async with opened(home) as stack:
        load = Load(stack)
        loading = asyncio.create_task(load.at(times * rate))
        await asyncio.sleep(5.0)
        first, began_s = await stack.ended(), time.monotonic()
        await asyncio.sleep(BEFORE_S)
        second = await stack.ended()
        before = (second - first) / (time.monotonic() - began_s)
        load.answers.clear()
        await TRIGGERS[trigger](stack, lasts_s)
        gone_s = time.monotonic()
        third = last = await stack.ended()
        during, back_s = Counter(load.answers), float("inf")
        while time.monotonic() - gone_s < AFTER_S and back_s == float("inf"):
            await asyncio.sleep(WINDOW_S)
            now = await stack.ended()
            if (now - last) / WINDOW_S >= ENOUGH * before:
                back_s = time.monotonic() - gone_s - WINDOW_S
            last = now
        loading.cancel()
    answered = ", ".join(f"{count} x {status or 'none'}" for status, count in sorted(during.items()))
    return f"| {trigger} | {times:g} x | {before:.0f} | {(third - second) / lasts_s:.1f} | {back_s:.0f} | {answered} |"


async def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="metastability-") as folder:
        async with opened(Path(folder) / "capacity") as stack:
            rate = await capacity(stack)
        print(f"{rate:.0f} executions of {STEPS} steps per second in a closed loop; the load is half of it, times\n")
        print("| trigger | load | before /s | during /s | back above 90 % after s | answers while it lasts |")
        print("| --- | --- | --- | --- | --- | --- |")
        for trigger in arguments.trigger or TRIGGERS:
            for times in arguments.loads:
                home = Path(folder) / f"{trigger}-{times:g}".replace(" ", "-")
                print(await measure(trigger, times, rate / 2, arguments.lasts, home), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trigger", nargs="*", choices=[*TRIGGERS, []])
    parser.add_argument("--loads", nargs="*", type=float, default=[1.0, 2.0, 5.0])
    parser.add_argument("--lasts", type=float, default=60.0)
    asyncio.run(main(parser.parse_args()))
