"""A schedule on a stack of real processes: every occurrence starts once, whichever server dies."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from journey_stack import LiveStack
from journey_waits import connected_to

from noetl_stream.model.aggregates import aggregate_id
from noetl_stream.model.events import ExecutionRequested
from noetl_stream.model.json import codec
from noetl_stream.operations.starters import DirectSchedules
from noetl_stream.ports.operations.starters import OccurrenceDocument
from noetl_testkit.waiting import until_it_is
from warm_program import noetl

pytestmark = pytest.mark.xdist_group("journeys")

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: tick, path: journey/tick }
workflow: [ { step: tick, tool: { kind: noop } } ]
"""
TRIGGERS = 6
DUE_S = (8, 12, 16)


def schedule(now: datetime) -> str:
    """Due at three times around the deaths of servers."""
    times = ", ".join((now + timedelta(seconds=s)).strftime("%Y-%m-%dT%H:%M:%SZ") for s in DUE_S)
    return f"""\
apiVersion: noetl.io/v2
kind: Schedule
metadata: {{ name: tick, path: journey/often }}
spec: {{ playbook: journey/tick, at: [ {times} ], overlap: allow, missed: all }}
"""


@pytest.mark.verify
async def test_each_occurrence_starts_once_though_servers_are_killed_around_it(
    start_stack: Callable[[int, int], LiveStack], tmp_path: Path
) -> None:
    stack = start_stack(2, 1)
    home = ("--home", stack.home)

    def command(*words: object) -> Any:
        found = noetl(*words, *home, "-o", "json")
        assert found.returncode == 0, found.stderr
        return json.loads(found.stdout)

    for name, text in (("tick.yaml", PLAYBOOK), ("often.yaml", schedule(datetime.now(UTC)))):
        (tmp_path / name).write_text(text)
        command("playbook", "register", tmp_path / name)
    numbers = []
    for turn in range(TRIGGERS):
        if turn % 2:
            stack.kill("server")
        numbers.append(command("schedule", "run-now", "journey/often")["number"])
    assert len(set(numbers)) == TRIGGERS
    shown = command("schedule", "get", "journey/often")
    # Those before the registration, if this machine is slow, do not count.
    due = sum(at > shown["registered"] for at in shown["timetable"]["at"])
    assert due

    async with connected_to(stack) as connected:
        store = connected.store

        async def history() -> list[OccurrenceDocument]:
            rows = await store.aggregate_history(aggregate_id("starter", "journey/often"), 100, None)
            return [DirectSchedules.entry(row) for row in rows]

        async def statuses() -> Counter[str]:
            return Counter(one.status for one in await history())

        await until_it_is(Counter(completed=TRIGGERS + due), statuses)
        occurrences = await history()
        assert Counter(one.cause for one in occurrences) == {"trigger": TRIGGERS, "timetable": due}
        rows = await asyncio.gather(*(store.journal(str(one.execution_id), 0, 1) for one in occurrences))
        facts = [codec.decode_fact(first.data) for (first,) in rows]
        origins = [fact.origin for fact in facts if isinstance(fact, ExecutionRequested)]
        assert sorted(origin.number for origin in origins if origin) == list(range(1, TRIGGERS + due + 1))
    found = noetl("execution", "list", "--path", "journey/tick", "-o", "name", *home)
    assert len(found.stdout.split()) == TRIGGERS + due, "nothing was started twice"
