"""Warnings: playbooks that run but probably not as their author intended (LANGUAGE §2, §5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playbook_building import checked, codes, found, pipeline, playbook, workflow

from noetl_stream.playbook.diagnostics import MAX_DIAGNOSTICS


def with_rules(rules: str, extra: str = "") -> str:
    return pipeline(f"- {{ kind: noop, spec: {{ policy: {{ {extra} rules: [ {rules} ] }} }} }}")


SETS = "spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { approved: true } } } } ] } }"


def rule(when: str, do: str = "fail") -> str:
    return f'{{ when: "{when}", then: {{ do: {do} }} }}'


@pytest.mark.parametrize(
    ("rules", "warns"),
    [
        (rule("{{ outcome.result.empty }}", "break"), True),
        (rule("{{ outcome.status == 'error' and _attempt > 1 }}"), True),
        (rule("{{ outcome.status == 'error' }}"), False),
        (rule("{{ outcome.status != 'ok' }}"), False),
        (rule("{{ outcome.error }}"), False),
        ("{ when: true, then: { do: continue } }", False),
        (rule("{{ outcome.result.empty }}", "break") + ", { else: { then: { do: continue } } }", False),
    ],
)
def test_an_error_that_no_rule_needs_to_match_is_warned_about(rules: str, warns: bool) -> None:
    assert ("unmatched_error" in codes(with_rules(rules))) is warns


def test_an_unmatched_error_that_fails_the_task_is_fine() -> None:
    assert codes(with_rules(rule("{{ outcome.result.empty }}", "break"), "on_unmatched: fail,")) == []


@pytest.mark.parametrize(
    ("rules", "warns"),
    [
        (rule("{{ outcome.result.n == 1 }}", "break") + ", " + rule("{{  outcome.result.n == 1 }}"), True),
        (rule("{{ outcome.result.n == 1 }}", "break") + ", " + rule("{{ outcome.result.n == 2 }}"), False),
        ('{ when: "{{ outcome.error }}", then: { do: retry, attempts: 3 } }, ' + rule("{{ outcome.error }}"), False),
    ],
)
def test_a_rule_whose_condition_an_earlier_one_has_is_warned_about(rules: str, warns: bool) -> None:
    rules += ", { else: { then: { do: fail } } }"
    assert ("no_effect" in codes(with_rules(rules))) is warns


@pytest.mark.parametrize(("mode", "warns"), [("exclusive", True), ("inclusive", False)])
def test_a_rule_of_an_exclusive_admission_whose_condition_an_earlier_one_has_is_warned_about(
    mode: str, warns: bool
) -> None:
    rules = '[ { when: "{{ execution_id }}", then: %s }, { when: "{{ execution_id }}", then: { allow: true } } ]'
    admit = f"admit: {{ mode: {mode}, rules: {rules % '{ allow: true }'} }}"
    text = workflow(f"- {{ step: start, tool: {{ kind: noop }}, spec: {{ policy: {{ {admit} }} }} }}")
    assert ("no_effect" in codes(text)) is warns


@pytest.mark.parametrize(("mode", "warns"), [("exclusive", True), ("inclusive", False)])
def test_an_exclusive_arc_whose_condition_an_earlier_one_has_is_warned_about(mode: str, warns: bool) -> None:
    arcs = '[ { step: left, when: "{{ ctx.n == 1 }}" }, { step: right, when: "{{ ctx.n == 1 }}" } ]'
    steps = f"""
- step: start
  next: {{ spec: {{ mode: {mode} }}, arcs: {arcs} }}
- step: left
  tool: {{ kind: noop }}
- step: right
  tool: {{ kind: noop }}
