"""Placeholders of the sources (LANGUAGE §1): the neutral value is accepted, any other is the error "reserved"."""

from __future__ import annotations

import pytest
from playbook_building import codes, found, workflow

STEP = """- step: start
  spec: {{ policy: {{ {step} }}, {step_spec} }}
  loop: {{ in: [1], iterator: item, spec: {{ policy: {{ {loop} }} }} }}
  tool: {{ kind: noop, spec: {{ policy: {{ {task}rules: [ {{ else: {{ then: {{ do: continue }} }} }} ] }} }} }}
  next: {{ spec: {{ {router} }}, arcs: [ {{ step: start, {arc} }} ] }}
"""
PARTS = ("executor", "defaults", "executor_policy", "step", "step_spec", "loop", "task", "router", "arc")
POLICIES = ("executor_policy", "step", "loop", "task")
UNDER_EVERY_POLICY = (
    *("before: []", "after: []", "finally: []", "tracing: {}", "quotas: {}", "compensation: {}"),
    *("resources: {}", "placement: {}", "profile: ''", "profiles: []"),
)
PLACEHOLDERS = [
    *((part, words) for part in POLICIES for words in UNDER_EVERY_POLICY),
    *((part, "mode: exclusive") for part in POLICIES if part != "loop"),
    *((part, words) for part in ("executor", "step_spec") for words in ("placement: {}", "resources: {}")),
    ("executor", "profile: ''"),
    ("defaults", "resources: {}"),
    ("step", "emit: { events: [] }"),
    *(("loop", f"{word}: []") for word in ("ordering", "reducers", "backpressure", "partitioning")),
    ("router", "policy: {}"),
    ("arc", "spec: {}"),
]
REAL = [
    *(("executor_policy", words) for words in ("finally: []", "compensation: {}", "quotas: {}")),
    *(("step", words) for words in ("compensation: {}", "emit: { events: [] }")),
    *((part, words) for part in ("executor", "step_spec") for words in ("placement: {}", "resources: {}")),
    *(("router", "policy: {}"), ("arc", "spec: {}")),
    *((part, "tracing: {}") for part in POLICIES if part != "loop"),
]
"""Words that were reserved once: empty, they still say nothing."""


def playbook(part: str, words: str) -> str:
    """A playbook with every section, and these words in one of them."""
    written = dict.fromkeys(PARTS, "") | {part: f"{words}, " if part == "task" else words}
    policy = ", ".join(filter(None, [f"defaults: {{ {written['defaults']} }}", written["executor_policy"]]))
    spec = ", ".join(filter(None, [f"policy: {{ {policy} }}", written["executor"]]))
    return workflow(STEP.format(**written), root=f"executor: {{ spec: {{ {spec} }} }}\n")


@pytest.mark.parametrize(("part", "words"), PLACEHOLDERS)
def test_a_neutral_value_is_accepted(part: str, words: str) -> None:
    assert codes(playbook(part, words)) == []


@pytest.mark.parametrize(("part", "words"), [one for one in PLACEHOLDERS if one not in REAL])
def test_a_placeholder_with_contents_is_refused_as_reserved(part: str, words: str) -> None:
    value = (
        words.replace("[]", "[one]").replace("{}", "{ one: 1 }").replace("''", "one").replace("exclusive", "inclusive")
    )
    assert codes(playbook(part, value)) == ["reserved"]


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("before: [one]", "a task in front"),
        ("after: [one]", "a task behind"),
        ("finally: [one]", "executor.spec.policy.finally"),
        ("quotas: { step_runs: 1 }", "executor.spec.policy"),
        ("placement: { required: { zone: eu } }", "executor.spec` or the `spec` of a step"),
        ("resources: { cpu: 1 }", "executor.spec` or the `spec` of a step"),
    ],
)
def test_a_reserved_word_is_answered_with_what_there_is(words: str, instead: str) -> None:
    for part in ("step", "loop", "task"):
        (problem,) = found(playbook(part, words), "reserved")
        assert instead in (problem.hint or "")
