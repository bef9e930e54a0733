"""Limits in effect: the operator's and the playbook's, on the server and the worker (LANGUAGE §14)."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from noetl_stream.adapters.memory.stores.catalog import MemoryCatalog
from noetl_stream.adapters.memory.stores.credentials import MemoryCredentials
from noetl_stream.cli.playbook.group import playbook as commands
from noetl_stream.engine.advance import InvalidPlan
from noetl_stream.model.ids import digest_of
from noetl_stream.model.json import codec
from noetl_stream.model.limits import Limits
from noetl_stream.model.messages import StepCommand
from noetl_stream.playbook.compile.compiler import check
from noetl_stream.playbook.plan import Plan
from noetl_stream.protocol import subjects
from noetl_stream.sealing.keys import new_key
from noetl_stream.server.memory.plan_cache import PlanCache
from noetl_stream.settings.sources.environment import Settings
from noetl_stream.tools.pipeline import NoopTool
from noetl_stream.wiring.endpoint import Endpoint
from noetl_stream.wiring.role_assembly import make_server
from noetl_stream.wiring.stack import open_stack
from noetl_stream.wiring.stores import OperatorPorts
from noetl_stream.worker.child_playbooks import PlanClient
from noetl_stream.worker.waiting import Asker
from noetl_testkit.keys import ACCESS_KEYS
from noetl_testkit.memory.access import MemoryAudit, MemoryGrants
from noetl_testkit.memory.broker import StagedBroker
from noetl_testkit.memory.journals import MemoryRetention
from noetl_testkit.memory.store import StagedStore
from noetl_testkit.scenario.scenario import Scenario

KINDS = {"noop": NoopTool.spec}


def playbook(limits: str, steps: str) -> str:
    head = f"""
        apiVersion: noetl.io/v2
        kind: Playbook
        metadata: {{name: limited, path: tests/limited}}
        executor: {{spec: {{policy: {{limits: {{{limits}}}}}}}}}
        workflow:
        """
    return dedent(head) + dedent(steps)


PLAIN = "- step: start\n  tool: {kind: noop}\n"
PLACES = {
    "guard": """
        - step: start
          tool: {kind: noop}
          next: {arcs: [{step: start, when: "{{ range(50) | sum < 0 }}"}]}
        """,
    "in": '- step: start\n  loop: {in: "{{ range(50) }}", iterator: n}\n  tool: {kind: noop}\n',
    "input": '- step: start\n  tool: {kind: noop, args: {a: "{{ range(50) | sum }}"}}\n',
    "policy": """
        - step: start
          tool:
            kind: noop
            spec: {policy: {rules: [{when: "{{ range(50) | sum > 0 }}", then: {do: continue}}]}}
        """,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_playbooks_own_limits_bound_its_templates_everywhere(place: str) -> None:
    for limits, status in [("max_template_operations: 1000", "completed"), ("max_template_operations: 20", "failed")]:
        scenario = Scenario(playbook(limits, PLACES[place]))
        scenario.start()
        if scenario.status == "running":
            scenario.done("start")
        assert scenario.status == status
        if status == "failed":
            assert "limits.max_template_operations (20)" in scenario.error.message


@pytest.mark.parametrize(
    ("limits", "input", "message"),
    [
        ("max_template_chars: 10", "{{ 1 + 1 }} and so on", "the limit is 10 (limits.max_template_chars)"),
        ("max_template_depth: 3", "{{ 1 + (2 + (3 + (4 + 5))) }}", "limits.max_template_depth (3)"),
        ("max_template_number_bits: 8", "{{ 1000 }}", "limits.max_template_number_bits (8)"),
    ],
)
def test_limits_of_form_are_checked_with_the_playbook(limits: str, input: str, message: str) -> None:
    steps = f"- step: start\n  tool: {{kind: noop, args: {{a: '{input}'}}}}\n"
    assert check(playbook("", steps), KINDS).ok
    (found,) = check(playbook(limits, steps), KINDS).diagnostics
    assert message in found.message


async def loaded(operator: Limits, source: str) -> Plan | InvalidPlan:
    """Checks a playbook as a server with the operator's limits does."""
    broker = StagedBroker()
    await broker.blobs.put(subjects.playbook_key(digest_of(source)), source.encode())
    return (await PlanCache(StagedStore(broker.clock), broker.blobs, KINDS, operator).load(digest_of(source))).plan


