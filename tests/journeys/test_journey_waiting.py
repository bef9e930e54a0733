"""Executions that wait, on the whole stack: what they wait for outlives every process, and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest
from journey_stack import NOETL, LiveStack
from journey_waits import (
    Effects,
    begin,
    connected_to,
    effect,
    ended,
    noetl,
    playbook,
    result_of,
    until,
    until_status,
    whole_journal,
)

from homes import copy_home, folder_for_home
from noetl_stream.model.events import SignalReceived
from noetl_stream.model.json import codec
from noetl_stream.model.limits import DEFAULT_LIMITS
from noetl_stream.operations.executions.submit import ask_of
from noetl_stream.ports.stores.store import ListingFilter, Store
from noetl_stream.wiring.operations import make_client
from noetl_stream.wiring.stores import Connected
from noetl_testkit.task_processes import process_named

pytestmark = [pytest.mark.xdist_group("journeys"), pytest.mark.verify]

StartStack = Callable[[int, int], LiveStack]

CHILD = playbook(
    "child",
    [
        {
            "step": "start",
            "tool": [
                effect("child_before"),
                {"name": "hear", "kind": "wait", "signal": "child", "timeout_s": 600},
                effect("child_after"),
                {"name": "tell", "kind": "noop", "args": {"heard": "{{ hear }}"}},
            ],
        }
    ],
)

REST_S = 14
"""Longer than it takes to kill everything."""
RETRY = {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 3, "delay": REST_S}}
ADMIT = {
    "rules": [{"when": "{{ ctx.approved | default(false) }}", "then": {"allow": True}}],
    "wait": {"timeout_s": 600},
}
FAN: list[dict[str, Any]] = [
    {
        "step": "start",
        "next": {
            "spec": {"mode": "inclusive"},
            "arcs": [{"step": name} for name in ("timer", "signal", "gate", "call", "retry")],
        },
    },
    {
        "step": "timer",
        "tool": [
            effect("timer_before"),
            {"name": "rest", "kind": "wait", "for_s": REST_S},
            effect("timer_after"),
            {"name": "tell", "kind": "noop", "args": {"before": "{{ timer_before.data.name }}"}},
        ],
        "next": {"arcs": [{"step": "all"}]},
    },
    {
        "step": "signal",
        "tool": [
            effect("signal_before"),
            {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600},
            effect("signal_after"),
            {"name": "tell", "kind": "noop", "args": {"heard": "{{ hear }}"}},
        ],
        "next": {"arcs": [{"step": "all"}]},
    },
    {
        "step": "gate",
        "spec": {"policy": {"admit": ADMIT}},
        "tool": [effect("gate")],
        "next": {"arcs": [{"step": "all"}]},
    },
    {
        "step": "call",
        "tool": [{"name": "child", "kind": "playbook", "path": "journey/child", "args": {"url": "{{ workload.url }}"}}],
        "next": {"arcs": [{"step": "all"}]},
    },
    {
        "step": "retry",
        "tool": [effect("fails_once", spec={"policy": {"rules": [RETRY]}})],
        "next": {"arcs": [{"step": "all"}]},
    },
    {
        "step": "all",
        "spec": {"join": "all"},
        "tool": [
            {
                "name": "sum",
                "kind": "noop",
                "args": {
                    "timer": "{{ timer.before }}",
                    "signal": "{{ signal.heard }}",
                    "call": "{{ call.heard }}",
                    "retry": "{{ retry.data.count }}",
                },
            }
        ],
    },
]


async def alive(connected: Connected) -> bool:
    return await make_client(connected).alive(0.5)


async def until_up(stack: LiveStack) -> None:
    """Until a server answers and the store can be read."""

    async def look() -> bool:
        await asyncio.to_thread(stack.embedded.revive)
        async with connected_to(stack) as connected:
            await connected.store.now_ms()
            return await alive(connected) and bool(stack.roles("worker"))

    await until(look)


async def register(home: Path, source: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(source)
        file.flush()
        await noetl(home, "playbook", "register", file.name)


async def child_of(store: Store, execution_id: str) -> str:
    """Its one child, once that waits."""

    async def look() -> str:
        rows = await store.list_executions(ListingFilter(["waiting"], "journey/child"), 10, None)
        return rows[0].execution_id if rows else ""

    found: str = await until(look)
    return found


async def test_a_waiting_execution_outlives_the_death_of_every_process(start_stack: StartStack) -> None:
    stack = await asyncio.to_thread(start_stack, 1, 2)
    async with Effects().serving() as effects:
        await register(stack.home, CHILD)
        async with connected_to(stack) as connected:
            execution_id = await begin(connected, playbook("fan", FAN), {"url": effects.url})
            child_id = await child_of(connected.store, execution_id)
            await until_status(connected.store, execution_id, "waiting")
        for victim in ("worker", "server", "nats", "postgres"):
            stack.kill(victim)
            await until_up(stack)
        await noetl(stack.home, "execution", "patch", execution_id, "--set", "approved=true")
        await noetl(stack.home, "execution", "signal", execution_id, "go", "--payload", '{"by": "ada"}')
        await noetl(stack.home, "execution", "signal", child_id, "child", "--payload", "42")
        async with connected_to(stack) as connected:
            row = await ended(connected.store, execution_id)
            expected = {"timer": "timer_before", "signal": {"by": "ada"}, "call": 42, "retry": 2}
            assert (row.status, result_of(row)) == ("completed", expected), row.error
            assert effects.seen == {
                **dict.fromkeys(("timer_before", "timer_after", "signal_before", "signal_after", "gate"), 1),
                **dict.fromkeys(("child_before", "child_after"), 1),
                "fails_once": 2,
            }
            for one in (execution_id, child_id):
                names = [row.name for row in await whole_journal(connected.store, one)]
                assert names.count("execution.finished") == 1
            assert await connected.store.stuck(10) == []
            assert await connected.store.timers(execution_id) == []


class Developing:
    """A `dev` that can be stopped and started again on the same home."""

    def __init__(self, home: Path) -> None:
        self._command = [*NOETL, "dev", "--home", str(home)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        assert self._process.stdout is not None
        assert "is running" in self._process.stdout.readline()

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=60)


async def test_a_waiting_execution_continues_when_its_stopped_home_is_started_again(
    used_home: Path, tmp_path: Path
) -> None:
    with folder_for_home("journey") as folder:
        await check_restart(copy_home(used_home, folder / "home"), tmp_path)


async def check_restart(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "rests.yaml"
    tasks = [
        effect("before"),
        {"name": "rest", "kind": "wait", "for_s": 8},
        effect("after"),
        {"name": "tell", "kind": "noop", "args": {"kept": "{{ before.data.name }}"}},
    ]
    file.write_text(playbook("rests", [{"step": "rest", "tool": tasks}]))
    async with Effects().serving() as effects:
        with Developing(home):
            await noetl(home, "run", file, "--set", f"url={effects.url}", "--timeout", 3, code=124)
        assert not any(str(home) in " ".join(process.info["cmdline"] or ()) for process in _processes())
        assert effects.seen == {"before": 1}
        with Developing(home):
            listed = json.loads(await noetl(home, "execution", "list", "-o", "json"))
            execution_id = listed[0]["execution_id"]

            async def described() -> Any:
                found = json.loads(await noetl(home, "execution", "get", execution_id, "-o", "json"))
                return found if found["status"] not in ("waiting", "running") else None

            found = await until(described)
            assert (found["status"], found["result"]) == ("completed", {"kept": "before"})
            assert effects.seen == {"before": 1, "after": 1}


def _processes() -> Iterator[psutil.Process]:
    return psutil.process_iter(["cmdline"])


async def test_a_resumed_pipeline_has_everything_on_another_worker(start_stack: StartStack) -> None:
    """iter, vars, results and the program counter, in the middle of a local loop with a jump behind it."""
    once = {"when": "{{ vars.laps < 2 }}", "then": {"do": "jump", "to": "count"}}
    laps = {"else": {"then": {"do": "continue", "set_vars": {"laps": "{{ (vars.laps | default(0)) + 1 }}"}}}}
    mark = {"else": {"then": {"do": "continue", "set_iter": {"mark": "{{ iter.n ~ '/' ~ iter.count }}"}}}}
    tasks: list[dict[str, Any]] = [
        effect("first", spec={"policy": {"rules": [mark]}}),
        {"name": "count", "kind": "noop", "spec": {"policy": {"rules": [laps]}}},
        {"name": "again", "kind": "noop", "spec": {"policy": {"rules": [once]}}},
        {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600},
        effect("last"),
        {
            "name": "tell",
            "kind": "noop",
            "args": {
                "first": "{{ first.data.name }}",
                "mark": "{{ iter.mark }}",
                "laps": "{{ vars.laps }}",
                "heard": "{{ hear }}",
                "index": "{{ iter.index }}",
            },
        },
    ]
    loop = {"in": ["a", "b", "c"], "iterator": "n", "spec": {"mode": "sequential"}}
    source = playbook("walk", [{"step": "walk", "loop": loop, "tool": tasks}])
    stack = await asyncio.to_thread(start_stack, 1, 1)
    async with Effects().serving() as effects, connected_to(stack) as connected:
        execution_id = await begin(connected, source, {"url": effects.url})
        for number in range(3):
            await until_status(connected.store, execution_id, "waiting")
            (worker,) = stack.roles("worker")
            stack.kill("worker")
            await until(lambda gone=worker: _other_worker(stack, gone))
            await noetl(stack.home, "execution", "signal", execution_id, "go", "--payload", number)
            await until(lambda count=number + 1: _last_calls(effects, count))
        row = await ended(connected.store, execution_id)
        assert result_of(row) == [
            {"first": "first", "mark": f"{name}/3", "laps": 2 + index, "heard": index, "index": index}
            for index, name in enumerate("abc")
        ]
        assert effects.seen == {"first": 3, "last": 3}
        journal = await whole_journal(connected.store, execution_id)
        meta = [codec.decode_json(row.data) for row in journal if row.name == "task.processed"]
        workers = {fact["outcome"]["meta"]["worker"] for fact in meta}
        assert len(workers) == 4


async def _other_worker(stack: LiveStack, gone: int) -> bool:
    return bool(set(stack.roles("worker")) - {gone})


async def _last_calls(effects: Effects, count: int) -> bool:
    return effects.seen["last"] == count


async def test_a_local_loop_pauses_and_resumes(start_stack: StartStack, tmp_path: Path) -> None:
    resumed = tmp_path / "resumed"
    code = f"import os, time; time.sleep(0 if os.path.exists({str(resumed)!r}) else 0.25); result = n"
    loop = {"in": list(range(24)), "iterator": "n", "spec": {"mode": "sequential"}}
    steps = [
        {"step": "walk", "loop": loop, "tool": {"kind": "python", "args": {"n": "{{ iter.n }}"}, "code": code}},
    ]
    stack = await asyncio.to_thread(start_stack, 1, 1)
    async with connected_to(stack) as connected:
        store = connected.store
        execution_id = await begin(connected, playbook("slow", steps), {})

        async def processed() -> int:
            return sum(row.name == "task.processed" for row in await store.journal(execution_id))

        async def some() -> bool:
            return await processed() >= 3

        await until(some)
        await noetl(stack.home, "execution", "pause", execution_id)

        async def rests() -> bool:
            row = await store.execution(execution_id)
            return row is not None and (row.status, row.commands) == ("paused", 0)

        await until(rests)
        done = await processed()
        assert done < 24
        await noetl(stack.home, "execution", "pause", execution_id)
        assert await processed() == done
        resumed.touch()
        await noetl(stack.home, "execution", "resume", execution_id)
        row = await ended(store, execution_id)
        assert result_of(row) == list(range(24))
        assert await processed() == 24
        names = [row.name for row in await whole_journal(store, execution_id)]
        assert names.count("loop.iteration.done") == 24 and names.count("step.suspended") == 1


SLEEPS: list[dict[str, Any]] = [
    {
        "step": "start",
        "next": {
            "spec": {"mode": "inclusive"},
            "arcs": [{"step": name} for name in ("python", "shell", "sql", "call")],
        },
    },
    {
        "step": "python",
        "tool": {
            "kind": "python",
            "args": {"file": "{{ workload.folder }}/python"},
            "code": "import os, time\n"
            "open(file, 'w').write(f'{os.stat(\"/proc/self/ns/pid\").st_ino} {os.getpid()}')\n"
            "time.sleep(600)\nresult = 1",
        },
    },
    {
        "step": "shell",
        "tool": {
            "kind": "shell",
            "command": "echo $(stat -Lc %i /proc/self/ns/pid) $$ > {{ workload.folder }}/shell; sleep 600 & wait",
        },
    },
    {"step": "sql", "tool": {"kind": "postgres", "auth": "local_postgres", "query": "SELECT pg_sleep(600)"}},
    {
        "step": "call",
        "tool": [
            {
                "name": "call",
                "kind": "playbook",
                "path": "journey/sleeper",
                "args": {"folder": "{{ workload.folder }}/child"},
            }
        ],
    },
]
SLEEPER = playbook("sleeper", [SLEEPS[1]], workload={"folder": ""})


async def test_a_cancel_ends_children_and_everything_that_runs(
    start_stack: StartStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_CHILD_PATHS", str(tmp_path))
    monkeypatch.setenv("NOETL_CHILD_USER", "worker")  # pytest closes the folder to others
    stack = await asyncio.to_thread(start_stack, 1, 2)
    (tmp_path / "child").mkdir()
    await register(stack.home, SLEEPER)
    files = [tmp_path / "python", tmp_path / "shell", tmp_path / "child" / "python"]
    sql = await asyncpg.connect(stack.embedded.address.playbooks_dsn)
    try:
        async with connected_to(stack) as connected:
            execution_id = await begin(connected, playbook("sleeps", SLEEPS), {"folder": str(tmp_path)})

            async def runs() -> bool:
                return all(file.exists() and file.read_text().strip() for file in files) and await _sleeping(sql)

            await until(runs)
            processes = [process for file in files if (process := process_named(file.read_text()))]
            assert len(processes) == len(files)
            children = [child for process in processes for child in process.children(recursive=True)]
            assert children, "the shell has begun a process of its own"
            await noetl(stack.home, "execution", "cancel", execution_id, "--reason", "enough")
            row = await ended(connected.store, execution_id)
            assert row.status == "cancelled"
            rows = await connected.store.list_executions(ListingFilter(path="journey/sleeper"), 10, None)
            below = await ended(connected.store, rows[0].execution_id)
            assert below.status == "cancelled"

            async def all_gone() -> bool:
                left = any(psutil.pid_exists(process.pid) for process in (*processes, *children))
                return not left and not await _sleeping(sql)

            await until(all_gone)
            assert row.finished_ms is not None
            journal = await whole_journal(connected.store, execution_id)
            asked_ms = next(entry.at_ms for entry in journal if entry.name == "execution.cancel_requested")
            grace_ms = 1000 * DEFAULT_LIMITS.cancel_grace_s
            assert row.finished_ms - asked_ms < grace_ms, "everything has answered: the grace was not needed"
            assert "has ended (cancelled)" in await noetl(stack.home, "execution", "cancel", execution_id, code=1)
    finally:
        await sql.close()


async def _sleeping(sql: asyncpg.Connection[asyncpg.Record]) -> bool:
    found = await sql.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"
        " AND state = 'active'"
    )
    return bool(found)


EAR = playbook(
    "ear",
    [
        {
            "step": "ear",
            "tool": [
                {"name": "hear", "kind": "wait", "signal": "go", "timeout_s": 600},
                {"name": "tell", "kind": "noop", "args": {"heard": "{{ hear }}"}},
            ],
        }
    ],
)


async def whole(stack: LiveStack) -> bool:
    return (len(stack.roles("server")), len(stack.roles("worker"))) == (2, 3)


async def signal_a_hundred(stack: LiveStack, victim: str) -> list[str]:
    """Starts a hundred executions and signals each, ten at once; ``victim``, if any, dies in the middle. Their ids."""
    await until(lambda: whole(stack))
    await until_up(stack)
    async with connected_to(stack) as connected:
        ids = await asyncio.gather(*(begin(connected, EAR, {}) for _ in range(100)))
        for one in ids:
            await until_status(connected.store, one, "waiting")
        gate = asyncio.Semaphore(10)

        async def tell(number: int) -> None:
            fact = SignalReceived(f"signal-{number}", signal="go", payload=number)
            async with gate:
                await until(lambda: ask_of(connected.requests, connected.bus, connected.clock, ids[number], fact))
            if victim and number == 30:
                with suppress(ProcessLookupError):
                    stack.kill(victim)

        await asyncio.gather(*map(tell, range(100)))
    return ids


async def check_bulk(stack: LiveStack, ids: list[str], victim: str) -> None:
    """Each has ended with its own signal, which was heard once."""
    async with connected_to(stack) as connected:
        for number, one in enumerate(ids):
            row = await ended(connected.store, one)
            assert result_of(row) == {"heard": number}, victim
            names = [entry.name for entry in await whole_journal(connected.store, one)]
            assert names.count("signal.received") == names.count("step.resumed") == 1, victim
            assert victim == "worker" or names.count("task.processed") == 2, victim
        assert await connected.store.stuck(10) == []


async def test_bulk_signals_reach_hundreds_of_executions_while_processes_are_killed(start_stack: StartStack) -> None:
    """Until the leases of the dead worker have run out, others have their turn; a new NATS would end them at once."""
    stack = await asyncio.to_thread(start_stack, 2, 3)
    for victims in (("worker", "", "server", "postgres"), ("nats",)):
        bulks = {victim: await signal_a_hundred(stack, victim) for victim in victims}
        for victim, ids in bulks.items():
            await check_bulk(stack, ids, victim)
