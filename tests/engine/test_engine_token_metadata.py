"""LANGUAGE §4: admissions that take several rules, and what they add to the token."""

from __future__ import annotations

from typing import Any

import pytest
from engine_scenarios import given, limits, started
from msgspec.structs import replace

from noetl_stream.engine.choices import answer, ask
from noetl_stream.engine.decide.tokens import admission_of
from noetl_stream.engine.effects import build_command
from noetl_stream.model.events import TimerSet, TokenClaimed
from noetl_stream.model.messages import AGGREGATES_FORMAT, FORMAT
from noetl_testkit.scenario.scenario import Scenario, rerun


def rule(when: str, allow: str, token: str = "") -> str:
    added = f", token: {{{token}}}" if token else ""
    return f'{{when: "{{{{ {when} }}}}", then: {{allow: {allow}{added}}}}}'


def otherwise(allow: str, token: str) -> str:
    return f"{{else: {{then: {{allow: {allow}, token: {{{token}}}}}}}}}"


def admitted(rules: str, mode: str = "inclusive", root: str = "workload: {n: 3}\n") -> Scenario:
    return started(
        f"""
        - step: start
          spec: {{policy: {{admit: {{mode: {mode}, rules: [{rules}]}}}}}}
          tool: {{kind: noop}}
        """,
        root,
    )


def metadata(scenario: Scenario) -> dict[str, Any]:
    (claimed,) = scenario.facts(TokenClaimed)
    return claimed.metadata


def test_in_inclusive_mode_every_rule_that_holds_adds_its_metadata() -> None:
    rules = [rule("true", "true", "a: 1"), rule("false", "true", "b: 2"), rule("true", "true", "c: '{{ workload.n }}'")]
    scenario = admitted(", ".join(rules))
    assert metadata(scenario) == {"a": 1, "c": 3}
    (claimed,) = scenario.facts(TokenClaimed)
    assert [(one.value, one.rule) for one in claimed.guards] == [(True, 0), (False, 1), (True, 2)]
    assert scenario.replayed() == scenario.state


@pytest.mark.parametrize(
    ("rules", "enters"),
    [
        ([rule("true", "true"), rule("true", "false")], False),
        ([rule("true", "true"), rule("false", "false")], True),
        ([rule("false", "true")], False),
        ([rule("true", "true"), "{else: {then: {allow: false}}}"], True),
        ([rule("false", "false"), "{else: {then: {allow: true}}}"], True),
        ([rule("true", "false"), "{else: {then: {allow: true}}}"], False),
    ],
    ids=["one refuses", "the refusal does not hold", "none holds", "no else", "else", "else does not outvote"],
)
def test_in_inclusive_mode_a_token_enters_if_a_rule_allows_and_none_refuses(rules: list[str], enters: bool) -> None:
    assert bool(admitted(", ".join(rules)).working) is enters


def test_of_two_rules_that_set_a_key_the_later_one_wins() -> None:
    assert metadata(admitted(f"{rule('true', 'true', 'a: 1')}, {rule('true', 'true', 'a: 2')}")) == {"a": 2}


def test_else_adds_its_metadata_if_no_other_rule_holds() -> None:
    assert metadata(admitted(f"{rule('workload.n > 3', 'true', 'a: 1')}, {otherwise('true', 'b: 2')}")) == {"b": 2}
    assert metadata(admitted(f"{rule('workload.n > 2', 'true', 'a: 1')}, {otherwise('true', 'b: 2')}")) == {"a": 1}


def test_in_exclusive_mode_the_rule_that_decides_adds_its_metadata() -> None:
    rules = f"{rule('false', 'true', 'a: 1')}, {rule('true', 'true', 'b: 2')}, {otherwise('true', 'c: 3')}"
    assert metadata(admitted(rules, "exclusive")) == {"b": 2}