async def test_an_execution_has_the_operators_limits_unless_the_playbook_lowers_them() -> None:
    operator = Limits(max_step_runs=10, max_template_operations=5_000_000)
    plan = await loaded(operator, playbook("max_template_operations: 4000000", PLAIN))
    assert isinstance(plan, Plan)
    assert plan.limits == Limits(max_step_runs=10, max_template_operations=4_000_000)


async def test_a_server_refuses_a_playbook_that_wants_more_than_its_operator_allows() -> None:
    refusal = await loaded(Limits(max_step_runs=10), playbook("max_step_runs: 11", PLAIN))
    assert isinstance(refusal, InvalidPlan)
    assert "`max_step_runs` is 10" in refusal.reason


async def test_a_worker_leaves_it_to_the_server_to_judge_limits() -> None:
    source = playbook("max_step_runs: 1000000000", PLAIN)
    assert not check(source, KINDS).ok
    broker = StagedBroker()

    async def answer(_subject: str, _body: bytes, reply: str) -> None:
        broker.bus.send(reply, codec.encode({"source": source, "path": "tests/limited"}))

    await broker.bus.listen(f"{subjects.ASK_PLAYBOOK}.default", answer)
    plans, digest = PlanClient(KINDS), digest_of(source)
    command = StepCommand("command-1", "execution-1", 0, "steprun-1", "start", digest, "default")
    assert (await plans.load(digest, Asker(broker.bus, broker.clock, command, "worker"))).digest == digest
    await plans.close()


def test_an_operators_variables_reach_the_server_of_a_place() -> None:
    settings = Settings(
        nats_url="nats://localhost:1",
        postgres_dsn="postgresql://localhost:1/x",
        access_keys=ACCESS_KEYS,
        limits={"max_step_runs": "5"},
    )
    with open_stack(settings) as place:
        assert place.endpoint.limits == Limits(max_step_runs=5)


async def test_the_limits_of_a_place_are_those_of_its_server() -> None:
    broker = StagedBroker()
    store: Any = StagedStore(broker.clock)
    store.catalog, store.credentials, store.feed = MemoryCatalog(store), MemoryCredentials(broker.clock), None
    store.audit, store.retention, store.rights = MemoryAudit(), MemoryRetention(store), None
    store.grants = MemoryGrants()
    ports: Any = {"log": broker.event_log, "queue": broker.command_queue, "bus": broker.bus, "blobs": broker.blobs}
    ports |= {"store": store, "clock": broker.clock, "task_logs": broker.task_logs, "diagnosis": None, "replica": None}
    ports["trigger_streams"] = broker.trigger_streams
    connected = OperatorPorts(**ports, access_keys=ACCESS_KEYS)
    endpoint = Endpoint("", "", {}, limits=Limits(max_step_runs=5), server_keys=(new_key(),))
    server = make_server(connected, endpoint)
    source = playbook("", PLAIN)
    await broker.blobs.put(subjects.playbook_key(digest_of(source)), source.encode())
    plan = (await server.plans.load(digest_of(source))).plan
    assert isinstance(plan, Plan)
    assert plan.limits == Limits(max_step_runs=5)


@pytest.mark.parametrize(("variable", "exit_code"), [("2000000", 0), ("10", 2)])
def test_check_judges_by_the_operators_limits(variable: str, exit_code: int, tmp_path: Path) -> None:
    file = tmp_path / "limited.yaml"
    file.write_text(playbook("max_step_runs: 1500000", PLAIN), encoding="utf-8")
    found = CliRunner(env={"NOETL_LIMIT_MAX_STEP_RUNS": variable}).invoke(commands, ["check", str(file)])
    assert found.exit_code == exit_code
    assert ("a playbook may only lower a limit: `max_step_runs` is 10" in found.output) is (exit_code == 2)
