"""What an execution that waits expects from outside, as ``why`` has it for programs."""

from __future__ import annotations

from typing import Any

import pytest
from why_scenarios import HEAD, reasons, waiting_on

from noetl_stream.ports.operations.waits import ExpectedKeyDocument, ExpectedValueDocument
from noetl_testkit.scenario.scenario import Scenario

ARCS = """
workflow:
  - step: quote
    tool: {kind: noop}
    next:
      spec: {mode: MODE, wait: {timeout_s: 60}}
      arcs: [ARCS]
  - {step: order, tool: {kind: noop}}
  - {step: drop, tool: {kind: noop}}
"""


def held(rules: str) -> Scenario:
    """A token that an admission with these rules holds."""
    admit = "{rules: [" + rules + "], wait: {timeout_s: 60}}"
    step = "{step: decide, spec: {policy: {admit: " + admit + "}}, tool: {kind: noop}}"
    start = "{step: start, tool: {name: act, kind: noop}, next: {arcs: [{step: decide}]}}"
    scenario = Scenario(HEAD + f"workload: {{limit: 100}}\nworkflow: [{start}, {step}]\n")
    scenario.start()
    scenario.done("start")
    return scenario


def resting(arcs: str, mode: str = "exclusive") -> Scenario:
    """A branch that rests at these arcs."""
    scenario = Scenario(HEAD + ARCS.replace("ARCS", arcs).replace("MODE", mode))
    scenario.start()
    scenario.done("quote")
    return scenario


def rule(when: str, then: str = "allow: true") -> str:
    return f'{{when: "{{{{ {when} }}}}", then: {{{then}}}}}'


def values(scenario: Scenario, kind: str = "admission") -> dict[str, list[tuple[Any, bool | None, list[str]]]]:
    found = waiting_on(scenario, kind).expects
    return {one.key: [(value.value, value.moves, value.to) for value in one.values] for one in found}


def test_texts_that_a_guard_compares_with_are_expected() -> None:
    scenario = held(rule("ctx.decision is defined and ctx.decision in ['approved', 'refused']"))
    assert values(scenario) == {"decision": [("approved", True, []), ("refused", True, [])]}
    assert "--set decision=approved" in reasons(scenario)["admission"].moves


@pytest.mark.parametrize(
    "when", ["ctx.approved == true", "ctx.approved | default(false)", "ctx.approved and workload.limit > 5"]
)
def test_both_answers_of_a_yes_or_no_are_expected_with_the_arc_of_each(when: str) -> None:
    assert values(held(rule(when))) == {"approved": [(True, True, []), (False, False, [])]}


def test_the_first_rule_that_holds_decides() -> None:
    scenario = held(f"{rule('ctx.rejected', 'allow: false')}, {rule('ctx.rejected == false')}")
    assert values(scenario) == {"rejected": [(True, False, []), (False, True, [])]}


def test_a_key_inside_another_is_expected_by_its_path() -> None:
    scenario = held(rule("ctx.order.approved == true and ctx.order.amount > 5"))
    assert values(scenario) == {"order.approved": [(True, False, []), (False, False, [])]}
    scenario.patch(order={"amount": 7})
    found = waiting_on(scenario, "admission").expects
    assert [(one.key, one.path) for one in found] == [("order.approved", ["order", "approved"])]
    assert values(scenario) == {"order.approved": [(True, True, []), (False, False, [])]}
    assert "--set order.approved=true --merge" in reasons(scenario)["admission"].moves


def test_nothing_is_expected_inside_a_value_that_is_no_mapping() -> None:
    scenario = held(rule("ctx.order is mapping and ctx.order.approved == true"))
    assert list(values(scenario)) == ["order.approved"]
    scenario.patch(order=[1])
    assert values(scenario) == {}


def test_numbers_and_texts_are_expected_only_where_they_move_it() -> None:
    scenario = held(", ".join(map(rule, ["ctx.votes == 3", "ctx.state != 'open'", "ctx.amount > 7"])))
    assert values(scenario) == {"votes": [(3, True, [])]}


def test_a_value_that_looks_like_json_is_quoted_in_the_command() -> None:
    assert "--set answer='\"42\"'" in reasons(held(rule("ctx.answer == '42'")))["admission"].moves


def test_values_outside_a_guard_are_not_guessed() -> None:
    scenario = held(rule("ctx.amount is defined and ctx.amount > workload.limit"))
    assert values(scenario) == {}
    assert "--set amount=…" in reasons(scenario)["admission"].moves


def test_answers_at_next_say_where_they_lead() -> None:
    scenario = resting('{step: order, when: "{{ ctx.yes == true }}"}, {step: drop, when: "{{ ctx.yes == false }}"}')
    assert values(scenario, "next") == {"yes": [(True, True, ["order"]), (False, True, ["drop"])]}


def test_inclusive_arcs_may_all_follow() -> None:
    arcs = '{step: order, when: "{{ ctx.yes }}"}, {step: drop, when: "{{ ctx.yes is defined and ctx.yes }}"}'
    assert values(resting(arcs, "inclusive"), "next")["yes"][0] == (True, True, ["order", "drop"])


def test_an_answer_that_would_fail_the_execution_is_not_expected() -> None:
    arcs = '{step: order, when: "{{ ctx.yes == true }}", args: {by: "{{ ctx.by }}"}}'
    assert values(resting(arcs), "next") == {"yes": [(False, False, [])]}


def test_too_many_values_are_not_tried() -> None:
    listed = ", ".join(f"'{n}'" for n in range(100))
    assert len(values(held(rule(f"ctx.choice in [{listed}]")))["choice"]) == 8


SIGNAL = """
workflow:
  - step: start
    tool:
      - {name: word, kind: wait, signal: go, timeout_s: 60SCHEMA}
      - {name: note, kind: noop, args: {by: "{{ word.by }}", at: "{{ word.data.at }}", all: "{{ word }}"}}
    next: {arcs: [{step: live, when: "{{ event.result.ok == 1 }}"}]}
  - {step: live, tool: {kind: noop, args: {why: "{{ steps.start.results.word.why }}"}}}
"""


def awaiting(text: str) -> Scenario:
    scenario = Scenario(HEAD + text)
    scenario.start()
    scenario.done("start")
    return scenario


def test_keys_that_templates_read_of_a_payload_are_expected() -> None:
    found = waiting_on(awaiting(SIGNAL.replace("SCHEMA", "")), "signal")
    assert [one.key for one in found.expects] == ["at", "by", "why"]
    assert found.schema is None


def test_a_payload_that_is_the_result_of_its_step_is_read_in_arcs() -> None:
    text = SIGNAL[: SIGNAL.index("      - {name: note")] + SIGNAL[SIGNAL.index("    next:") :]
    text = text.replace("SCHEMA", "").replace("ok == 1", "ok")
    assert waiting_on(awaiting(text), "signal").expects == [
        ExpectedKeyDocument("ok", [ExpectedValueDocument(True), ExpectedValueDocument(False)]),
        ExpectedKeyDocument("why", []),
    ]


def test_the_schema_of_a_payload_is_shown() -> None:
    schema = "{type: object, required: [by], properties: {by: {type: string}}}"
    found = waiting_on(awaiting(SIGNAL.replace("SCHEMA", f", spec: {{result: {{schema: {schema}}}}}")), "signal")
    assert found.schema == {"type": "object", "required": ["by"], "properties": {"by": {"type": "string"}}}
