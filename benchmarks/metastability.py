"""Whether a stack recovers once a trigger is gone: goodput before, during and after, by trigger and load.

    python benchmarks/metastability.py [trigger …] [--loads 1 2 5] [--lasts 25] [--before 6] [--after 20]

Two servers, two workers and a gateway of their own processes on embedded stores, new ones for each trigger.
Executions of three steps are started over HTTP at a part of what the stack was seen to do, whatever is answered; the
trigger comes, lasts, and goes. Prints the executions that ended per second before it, while it lasts, and after it, and
how many seconds after its end the rate is above 90 % of before, and stays there on average. A start that is refused
(429, 503) was not accepted, and is not started again. Ends with 1 if a row takes longer than 10 s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import aiohttp
import asyncpg
import psutil

from bench_stack import access_to, running, until
from noetl_stream.hosting.bench import chain_playbook
from noetl_stream.local.home import Home
from noetl_stream.local.postgres_server import PostgresServer
from noetl_stream.local.processes import listen
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.wiring.stack import StackAccess, open_stack, prepare_embedded

STEPS: Final = 3
WARM_S: Final = 4.0
WINDOW_S: Final = 2.0
ENOUGH: Final = 0.9
WITHIN_S: Final = 10.0
TURN_S: Final = 0.5
SLOWED: Final = 0.1
"""The part of its time that a slowed store has."""
MOST_AT_ONCE: Final = 400
PATIENCE_S: Final = 60.0
"""The time for an answer: a gateway takes less, whatever is away."""

ANSWERS: Final = (202, 429, 503)
"""The answers of a start: it was accepted, or it was not. What any other says is printed as an error."""

COUNT: Final = "select count(*) from noetl.execution where finished_ms is not null"


class Stack(NamedTuple):
    place: StackAccess
    session: aiohttp.ClientSession
    url: str
    folders: Mapping[str, Path]
    """Where each store keeps its data."""

    async def ended(self) -> int:
        """Counts the executions that have ended, as soon as Postgres says it."""
        assert self.place.embedded is not None
        while True:
            with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                watch = await asyncpg.connect(self.place.embedded.address.postgres_dsn, timeout=5)
                try:
                    return int(await watch.fetchval(COUNT))
                finally:
                    watch.terminate()
            await asyncio.sleep(0.1)

    def processes(self, store: str) -> list[psutil.Process]:
        assert self.place.embedded is not None
        process = psutil.Process(self.place.embedded.pids()[store])
        return [process, *process.children(recursive=True)]

    def signal(self, store: str, number: signal.Signals) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.processes(store):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    async def revive(self) -> None:
        assert self.place.embedded is not None
        await asyncio.to_thread(self.place.embedded.revive)


async def frozen(stack: Stack, store: str, lasts_s: float, part: float = 0.0) -> None:
    """Gives a store a part of its time."""
    until_s = time.monotonic() + lasts_s
    while time.monotonic() < until_s:
        stack.signal(store, signal.SIGSTOP)
        await asyncio.sleep(TURN_S * (1 - part))
        if part:
            stack.signal(store, signal.SIGCONT)
            await asyncio.sleep(TURN_S * part)
    stack.signal(store, signal.SIGCONT)


async def killed(stack: Stack, store: str, lasts_s: float) -> None:
    """Kills a store and starts it, four times."""
    until_s = time.monotonic() + lasts_s
    while time.monotonic() < until_s:
        _kill(stack, store)
        await stack.revive()
        await asyncio.sleep(lasts_s / 4)


async def put_back(stack: Stack, store: str, lasts_s: float) -> None:
    """Puts a store back to what it had half of the time ago, and slows it for the rest."""
    folder = stack.folders[store]
    copy = folder.with_name(f"{folder.name}-earlier")
    stack.signal(store, signal.SIGSTOP)
    copying = await asyncio.create_subprocess_exec("cp", "-a", str(folder), str(copy))  # Postgres has a user of its own
    assert await copying.wait() == 0
    stack.signal(store, signal.SIGCONT)
    await asyncio.sleep(lasts_s / 2)
    _kill(stack, store)
    await asyncio.to_thread(shutil.rmtree, folder)
    copy.rename(folder)
    await stack.revive()
    await frozen(stack, store, lasts_s / 2, SLOWED)


def _kill(stack: Stack, store: str) -> None:
    processes = stack.processes(store)
    stack.signal(store, signal.SIGKILL)
    psutil.wait_procs(processes, timeout=10)


class Trigger(NamedTuple):
    store: str
    strike: Callable[[Stack, str, float], Awaitable[None]]


def _slowed(stack: Stack, store: str, lasts_s: float) -> Awaitable[None]:
    return frozen(stack, store, lasts_s, SLOWED)


HOW: Final = {"slow": _slowed, "away": frozen, "killed": killed, "older": put_back}
TRIGGERS: Final = {
    f"{name} {how}": Trigger(name.lower(), strike) for name in ("NATS", "Postgres") for how, strike in HOW.items()
}


class Load:
    """Starts executions at a rate, in the background, and counts the answers."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.answers: Counter[str] = Counter()
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
                self.answers[str(answer.status)] += 1
                if answer.status not in ANSWERS:
                    print(await answer.text(), file=sys.stderr)
        except (aiohttp.ClientError, TimeoutError) as error:
            self.answers[f"none ({type(error).__name__})"] += 1


