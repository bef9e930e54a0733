"""Random playbooks that read ``execution`` everywhere, under random workers, people, time and faults (LANGUAGE §2).

However late, after whatever crash and by whichever server or worker a template is evaluated, it reads what the request
and the first entry of the journal say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from journal_laws import check_journal
from msgspec.structs import replace
from random_runs import STORMS_A_PLAYBOOK, WEATHERS, named
from random_workers import Disturbance, RandomRun

from effort import times
from noetl_stream.engine.state import Assignment, RecordedFact
from noetl_stream.model.envelope import iso
from noetl_stream.model.events import ExecutionRequested, Origin
from noetl_stream.model.json import codec
from noetl_stream.model.messages import StepCommand
from noetl_stream.playbook.compile.compiler import compile_playbook
from noetl_stream.playbook.plan import Plan
from noetl_testkit.random_language import PlaybookWriter, with_undoing
from noetl_testkit.scenario.scenario import Scenario, installed_kinds

READS = {
    "day": "{{ execution.due | date_format('%F') }}",
    "week": "{{ execution.due | date_trunc('week') }}",
    "begun": "{{ execution.started }}",
    "by": "{{ execution.origin.kind }} {{ execution.origin.path }} {{ execution.origin.number }}",
}
TOLD = {
    "day": "2026-12-20",
    "week": "2026-12-14T00:00:00+01:00",
    "begun": "1970-01-01T00:16:40.000+00:00",
    "by": "schedule shop/nightly 7",
}
STORMS = [*WEATHERS, Disturbance(faults=0.1, people=0.1, cancels=0.03)]
SEEDS = times(60)


class Dated(Scenario):
    """An execution that a schedule has started."""

    def start(self, *_: Any) -> Any:
        origin = Origin("id", "Schedule", "shop/nightly", 7)
        due = "2026-12-20T02:30:00+01:00"
        return self.feed(
            RecordedFact(ExecutionRequested("request-1", self.plan.digest, self.plan.path, due=due, origin=origin))
        ).journal


def reading(node: Any) -> None:
    """Lets guards, arguments and values of a playbook read ``execution``, which changes no guard."""
    if isinstance(node, dict):
        if isinstance(guard := node.get("when"), str):
            node["when"] = f"{{{{ execution.due < '2027' and ({guard[2:-2]}) }}}}"
        if "step" in node and "tool" not in node and ("when" in node or "args" in node):
            node.setdefault("args", {})["told"] = READS
        if node.get("kind") == "noop":
            node["args"]["told"] = READS
        if "set_ctx" in node:
            node["set_ctx"]["told"] = READS
    for inner in list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []:
        if inner is not READS:
            reading(inner)


def dated(seed: int) -> Plan:
    writer = PlaybookWriter(Random(f"dates {seed}"), confluent=False)
    document = with_undoing(writer.document(), Random(f"dates {seed}"), writer.work)
    reading(document["workflow"])
    document["metadata"]["labels"] = {"day": READS["day"]}
    document["executor"]["spec"].setdefault("result", {"told": READS})
    return compile_playbook(json.dumps(document), installed_kinds())


def told_in(node: Any) -> Iterator[Any]:
    """What stands under ``told``, at any depth."""
    for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        if key == "told":
            yield inner
        else:
            yield from told_in(inner)


def problems_of(scenario: Scenario, seen: Counter[str]) -> Iterator[str]:
    """What was read otherwise. Counts what was read, by the kind of fact that shows it."""
    for entry in scenario.journal:
        for told in told_in(codec.decode_json(codec.encode(entry.recorded.fact))):
            seen[type(entry.recorded.fact).__name__] += 1
            if told != TOLD:
                yield f"{entry.recorded.fact}"
    if scenario.execution.labels != {"day": TOLD["day"]}:
        yield f"labels {scenario.execution.labels}"


def stormy(kind: type[Dated], plan: Plan, seed: int) -> Scenario:
    scenario, random = kind(plan), Random(f"storm {seed}")
    RandomRun(scenario, random, random.choice(STORMS)).run()
    return scenario


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, SEEDS, 20)], ids=named)
def test_every_template_reads_what_the_request_says_whenever_it_is_evaluated(seeds: range) -> None:
    seen = Counter[str]()
    for seed in seeds:
        if seed % STORMS_A_PLAYBOOK == 0:
            plan = dated(seed)
        scenario = stormy(Dated, plan, seed)
        check_journal(scenario)
        assert list(problems_of(scenario, seen)) == [], f"seed {seed}"
    assert seen.keys() >= {"TokenEnqueued", "TaskProcessed", "ExecutionFinished"}, seen


class ByItsClock(Dated):
    """A worker is told when its command was built."""

    def command(self, owed: Assignment) -> StepCommand:
        command = super().command(owed)
        told = {**command.execution, "started": iso(self.now_ms)} if command.execution else {}
        return replace(command, execution=told)


def test_a_worker_that_reads_a_clock_is_found() -> None:
    assert any(list(problems_of(stormy(ByItsClock, dated(seed), seed), Counter())) for seed in range(8))
