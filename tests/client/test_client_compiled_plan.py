"""What `playbook show --compiled` says of a plan."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from noetl_stream.client.compiled_plan import compiled_json, compiled_text
from noetl_stream.model.codec import decode_json, encode
from noetl_stream.playbook.compile import compile_playbook
from noetl_stream.playbook.plan import AdmitPlan, LoopPlan, Plan, StepPlan
from noetl_stream.tools.registry import kinds_of, load_tools

PLAYBOOKS = sorted((Path(__file__).parents[2] / "playbooks").glob("*.yaml"))

TEXT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: shown, path: demo/shown, version: "1.0"}
workload: {pages: [1, 2], size: 3}
workflow:
  - step: start
    spec:
      policy:
        admit:
          rules:
            - when: "{{ workload.size > 2 }}"
              then: {allow: true}
            - else: {then: {allow: false}}
    loop:
      in: "{{ workload.pages }}"
      iterator: page
      spec: {mode: parallel, max_in_flight: 2}
    tool:
      - name: fetch
        kind: noop
        args: {page: "{{ iter.page }}"}
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: {do: retry, attempts: 5}
              - else: {then: {do: jump, to: store, set_iter: {seen: "{{ outcome.result }}"}}}
      - {name: store, kind: noop}
    next:
      arcs:
        - {step: end, when: "{{ event.name == 'loop.done' }}"}
        - {step: end}
  - step: end
    spec: {pool: large}
    tool: {kind: noop}
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return compile_playbook(TEXT, kinds_of(load_tools()))


def test_the_text_has_every_step_task_rule_and_arc_in_order(plan: Plan) -> None:
    assert compiled_text(plan).splitlines() == [
        f"demo/shown@1.0 ({plan.digest[:12]}), begins at start",
        "",
        "step start (line 6): pool default",
        "  when {{ workload.size > 2 }}: admit",
        "  else: hold",
        "  loop page in {{ workload.pages }}: parallel, distributed, 2 in flight, fail_fast",
        "  task fetch (line 18): noop",
        "    when {{ outcome.status == 'error' }}: retry, 5 attempts",
        "    else: jump to store, set_iter seen",
        "    unmatched: continue",
        "  task store (line 27): noop",
        "  → end when {{ event.name == 'loop.done' }}",
        "  → end",
        "",
        "step end (line 32): pool large",
        "  task end_task (line 34): noop",
    ]


def test_a_generated_task_says_where_it_comes_from(plan: Plan) -> None:
    start = plan.steps["start"]
    generated = replace(start.tasks[0], name="poll__body_1", origin="`until` poll")
    text = compiled_text(with_step(plan, replace(start, tasks=(generated,))))
    assert "  task poll__body_1 (line 18, from `until` poll): noop" in text


def test_joins_waits_and_inner_loops_are_shown(plan: Plan) -> None:
    start = plan.steps["start"]
    assert isinstance(start.admit, AdmitPlan)
    assert isinstance(start.loop, LoopPlan)
    inner = replace(start.loop, iterator="word", mode="sequential", placement="local")
    changed = replace(start, join="all", admit=replace(start.admit, wait_s=60.0), loop=replace(start.loop, inner=inner))
    text = compiled_text(with_step(plan, changed))
    assert "step start (line 6): pool default, joins all" in text
    assert "  held for 60 s: fail" in text
    assert "\n    loop word in {{ workload.pages }}: sequential, local, fail_fast\n    task fetch" in text


def with_step(plan: Plan, step: StepPlan) -> Plan:
    return replace(plan, steps={**plan.steps, step.name: step})


def test_the_json_has_all_of_the_plan_with_templates_as_their_text(plan: Plan) -> None:
    found = compiled_json(plan)
    assert list(found) == [field.name for field in fields(Plan)]
    start = found["steps"]["start"]
    assert list(start) == [field.name for field in fields(StepPlan)]
    assert start["loop"]["items"] == "{{ workload.pages }}"
    assert start["tasks"][0]["inputs"] == {"args": {"page": "{{ iter.page }}"}}
    assert start["arcs"][0]["guard"] == "{{ event.name == 'loop.done' }}"
    assert start["reads"]["workload"] == []
    assert found["limits"]["max_step_runs"] == 100_000


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.name)
def test_every_playbook_here_can_be_shown(path: Path) -> None:
    plan = compile_playbook(path.read_text(), kinds_of(load_tools()))
    assert decode_json(encode(compiled_json(plan)))["path"] == plan.path
    assert plan.entry in compiled_text(plan)
