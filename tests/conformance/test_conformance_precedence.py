"""Where the sources contradict each other, the one that precedes is followed; what it leaves out stands."""

from __future__ import annotations

import pytest
from engine_scenarios import started
from playbook_building import codes, pipeline, playbook, start_of, task_of, workflow

from noetl_stream.model.outcome import ErrorInfo

CONTINUE = "{ else: { then: { do: continue } } }"
ONE = "workflow: [ { step: start, tool: { kind: noop } } ]\n"


PARALLEL = """
- step: start
  loop: { in: [1], iterator: n, spec: { mode: parallel } }
  tool: { kind: noop, spec: { policy: { rules: [ { else: { then: { do: continue, set_vars: { a: 1 } } } } ] } } }
"""


def ruled(rules: str, more: str = "") -> str:
    """A playbook of one task with this policy."""
    return pipeline(f"- {{ kind: noop, spec: {{ policy: {{ {more} rules: [ {rules} ] }} }} }}")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        # v10 §5.4 has `on_unmatched` as a placeholder; LANGUAGE §1 makes it real.
        (ruled('{ when: "{{ outcome.error }}", then: { do: fail } }', "on_unmatched: fail,"), []),
        # v10 §3.1 lays `executor.spec` over every inner one; LANGUAGE §1 leaves `mode` to its scope.
        (playbook("executor: { spec: { mode: parallel } }\n" + ONE), ["unknown_key"]),
        # In the formal specification §3.2, `iter` is inside loops only; LANGUAGE §5 gives every pipeline one.
        (ruled("{ else: { then: { do: continue, set_iter: { page: 1 } } } }"), []),
    ],
    ids=["v10 5.4", "v10 3.1", "formal 3.2"],
)
def test_language_precedes_v10_and_the_formal_specification(text: str, problems: list[str]) -> None:
    assert codes(text) == problems


def test_language_precedes_v10_in_what_an_exhausted_retry_does() -> None:
    """v10 §5.4 continues where no rule matches; LANGUAGE §5 lets no exhausted retry look like success."""
    rule = '{ when: "{{ outcome.error }}", then: { do: retry, attempts: 2, delay: 0 } }'
    scenario = started(
        f"- step: start\n  tool: {{kind: noop, spec: {{policy: {{rules: [{rule}]}}}}}}\n",
    )
    run = scenario.take("start")
    for _ in range(2):
        run.answer(error=ErrorInfo("connection", "it hung up"))
    assert (scenario.status, scenario.error.kind) == ("failed", "retries_exhausted")


@pytest.mark.parametrize("tool", ["{ kind: noop }", "[ { kind: noop } ]"], ids=["single", "without a name"])
def test_v10_precedes_the_formal_specification(tool: str) -> None:
    """The formal specification §2.2 has a list of labelled tasks; v10 §7 also has one task alone, and no names."""
    assert codes(workflow(f"- step: start\n  tool: {tool}")) == []


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        # In runtime-state §0 a step has `when`; formal §2.2 refuses it.
        (workflow('- step: start\n  when: "{{ true }}"\n  tool: { kind: noop }'), ["step_when"]),
        # In runtime-state §3, `eval` writes state; in formal §6, the rules of a policy do.
        (pipeline("- { kind: noop, eval: [] }"), ["legacy_syntax"]),
        # In runtime-state §7.1, writing `vars` is safe in parallel loops; LANGUAGE §5 refuses it.
        (workflow(PARALLEL), ["set_vars_in_parallel_loop"]),
    ],
    ids=["when", "eval", "vars"],
)
def test_the_others_precede_the_runtime_state_page(text: str, problems: list[str]) -> None:
    assert codes(text) == problems


def test_sentences_left_out_of_the_language_stand_as_in_the_sources() -> None:
    """The shape of an admission rule stands in v10 §5.2.1 alone, where a jump says its target in v10 §5.4."""

    def admitting(then: str) -> str:
        rules = f"[ {{ when: true, then: {then} }} ]"
        return workflow(
            f"- step: start\n  spec: {{ policy: {{ admit: {{ rules: {rules} }} }} }}\n  tool: {{ kind: noop }}"
        )

    admit = start_of(admitting("{ allow: false }")).admit
    assert admit is not None and [rule.allow for rule in admit.rules] == [False]
    assert codes(admitting("false")) != []
    jump = '{ when: "{{ outcome.error }}", then: { do: jump, to: again } }'
    tool = f"- {{ name: again, kind: noop, spec: {{ policy: {{ rules: [ {jump}, {CONTINUE} ] }} }} }}"
    policy = task_of(pipeline(tool)).policy
    assert policy is not None and policy.rules[0].to == "again"
    assert codes(pipeline(tool.replace("to: again", "target: again"))) != []