@contextlib.asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Stack]:
    with open_stack(Settings(home_folder=home)) as place:
        await prepare_embedded(place)
        with listen(0) as free:
            port = free.getsockname()[1]
        roles = (["server"], ["server"], ["worker"], ["worker"], ["gateway", "--port", str(port)])
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        kept = Home(home)
        folders = {"nats": kept.nats / "store", "postgres": PostgresServer(kept).data}
        async with running(place, *roles):
            headers = await access_to(place)
            connector = aiohttp.TCPConnector(limit=MOST_AT_ONCE)
            async with aiohttp.ClientSession(headers=headers, timeout=timeout, connector=connector) as session:
                stack = Stack(place, session, f"http://127.0.0.1:{port}", folders)
                await until(lambda: registered(stack))
                yield stack


async def registered(stack: Stack) -> bool:
    """Whether the gateway has taken the playbook."""
    text, headers = chain_playbook(STEPS), {"Content-Type": "application/yaml"}
    try:
        async with stack.session.post(f"{stack.url}/api/v1/playbooks", data=text, headers=headers) as answer:
            return answer.status < 300
    except (aiohttp.ClientError, TimeoutError):
        return False


async def capacity(stack: Stack) -> float:
    """The executions per second of a closed loop."""
    load = Load(stack)

    async def again() -> None:
        while True:
            await load.start()

    clients = [asyncio.create_task(again()) for _ in range(32)]
    await asyncio.sleep(WARM_S)
    (rate,) = await rates(stack, [2 * WITHIN_S])
    for client in clients:
        client.cancel()
    return rate


async def rates(stack: Stack, windows_s: Sequence[float]) -> list[float]:
    """The executions that end per second in each of these spans of time, one after the other."""
    found = []
    last, last_s = await stack.ended(), time.monotonic()
    for window_s in windows_s:
        await asyncio.sleep(max(0.0, last_s + window_s - time.monotonic()))
        now, now_s = await stack.ended(), time.monotonic()
        found.append((now - last) / (now_s - last_s))
        last, last_s = now, now_s
    return found


def back_after_s(before: float, after: Sequence[float]) -> float:
    """When the rate was above enough of before, and stayed so on average; infinite if it never was."""
    for place, rate in enumerate(after):
        rest = after[place:]
        if min(rate, sum(rest) / len(rest)) >= ENOUGH * before:
            return place * WINDOW_S
    return float("inf")


async def measure(stack: Stack, name: str, times: float, rate: float, spans: argparse.Namespace) -> float:
    """Prints a row of the table; returns the seconds after which the rate was back."""
    trigger, load = TRIGGERS[name], Load(stack)
    loading = asyncio.create_task(load.at(times * rate))
    await asyncio.sleep(WARM_S)
    (before,) = await rates(stack, [spans.before])
    load.answers.clear()
    first, began_s = await stack.ended(), time.monotonic()
    await trigger.strike(stack, trigger.store, spans.lasts)
    answers, lasted_s = Counter(load.answers), time.monotonic() - began_s
    during = (await stack.ended() - first) / lasted_s
    after = await rates(stack, [WINDOW_S] * round(spans.after / WINDOW_S))
    mean = sum(after) / len(after)
    loading.cancel()
    back_s = back_after_s(before, after)
    answered = ", ".join(f"{count} x {answer}" for answer, count in sorted(answers.items()))
    print(
        f"| {name} | {times:g} x | {before:.0f} | {during:.1f} | {mean:.0f} | {back_s:.0f} | {answered} |",
        "  " + " ".join(f"{one:.0f}" for one in after),
        flush=True,
    )
    return back_s


async def rested(stack: Stack) -> None:
    """Waits until nothing ends any more, for a while at most."""
    for _ in range(10):
        (rate,) = await rates(stack, [WINDOW_S])
        if not rate:
            return


async def main(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="metastability-") as folder:
        rate = arguments.rate
        if not rate:
            async with opened(Path(folder) / "capacity") as stack:
                rate = await capacity(stack)
        print(f"{rate:.0f} executions of {STEPS} steps per second in a closed loop; the load is half of it, times\n")
        print(
            "| trigger | load | before /s | during /s | after /s | back above 90 % after s | answers meanwhile |\n"
            "| --- | --- | --- | --- | --- | --- | --- |",
            flush=True,
        )
        late = 0
        for trigger in arguments.trigger or TRIGGERS:
            async with opened(Path(folder) / trigger.replace(" ", "-")) as stack:
                for times in arguments.loads:
                    late += await measure(stack, trigger, times, rate / 2, arguments) > WITHIN_S
                    await rested(stack)
    print(f"\n{late} not back within {WITHIN_S:.0f} s")
    return 1 if late else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trigger", nargs="*", choices=[*TRIGGERS, []])
    parser.add_argument("--loads", nargs="*", type=float, default=[1.0, 2.0, 5.0])
    parser.add_argument("--rate", type=float, default=0.0, help="executions per second of a closed loop, if known")
    parser.add_argument("--before", type=float, default=6.0, help="seconds that are measured before the trigger")
    parser.add_argument("--lasts", type=float, default=25.0, help="seconds for which the trigger lasts")
    parser.add_argument("--after", type=float, default=20.0, help="seconds that are measured after it")
    sys.exit(asyncio.run(main(parser.parse_args())))
