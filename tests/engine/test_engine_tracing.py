"""LANGUAGE §9 *Tracing*: attributes of spans that a playbook names, rendered once and recorded."""

from __future__ import annotations

from typing import Any

from engine_scenarios import started

from noetl_stream.engine.attributes import MAX_CHARS
from noetl_stream.model.events import ExecutionStarted, TokenClaimed
from noetl_stream.model.messages import AGGREGATES_FORMAT
from noetl_testkit.scenario.scenario import Scenario

OF_STEP = 'shop.to: "{{ args.to }}", shop.n: "{{ ctx.n }}", shop.ok: true, shop.none: "{{ workload.none }}"'


def shipping(executor: str = "", step: str = OF_STEP, **workload: Any) -> Scenario:
    steps = f"""
- step: pack
  tool: {{kind: noop}}
  next: {{arcs: [{{step: ship, args: {{to: Berlin}}}}]}}
- step: ship
  spec: {{policy: {{tracing: {{attributes: {{{step}}}}}}}}}
  tool: {{kind: noop}}
"""
    root = f"executor: {{spec: {{policy: {{tracing: {{attributes: {{{executor}}}}}}}}}}}\n"
    return started(steps, root, workload={"order": 7, "none": None, **workload}, ctx={"n": 1.5})


def test_attributes_of_the_execution_are_rendered_at_its_start() -> None:
    scenario = shipping('shop.order: "{{ workload.order }}", shop.text: "order {{ workload.order }}"')
    assert scenario.facts(ExecutionStarted)[0].tracing == {"shop.order": 7, "shop.text": "order 7"}


def test_attributes_of_a_step_are_rendered_when_a_run_of_it_begins() -> None:
    scenario = shipping()
    scenario.done("pack")
    first, second = scenario.facts(TokenClaimed)
    assert first.tracing == {}
    assert second.tracing == {"shop.to": "Berlin", "shop.n": 1.5, "shop.ok": True}
    scenario.done("ship")
    assert scenario.status == "completed"
    assert scenario.replayed() == scenario.execution


def test_one_that_cannot_be_rendered_fails_nothing_and_is_named() -> None:
    bad = 'shop.a: "{{ workload.no.such }}", shop.b: "{{ [1] }}", shop.c: fine, shop.d: "{{ range(90000) | sum }}"'
    scenario = shipping(bad, bad)
    scenario.done("pack")
    scenario.done("ship")
    assert scenario.status == "completed"
    expected = {"shop.c": "fine", "noetl.tracing.missing": "shop.a, shop.b, shop.d"}
    assert scenario.facts(ExecutionStarted)[0].tracing == expected
    assert scenario.facts(TokenClaimed)[1].tracing == expected


def test_texts_of_attributes_are_cut() -> None:
    scenario = shipping('shop.text: "{{ workload.text }}"', text="x" * 1000)
    assert scenario.facts(ExecutionStarted)[0].tracing == {"shop.text": "x" * MAX_CHARS}


def test_a_playbook_with_attributes_is_kept_from_servers_and_workers_that_do_not_know_them() -> None:
    scenario = started("- step: go\n  tool: {kind: noop, spec: {policy: {tracing: {attributes: {a: 1}}}}}\n")
    assert scenario.plan.traces and scenario.plan.newer
    assert scenario.command(scenario.owed("go")).format == AGGREGATES_FORMAT