def test_the_step_reads_its_token_in_loop_pipeline_timeout_and_arcs() -> None:
    scenario = started(
        """
        - step: start
          spec:
            policy:
              admit:
                rules: [{else: {then: {allow: true, token: {items: [4, 5], seconds: 60, next: "{{ token.cause }}"}}}}]
              lifecycle: {timeout_s: "{{ token.seconds }}"}
          loop: {in: "{{ token['items'] }}", iterator: item}
          tool: {kind: noop, args: {seen: "{{ [item, token.seconds, token.from_step] }}"}}
          next: {arcs: [{step: last, when: "{{ token.next == 'start' }}", args: {seconds: "{{ token.seconds }}"}}]}
        - step: last
          tool: {kind: noop, args: {seconds: "{{ args.seconds }}", other: "{{ steps.start }}"}}
        """
    )
    scenario.done("start")
    scenario.done("last")
    assert scenario.result == {"seconds": 60, "other": [{"seen": [4, 60, None]}, {"seen": [5, 60, None]}]}
    (timer,) = scenario.facts(TimerSet)
    assert timer.due_ms - scenario.execution.at_ms == 60_000
    assert scenario.replayed() == scenario.state
    assert scenario.decided_again() == scenario.journal


def test_another_step_and_another_run_have_metadata_of_their_own() -> None:
    scenario = started(
        """
        - step: start
          spec: {policy: {admit: {rules: [{else: {then: {allow: true, token: {n: "{{ args.n | default(0) }}"}}}}]}}}
          tool: {kind: noop, args: {n: "{{ token.n }}"}}
          next: {arcs: [{step: start, when: "{{ token.n < 2 }}", args: {n: "{{ token.n + 1 }}"}}]}
        """
    )
    for _ in range(3):
        scenario.done("start")
    assert [one.metadata for one in scenario.facts(TokenClaimed)] == [{"n": 0}, {"n": 1}, {"n": 2}]
    again = rerun(scenario, "start")
    again.done("start")
    assert again.result == {"n": 2}


def test_metadata_that_cannot_be_rendered_or_is_too_large_fails_the_execution() -> None:
    broken = admitted(rule("true", "true", "a: '{{ workload.n.x.y }}'"))
    assert (broken.error.kind, "admission of start" in broken.error.message) == ("expression_error", True)
    large = admitted(
        rule("true", "true", "a: '{{ \"x\" * 200 }}'"), root="workload: {n: 3}\n" + limits(max_ctx_bytes=100)
    )
    assert "metadata of the token has" in large.error.message


def test_another_process_takes_the_same_rules() -> None:
    scenario = given(
        f"""
        - step: start
          spec:
            policy:
              admit:
                mode: inclusive
                rules: [{rule("ctx.go", "true", "a: 1")}, {{else: {{then: {{allow: false}}}}}}]
                wait: {{timeout_s: 9}}
          tool: {{kind: noop, args: {{a: "{{{{ token.a }}}}"}}}}
        """
    )
    scenario.start()
    (waiting,) = scenario.execution.tokens.values()
    policy = scenario.plan.steps["start"].admit
    assert policy is not None
    for go, guards, values in ((True, [True], [{"a": 1}]), (False, [False, True], [])):
        state = replace(scenario.execution, ctx={"go": go})
        questions = ask({"one": admission_of(scenario.plan, state, waiting.token, policy)}, state.limits)
        assert questions is not None
        evaluated = answer(questions).chosen["one"]
        assert (evaluated.guards, evaluated.values) == (guards, values)


def test_only_playbooks_with_metadata_are_kept_from_older_servers_and_workers() -> None:
    plain, with_token = admitted("{else: {then: {allow: true}}}", "exclusive"), admitted(otherwise("true", "a: 1"))
    assert (plain.plan.newer, bool(with_token.plan.newer)) == ("", True)
    for scenario, expected in ((plain, (FORMAT, None)), (with_token, (AGGREGATES_FORMAT, "a"))):
        (assignment,) = scenario.execution.assignments.values()
        command = build_command(scenario.plan, scenario.execution, assignment)
        assert (command.format, next(reversed(command.token), None) if command.token else None) == expected
