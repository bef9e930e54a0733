"""No loop sends again without backoff: what is overloaded by retries never recovers (PROTOCOL §2 *Resends*)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parents[2] / "src" / "noetl_stream"
PROTOCOL: Final = SOURCE.parents[1] / "docs" / "explanation" / "protocol.md"

WAITS: Final = {"sleep", "done_within"}
BACKOFF: Final = {"backoff_s", "pauses"}

ON_THIS_MACHINE: Final = ("hosting/", "local/", "cli/base/")
"""What looks at processes, files and locks of this machine."""

PERIODIC: Final = {
    "cli/execution/debugging.py attach": "waits for the end of processes on this machine",
    "gateway/access/audit.py trim": "upkeep",
    "gateway/access/guard.py until_way_in": "a look each second at what an operator has to do",
    "gateway/http/idempotency.py forget_old": "upkeep",
    "gateway/http/pressure.py watch": "measures, for a twentieth of the time at most",
    "operations/doctor/readings.py watch": "a look each minute at how full the stores are",
    "operations/starters.py _until_begun": "twice as long each time, within a bound",
    "ports/operations/reading/events.py followed": "reads on",
    "server/aggregates/stream_readers.py _wait_to_read": "looks at its own state",
    "server/ownership/leases.py _appear": "says that a server lives",
    "server/ownership/leases.py _renew_in_time": "renews leases",
    "server/ticks/namespace_shares.py run": "a look at what namespaces hold",
    "server/upkeep/holes.py _read": "reads on, and gives up after a time",
    "server/upkeep/upkeep.py _repeat": "upkeep",
    "storage/grants.py keep_fresh": "a look for newer grants",
    "storage/refusal_audit.py record_left_out": "upkeep",
    "tools/children/launcher.py _clean": "waits until the kernel has emptied a group",
    "tools/python/child.py send_next": "waits for the kernel, until the worker kills it",
    "worker/fitness.py _test_each": "the wait for one self-test",
    "worker/lease.py watch": "asks whether NATS is there, one question at a time",
    "worker/task_logs/publisher.py _flush_forever": "waits until lines are due",
    "worker/waiting.py run": "waits until a report is due, or a task is long",
    "worker/worker.py _renew_leases": "renews leases",
}
"""The loops that wait at set times and send nothing again, each with what it does."""

ENDINGS: Final = {"end", "kill"}
"""Callbacks of timers that end what has taken too long."""

TIMERS: Final = {
    "adapters/nats/commands/command_source.py _check_contact": "looks at its own state",
    "adapters/nats/commands/command_source.py open": "looks at its own state",
    "adapters/nats/event_log.py _check_contact": "looks at its own state",
    "adapters/nats/event_log.py open": "looks at its own state",
    "adapters/nats/outbox.py _look": "looks for overdue messages, each with a backoff of its own",
    "adapters/nats/outbox.py put": "looks for overdue messages, each with a backoff of its own",
    "adapters/postgres/connections/hosts.py connecting": "looks whether Postgres answers, once for each",
    "adapters/postgres/connections/hosts.py watching": "looks for a lost statement, once for each",
    "gateway/http/connections.py _start_reader_clock": "looks at what a client has read",
    "gateway/gateway.py drain": "stops when callers have gone elsewhere",
    "language_server/language_server.py ask": "waits for the end of typing",
    "tools/nats/connections.py connection": "closes an idle connection",
    "tools/proxy/egress_proxy.py _accept": "listens again when descriptors were short",
    "tools/python/shared.py run": "gives a cancelled task up",
    "tools/scratch/kept_tables.py _enter": "removes what is not used any more",
}
"""The functions that set a timer of a fixed time and send nothing again when it is due, each with what it does."""


def name_of(call: ast.Call) -> str:
    called = call.func
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def calls_in(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def waits(call: ast.Call) -> bool:
    """Whether the call waits for a time; not one that only lets others run."""
    gives_way = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return name_of(call) in WAITS and not gives_way


def waiting_loops(text: str) -> Iterator[tuple[str, bool]]:
    """The functions with a loop that waits, and whether they take the time from ``retries``."""
    for function in ast.walk(ast.parse(text)) if any(f"{name}(" in text for name in WAITS) else ():
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            loops = (node for node in ast.walk(function) if isinstance(node, ast.While | ast.For | ast.AsyncFor))
            if any(waits(call) for loop in loops for call in calls_in(loop)):
                yield function.name, any(name_of(call) in BACKOFF for call in calls_in(function))


def timers(text: str) -> Iterator[str]:
    """The functions that set a timer without backoff, for something that is no ending."""
    for function in ast.walk(ast.parse(text)) if "call_later(" in text else ():
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = list(calls_in(function))
            set_here = [call for call in calls if name_of(call) == "call_later"]
            ends = all(isinstance(call.args[1], ast.Attribute) and call.args[1].attr in ENDINGS for call in set_here)
            if not ends and not any(name_of(call) in BACKOFF for call in calls):
                yield function.name


def modules() -> Iterator[tuple[str, str]]:
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if not name.startswith(ON_THIS_MACHINE):
            yield name, file.read_text(encoding="utf-8")


def test_each_loop_that_waits_has_backoff_or_is_known_to_send_nothing_again() -> None:
    found = [
        f"{module} {name}" for module, text in modules() for name, backs_off in waiting_loops(text) if not backs_off
    ]
    assert found == sorted(PERIODIC), "take its waits from `retries.pauses`, or say in PERIODIC what it does"


def test_each_timer_has_backoff_or_is_known_to_send_nothing_again() -> None:
    found = {f"{module} {name}" for module, text in modules() for name in timers(text)}
    assert found == set(TIMERS), "take its time from `retries.backoff_s`, or say in TIMERS what it does"


def test_a_timer_that_sends_again_at_a_set_time_is_found() -> None:
    text = """
def send(self):
    self.loop.call_later(1.0, self.send)

def send_later(self):
    self.loop.call_later(backoff_s(1.0, self.tries), self.send)

def watch(self):
    self.loop.call_later(1.0, self.process.kill)
"""
    assert list(timers(text)) == ["send"]


def test_a_loop_that_sends_again_at_a_set_time_is_found() -> None:
    text = """
async def insist(clock, send):
    while not await send():
        await clock.sleep(1.0)

async def give_way(send):
    while not await send():
        await asyncio.sleep(0)

async def retry(clock, send):
    waits = pauses(0.1)
    while not await send():
        await clock.sleep(next(waits))
"""
    assert list(waiting_loops(text)) == [("insist", False), ("retry", True)]


def test_the_protocol_names_each_module_that_sends_again() -> None:
    users = {name for name, text in modules() if re.search(r"^from noetl_stream\.retries import", text, re.MULTILINE)}
    section = PROTOCOL.read_text(encoding="utf-8").partition("### Resends")[2].partition("\n### ")[0]
    assert users == set(re.findall(r"`([a-z_/]+\.py)`", section))