"""
    assert ("no_effect" in codes(workflow(steps))) is warns


KEPT = 'then: { do: continue, set_ctx: { rows: "{{ outcome.result.rows }}" } }'


@pytest.mark.parametrize(
    ("rules", "warns"),
    [
        (f"{{ else: {{ {KEPT} }} }}", True),
        (f"{{ when: true, {KEPT} }}", True),
        (rule("{{ outcome.result.n == 1 }}") + f", {{ else: {{ {KEPT} }} }}", True),
        (rule("{{ outcome.status == 'error' }}") + f", {{ else: {{ {KEPT} }} }}", False),
        (f"{{ when: \"{{{{ outcome.status == 'ok' }}}}\", {KEPT} }}, {{ else: {{ then: {{ do: fail }} }} }}", False),
        (f"{{ else: {{ {KEPT.replace('.rows }}', '.rows | default([]) }}')} }} }}", False),
        (f"{{ else: {{ {KEPT.replace('outcome.result.rows', 'outcome.status')} }} }}", False),
    ],
)
def test_a_rule_that_writes_the_result_of_an_error_is_warned_about(rules: str, warns: bool) -> None:
    assert ("null_on_error" in codes(with_rules(rules))) is warns


def test_a_kind_that_keeps_a_result_with_the_error_writes_it() -> None:
    http = f"- {{ kind: http, url: 'http://x', spec: {{ policy: {{ rules: [ {{ else: {{ {KEPT} }} }} ] }} }} }}"
    assert "null_on_error" not in codes(pipeline(http))


def test_warnings_do_not_keep_a_playbook_from_running() -> None:
    result = checked(with_rules(rule("{{ outcome.result.empty }}", "break")))
    assert result.ok and result.diagnostics[0].severity == "warning"


FORK = """
- step: start
  next: { spec: { mode: %s }, arcs: [ { step: left, when: true }, { step: right } ] }
- step: left
  tool: { kind: noop, spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { %s: 1 } } } } ] } } }
- step: right
  tool: { kind: noop, spec: { policy: { rules: [ { else: { then: { do: continue, set_ctx: { %s: 2 } } } } ] } } }
