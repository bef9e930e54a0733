"""Placement of steps in pools by labels and resources: what ``check`` accepts and refuses, and which pool is chosen
(LANGUAGE §15 *Placement*).
"""

from __future__ import annotations

import pytest
from playbook_building import checked, codes, workflow

from noetl_stream.errors import UsageError
from noetl_stream.model.placement import Placement, PoolLabels
from noetl_stream.playbook.compile.view import compiled_view
from noetl_stream.settings.servers import POOL_LABELS_VARIABLE, read_pool_labels

POOLS: PoolLabels = {
    "big": {"memory_mb": "65536", "cpu": "16", "zone": "eu"},
    "gpu": {"accelerator": "gpu", "memory_mb": "32768", "zone": "eu", "disk": "ssd"},
    "us": {"zone": "us", "disk": "ssd"},
}


def steps(spec: str, executor: str = "") -> str:
    step = f"- {{ step: start, tool: {{ kind: noop }}, spec: {{ {spec} }} }}"
    return workflow(step, f"executor: {{ spec: {{ {executor} }} }}\n" if executor else "")


def placed(spec: str, executor: str = "") -> Placement | None:
    return checked(steps(spec, executor)).require_plan().steps["start"].placement


def test_labels_and_resources_of_a_step_come_before_those_of_the_executor() -> None:
    assert placed("", "placement: { required: { zone: eu } }") == Placement({"zone": "eu"})
    both = placed("placement: { preferred: { tier: 1, spot: true } }", "placement: { required: { zone: eu } }")
    assert both == Placement(preferred={"tier": "1", "spot": "true"})
    assert placed("resources: { memory_mb: 4096 }") == Placement(resources={"memory_mb": 4096.0})
    assert placed("placement: {}, resources: {}") is None


def test_a_pool_that_is_named_is_the_only_one() -> None:
    required = "placement: { required: { zone: eu } }"
    assert placed(required, "pool: big") == Placement({"zone": "eu"}, pool="big")
    assert placed(f"pool: gpu, {required}", "pool: big") == Placement({"zone": "eu"}, pool="gpu")


def test_a_placement_is_shown_in_the_compiled_view_and_holds_for_what_undoes_the_step() -> None:
    undo = "policy: { compensation: { tool: { kind: noop } } }"
    plan = checked(steps(f"placement: {{ required: {{ zone: eu }} }}, {undo}")).require_plan()
    assert compiled_view(plan)["steps"][0]["placement"] == {"required": {"zone": "eu"}}
    assert [step.placement for step in plan.every_step] == [Placement({"zone": "eu"})] * 2
    assert plan.newer, "no server of version 0.3 may meet it"


REFUSED = [
    ("placement: { required: { zone: [eu] } }", "invalid_value"),
    ('placement: { required: { zone: "{{ workload.zone }}" } }', "wrong_type"),
    ('placement: { required: { zone: "a b" } }', "invalid_value"),
    ("placement: { required: { 'the zone': eu } }", "invalid_name"),
    ("placement: { needed: { zone: eu } }", "unknown_key"),
    ("placement: { zone: eu }", "unknown_key"),
    ("resources: { cpu: 0 }", "invalid_value"),
    ("resources: { cpu: many }", "wrong_type"),
    ("resources: { memory: 4096 }", "unknown_key"),
    ("policy: { placement: { required: { zone: eu } } }", "reserved"),
]


@pytest.mark.parametrize(("spec", "code"), REFUSED)
def test_a_mistake_in_a_placement_gets_its_diagnostic_and_a_hint(spec: str, code: str) -> None:
    [problem] = checked(steps(spec)).diagnostics
    assert problem.code == code and problem.hint


def test_a_placement_without_effect_is_a_warning() -> None:
    only_routes = "- { step: start, spec: { placement: { required: { zone: eu } } }, next: { arcs: [] } }"
    assert codes(workflow(only_routes)) == ["no_effect"]


CHOSEN = [
    (Placement({"zone": "eu"}), "big"),
    (Placement({"zone": "eu"}, {"disk": "ssd"}), "gpu"),
    (Placement({"zone": "eu", "accelerator": "gpu"}), "gpu"),
    (Placement({"zone": "asia"}), None),
    (Placement({"zone": "eu"}, pool="us"), None),
    (Placement({"zone": "us"}, pool="us"), "us"),
    (Placement(resources={"memory_mb": 40000}), "big"),
    (Placement(resources={"memory_mb": 30000, "cpu": 32}), None),
    (Placement(preferred={"disk": "ssd"}), "gpu"),
    (Placement(preferred={"disk": "hdd"}), "default"),
]


@pytest.mark.parametrize(("placement", "pool"), CHOSEN)
def test_of_the_pools_with_all_required_labels_the_one_with_the_most_preferred_is_chosen(
    placement: Placement, pool: str | None
) -> None:
    assert placement.choose("default", POOLS, lambda _: True) == pool


def test_only_a_pool_that_may_be_used_is_chosen() -> None:
    assert Placement({"zone": "eu"}).choose("default", POOLS, lambda pool: pool == "gpu") == "gpu"


def test_the_operator_writes_the_labels_of_pools_in_one_setting() -> None:
    text = "gpu: accelerator=gpu memory_mb=65536; eu: zone=eu;"
    wanted = {"gpu": {"accelerator": "gpu", "memory_mb": "65536"}, "eu": {"zone": "eu"}}
    assert read_pool_labels(POOL_LABELS_VARIABLE, {POOL_LABELS_VARIABLE: text}) == wanted
    assert read_pool_labels(POOL_LABELS_VARIABLE, {}) == {}


@pytest.mark.parametrize("text", ["gpu", "gpu:", "a b: zone=eu", "gpu: zone", "gpu: zone=eu; gpu: disk=ssd"])
def test_labels_of_pools_of_another_form_say_what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match=POOL_LABELS_VARIABLE) as refused:
        read_pool_labels(POOL_LABELS_VARIABLE, {POOL_LABELS_VARIABLE: text})
    assert "gpu: accelerator=gpu" in (refused.value.hint or "")
