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
    "gateway/access/audit.py trim": "upkeep",
    "gateway/access/guard.py until_way_in": "a look each second at what an operator has to do",
    "gateway/http/idempotency.py forget_old": "upkeep",
    "gateway/http/pressure.py watch": "measures, for a twentieth of the time at most",
    "operations/starters/base.py _until_begun": "twice as long each time, within a bound",
    "ports/operations/reading/logs.py followed": "reads on",
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
    "worker/command/reporter.py run": "waits until a report is due",
    "worker/fitness.py _test_each": "the wait for one self-test",
    "worker/lease.py watch": "asks whether NATS is there, one question at a time",
    "worker/task_logs/publisher.py _flush_forever": "waits until lines are due",
    "worker/task_logs/publisher.py _watch_running": "waits until a task is long",
    "worker/worker.py _renew_leases": "renews leases",
}
"""The loops that wait at set times and send nothing again, each with what it does."""


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