"""


@pytest.mark.parametrize(
    ("mode", "left", "right", "warns"),
    [
        ("inclusive", "total", "total", True),
        ("inclusive", "total", "count", False),
        ("exclusive", "total", "total", False),
    ],
)
def test_two_branches_that_set_one_key_are_warned_about(mode: str, left: str, right: str, warns: bool) -> None:
    assert bool(found(workflow(FORK % (mode, left, right)), "competing_writes")) is warns


def test_a_step_that_no_arc_reaches_is_warned_about() -> None:
    text = workflow("- step: start\n  tool: { kind: noop }\n- step: lost\n  tool: { kind: noop }")
    [warning] = found(text, "unreachable_step")
    assert "`lost`" in warning.message and warning.line == 7


def test_a_template_in_the_workload_is_warned_about() -> None:
    text = playbook('workload: { a: [ "{{ workload.b }}" ] }\nworkflow: [ { step: start, tool: { kind: noop } } ]')
    [warning] = found(text, "template_not_rendered")
    assert warning.pointer == "/workload/a/0"


@pytest.mark.parametrize(
    "arcs", ["[]", "[ { step: start } ]", '[ { step: start, when: "{{ ctx.go }}" }, { step: start } ]']
)
def test_a_wait_at_a_next_where_no_branch_can_rest_has_no_effect(arcs: str) -> None:
    text = f"- step: start\n  next: {{ spec: {{ wait: {{ timeout_s: 60 }} }}, arcs: {arcs} }}"
    assert codes(workflow(text)) == ["no_effect"]


def test_a_name_that_nothing_sets_is_warned_about() -> None:
    text = pipeline('- { kind: noop, args: { a: "{{ iter.pgae | default(1) }}", b: "{{ vars.seen }}" } }')
    assert codes(text) == ["never_set", "never_set"]


NEVER_SET = "nothing in this playbook sets `ctx.approved`"


def admitted(when: str, wait: str = "") -> str:
    rules = f'rules: [ {{ when: "{when}", then: {{ allow: true }} }} ]'
    return f"- step: start\n  spec: {{ policy: {{ admit: {{ {rules}{wait} }} }} }}\n  tool: {{ kind: noop }}\n"


def routed(when: str, wait: str = "") -> str:
    return f'- step: start\n  next: {{ spec: {{ {wait} }}, arcs: [ {{ step: start, when: "{when}" }} ] }}\n'


@pytest.mark.parametrize("guarded", [admitted, routed])
@pytest.mark.parametrize("when", ["{{ ctx.approved == true }}", "{{ ctx.approved | default(false) }}"])
def test_a_guard_that_reads_a_key_of_ctx_that_nothing_sets_is_warned_about(
    guarded: Callable[..., str], when: str
) -> None:
    [warning] = found(workflow(guarded(when)), "never_set")
    assert warning.message == NEVER_SET and warning.hint is not None
    assert "`admit`" in warning.hint and "`next.spec`" in warning.hint


@pytest.mark.parametrize(
    "steps",
    [
        admitted("{{ ctx.approved }}", ", wait: { timeout_s: 60 }"),
        routed("{{ ctx.approved }}", "wait: { timeout_s: 60 }"),
        routed("{{ ctx.approved }}")
        + admitted("{{ ctx.approved }}", ", wait: { timeout_s: 60 }").replace("start", "b"),
        routed("{{ ctx.approved }}").replace("  next", f"  tool: {{ kind: noop, {SETS} }}\n  next"),
    ],
    ids=["admit.wait", "next.spec.wait", "another waits for it", "a rule sets it"],
)
def test_a_key_that_is_waited_for_or_set_is_not(steps: str) -> None:
    assert "never_set" not in codes(workflow(steps))


def test_a_misspelt_key_of_ctx_is_found_wherever_it_is_read() -> None:
    tool = f'{{ kind: noop, {SETS}, args: {{ a: "{{{{ ctx.aproved }}}}", b: "{{{{ ctx.other }}}}" }} }}'
    [warning] = found(pipeline(f"- {tool}"), "never_set")
    assert (warning.message, warning.hint) == (NEVER_SET.replace("app", "ap"), "did you mean `ctx.approved`?")


CLOSED = "executor: { spec: { workload: { properties: { city: { type: string } }, additionalProperties: false } } }\n"


@pytest.mark.parametrize(
    ("root", "key", "found_of_it"),
    [
        ("workload: { url: http://a }\n", "ulr", [("never_set", "did you mean `workload.url`?")]),
        ("workload: { url: http://a }\n", "other", []),
        ("workload: {}\n", "ulr", []),
        (CLOSED, "city", []),
        (CLOSED, "ciyt", [("unknown_name", "did you mean `city`?")]),
        (CLOSED, "other", [("unknown_name", "known: `city`")]),
    ],
)
def test_a_key_of_the_workload_is_known_as_far_as_it_is_declared(
    root: str, key: str, found_of_it: list[tuple[str, str]]
) -> None:
    text = pipeline(f'- {{ kind: noop, args: {{ a: "{{{{ workload.{key} }}}}" }} }}', root)
    assert [(one.code, one.hint) for one in checked(text).diagnostics] == found_of_it


@pytest.mark.parametrize(
    ("default", "is_warned"), [("text", True), ("5", True), ("{ a: 1 }", False), ("[1]", False), ("null", False)]
)
def test_a_loop_over_a_default_that_is_no_list_is_warned_about(default: str, is_warned: bool) -> None:
    steps = '- step: start\n  loop: { in: "{{ workload.rows }}", iterator: row }\n  tool: { kind: noop }'
    text = workflow(steps, f"workload: {{ rows: {default} }}\n")
    assert codes(text) == (["invalid_value"] if is_warned else [])


def test_the_keys_a_loop_sets_can_be_read() -> None:
    text = """
    - step: start
      loop: { in: [1], iterator: item }
      tool: { kind: noop, args: { a: "{{ iter.index }}/{{ iter.count }}", b: "{{ iter.item }}" } }
    """
    assert codes(workflow(text)) == []


def test_a_template_in_a_key_is_warned_about() -> None:
    text = pipeline('- { kind: http, url: a, params: { "{{ workload.a }}": 1 } }')
    [warning] = found(text, "template_not_rendered")
    assert "keys are not rendered" in warning.message


def test_a_retry_of_one_attempt_has_no_effect() -> None:
    then = "{ do: retry, attempts: 1 }"
    text = with_rules(f"{{ when: \"{{{{ outcome.status == 'error' }}}}\", then: {then} }}")
    assert codes(text) == ["no_effect"]


def test_a_step_that_only_routes_takes_no_time() -> None:
    step = "- step: start\n  spec: { policy: { lifecycle: { %s: 5 } } }\n  next: { arcs: [ { step: start } ] }"
    assert codes(workflow(step % "timeout_s")) == ["no_effect"]
    assert codes(workflow(step % "deadline_s")) == []


def test_more_problems_than_are_listed_are_still_errors() -> None:
    warnings = "".join(f'{{ kind: noop, args: {{ a: "{{{{ iter.x{n} }}}}" }} }},' for n in range(MAX_DIAGNOSTICS + 50))
    some = checked(workflow(f"- step: start\n  tool: [ {warnings} ]"))
    assert some.ok and some.diagnostics[-1].code == "too_many_problems"
    assert [item.severity for item in some.diagnostics] == ["warning"] * (MAX_DIAGNOSTICS + 1)
    assert some.plan is not None and not some.plan.steps["start"].tasks[-1].inputs.is_constant
    more = checked(workflow(f"- step: start\n  tool: [ {warnings} ]\n  next: {{ arcs: [ {{ step: nowhere }} ] }}"))
    assert not more.ok


def test_a_wait_for_admission_that_never_denies_has_no_effect() -> None:
    def text(rules: str) -> str:
        admit = f"{{ rules: [ {rules} ], wait: {{ timeout_s: 5 }} }}"
        return workflow(f"- step: start\n  spec: {{ policy: {{ admit: {admit} }} }}\n  tool: {{ kind: noop }}")

    allow, deny = "{ then: { allow: true } }", '{ when: "{{ ctx.closed }}", then: { allow: false } }'
    assert codes(text(f"{{ else: {allow} }}")) == ["no_effect"]
    assert codes(text(f"{deny}, {{ else: {allow} }}")) == []


ELSE = "{ else: { then: { do: break } } }"
RETRY = "{ when: true, then: { do: retry, attempts: 3 } }"


@pytest.mark.parametrize(
    ("rules", "warns"),
    [
        (rule("{{ outcome.error }}"), False),
        (f"{rule('{{ outcome.error }}')}, {ELSE}", True),
        ("{ when: true, then: { do: break } }", True),
        (RETRY, True),
    ],
)
def test_a_word_on_what_no_rule_matches_has_no_effect_where_one_always_does(rules: str, warns: bool) -> None:
    written = found(with_rules(rules, "on_unmatched: fail,"), "no_effect")
    assert [warning.pointer for warning in written] == ["/workflow/0/tool/0/spec/policy/on_unmatched"] * warns
    assert codes(with_rules(rules)) == []


@pytest.mark.parametrize("certain", ["true", '"{{ true }}"', '"{{- True -}}"'])
def test_rules_after_one_that_always_holds_have_no_effect(certain: str) -> None:
    def warned(first: str, then: str) -> list[int]:
        ladder = f"{first}, {{ when: false, then: {then} }}, {{ else: {{ then: {then} }} }}"
        admit = f"- step: start\n  spec: {{ policy: {{ admit: {{ rules: [ {ladder} ] }} }} }}\n  tool: {{ kind: noop }}"
        text = workflow(admit) if "allow" in then else with_rules(ladder)
        return [warning.column for warning in found(text, "no_effect")]

    for then in ("{ allow: false }", "{ do: break }"):
        assert len(warned(f"{{ when: {certain}, then: {then} }}", then)) == 2
        assert warned(f"{{ when: false, then: {then} }}", then) == []
    assert warned(f"{{ when: {certain}, then: {{ do: retry, attempts: 3 }} }}", "{ do: break }") == []
    choose = f"{{ choose: [ {{ when: {certain}, then: [] }}, {{ else: {{ then: [] }} }} ] }}"
    [warning] = found(pipeline(f"- {choose}"), "no_effect")
    assert warning.message == "a branch here has no effect: the one on line 7 always matches"


def test_exclusive_arcs_after_one_that_always_fires_have_no_effect() -> None:
    def warned(mode: str, *arcs: str) -> list[str]:
        router = f"{{ spec: {{ mode: {mode} }}, arcs: [ {', '.join(arcs)} ] }}"
        text = workflow(
            f"- step: start\n  tool: {{ kind: noop }}\n  next: {router}\n- step: a\n  tool: {{ kind: noop }}"
        )
        return [warning.pointer for warning in found(text, "no_effect")]

    plain, failed = "{ step: a }", "{ step: a, when: \"{{ event.name == 'step.failed' }}\" }"
    guarded = '{ step: a, when: "{{ ctx.x is defined }}" }'
    assert warned("exclusive", plain, guarded, failed, plain) == ["/workflow/0/next/arcs/1", "/workflow/0/next/arcs/3"]
    assert warned("exclusive", "{ step: a, when: true }", plain) == ["/workflow/0/next/arcs/1"]
    assert warned("exclusive", guarded, plain) == []
    assert warned("inclusive", plain, guarded, plain) == []


@pytest.mark.parametrize(
    ("sql", "warns"),
    [
        ("select $json${{ workload.n | tojson }}$json$", False),
        ("select $$ a $$, $t$b ${{ workload.n }}$t$, $json${{ workload.n }}$json$", False),
        ("select $json${{ workload.n }}$json$, 'a=${{ workload.n }}'", True),
        ("select $json${{ workload.n }}", True),
        ("select '/${{ workload.n }}'", True),
    ],
)
def test_a_sign_that_ends_a_quote_of_sql_is_no_mark_of_another_tool(sql: str, warns: bool) -> None:
    source = pipeline(f'- {{ kind: postgres, auth: db, query: "{sql}" }}')
    assert ("template_not_rendered" in codes(source)) == warns
