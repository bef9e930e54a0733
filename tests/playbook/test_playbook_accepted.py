"""Valid playbooks and their plans (LANGUAGE §1, §3 to §7; v10 §7, §12)."""

from __future__ import annotations

from pathlib import Path

import pytest
from playbook_building import checked, codes, found, pipeline, plan_of, playbook, start_of, task_of, workflow
from playbook_kinds import KINDS

from noetl_stream.model.events import Rate
from noetl_stream.model.ids import digest_of
from noetl_stream.model.limits import DEFAULT_LIMITS, Limits
from noetl_stream.playbook.compile.compiler import CheckResult, check, compile_playbook
from noetl_stream.playbook.compile.view import compiled_view
from noetl_stream.playbook.plan import Plan, Timeouts, WaitPlan

FOLDER = Path(__file__).with_name("accepted")


def load(name: str) -> Plan:
    return compile_playbook((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), KINDS)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_good_playbook_has_a_plan_and_no_diagnostics(path: Path) -> None:
    checked_file = check(path.read_bytes(), KINDS, file=path.name)
    assert [item.render() for item in checked_file.diagnostics] == []
    assert checked_file.ok


def test_the_streaming_pagination_of_the_specification_compiles() -> None:
    plan = load("streaming_pagination")
    step = plan.steps["fetch_all_endpoints"]
    assert plan.entry == "fetch_all_endpoints"
    assert [task.name for task in step.tasks] == [
        "init_iter",
        "fetch_page",
        "route_by_status",
        "store_200",
        "store_404",
        "paginate",
    ]
    assert step.loop is not None
    assert (step.loop.mode, step.loop.placement, step.loop.failure_mode) == ("parallel", "distributed", "best_effort")
    assert step.loop.max_in_flight.source == 10
    assert step.admit is not None and [(rule.guard, rule.allow) for rule in step.admit.rules] == [(None, True)]
    assert [(arc.step, arc.handles_failure) for arc in step.arcs] == [("validate_results", True), ("cleanup", True)]
    retry = step.tasks[step.task_index("fetch_page")].policy.rules[0]  # type: ignore[union-attr]
    assert (retry.do, retry.backoff, retry.max_delay_s) == ("retry", "exponential", 300.0)
    assert retry.attempts is not None and retry.attempts.source == 10
    assert retry.delay_s is not None and retry.delay_s.source == 2.0
    assert step.tasks[1].timeouts == Timeouts(connect=5.0, read=15.0)
    assert step.tasks[5].policy.rules[0].to == "fetch_page"  # type: ignore[union-attr]
    assert step.reads.workload == frozenset(["api_url"])


def test_every_key_of_the_document_reaches_the_plan() -> None:
    plan = load("everything")
    assert (plan.name, plan.path, plan.version) == ("everything", "examples/everything", "1.10")
    assert (plan.entry, plan.failure_mode) == ("gather", "best_effort")
    assert (plan.limits.max_step_runs, plan.limits.inline_delay_s) == (50, 2.0)
    assert plan.limits.max_task_runs == DEFAULT_LIMITS.max_task_runs
    assert plan.result is not None and ("ctx", "total") in plan.result.reads
    assert ("steps", "store") in plan.result.reads
    assert plan.workload["code"] == "007"
    assert plan.workload["since"] == "2024-01-01"
    assert plan.workload["size"] == 16
    assert list(plan.steps) == ["gather", "store", "report"]
    assert [step.pool for step in plan.steps.values()] == ["fetchers", "main", "main"]
    assert plan.steps["report"].tasks == ()
    assert plan.steps["gather"].desc == "Reads pages"
    assert plan.steps["gather"].routing == "inclusive"
    assert (plan.timeout_s, plan.reference_first, plan.priority) == (7200.0, True, 8)
    gather = plan.steps["gather"]
    assert gather.timeout_s is not None
    assert (gather.timeout_s.source, gather.deadline_s) == (600, 900.5)
    assert [step.join for step in plan.steps.values()] == [None, 2, None]
    assert plan.reaches == {"gather": {"store"}, "store": frozenset(), "report": {"store"}}
    assert {name: entry.kind for name, entry in plan.keychain.items()} == {"pg": "credential", "token": "env"}


def test_the_plan_of_a_step_holds_its_admission_and_the_levels_of_its_loop() -> None:
    step = load("everything").steps["gather"]
    assert step.admit is not None
    assert step.admit.wait == WaitPlan(60.0, "discard")
    assert [rule.allow for rule in step.admit.rules] == [True, False]
    assert step.loop is not None and step.loop.inner is not None
    assert (step.loop.iterator, step.loop.inner.iterator) == ("page", "part")


def test_the_plan_of_a_task_holds_inputs_knobs_and_policy() -> None:
    step = load("everything").steps["gather"]
    fetch, filtered = step.tasks
    assert set(fetch.inputs.source) == {"endpoint", "params", "headers"}  # type: ignore[arg-type]
    assert fetch.knobs == {"follow_redirects": False}
    assert fetch.policy is not None and fetch.policy.on_unmatched == "fail"
    retry, go_on = fetch.policy.rules
    assert (retry.backoff, retry.max_delay_s) == ("linear", 20.0)
    assert retry.attempts is not None and retry.attempts.source == 4
    assert set(go_on.set_ctx) == {"total"} and set(go_on.set_iter) == {"rows"} and set(go_on.set_vars) == {"seen"}
    assert {name: shared.op for name, shared in go_on.set_shared.items()} == {"rows_seen": "add", "runs": "count"}
    assert filtered.verbatim["code"].startswith("return [row")
    assert set(filtered.inputs.source) == {"args"}  # type: ignore[arg-type]


def test_timeouts_of_inner_scopes_win_part_by_part() -> None:
    fetch, filtered = load("everything").steps["gather"].tasks
    assert fetch.timeouts == Timeouts(total=5.0, connect=3.0, read=9.0)
    assert filtered.timeouts == Timeouts(total=60.0, connect=3.0, read=9.0)


def test_a_single_tool_is_named_after_its_step() -> None:
    assert task_of(workflow("- step: start\n  tool: { kind: noop }")).name == "start_task"


def test_a_single_tool_keeps_its_own_name() -> None:
    assert task_of(workflow("- step: start\n  tool: { name: only, kind: noop }")).name == "only"


def test_a_task_under_its_label_is_the_task_of_that_name() -> None:
    labelled = """
        - fetch: { kind: http, url: a }
        - { name: count, kind: noop, args: { rows: "{{ fetch.data }}" } }
        - choose: [ { when: true, then: [ store: { kind: noop, name: store } ] } ]
    """
    named = """
        - { name: fetch, kind: http, url: a }
        - { name: count, kind: noop, args: { rows: "{{ fetch.data }}" } }
        - choose: [ { when: true, then: [ { name: store, kind: noop } ] } ]
    """
    assert compiled_view(plan_of(pipeline(labelled)))["steps"] == compiled_view(plan_of(pipeline(named)))["steps"]


def test_unnamed_tasks_are_named_by_their_place() -> None:
    tasks = start_of(pipeline("- kind: noop\n- { name: mine, kind: noop }\n- kind: noop")).tasks
    assert [task.name for task in tasks] == ["task_0", "mine", "task_2"]


def test_a_generated_name_may_not_clash_with_a_given_one() -> None:
    assert codes(pipeline("- kind: noop\n- { name: task_0, kind: noop }")) == ["duplicate_name"]


@pytest.mark.parametrize("key", ["url", "endpoint"])
def test_http_takes_both_names_of_the_address(key: str) -> None:
    assert task_of(pipeline(f"- {{ kind: http, {key}: http://127.0.0.1 }}")).inputs.source == {key: "http://127.0.0.1"}


@pytest.mark.parametrize("key", ["json", "payload", "body"])
def test_http_takes_every_name_of_the_body(key: str) -> None:
    assert checked(pipeline(f"- {{ kind: http, url: a, {key}: {{ a: 1 }} }}")).ok


@pytest.mark.parametrize("key", ["command", "query", "commands"])
@pytest.mark.parametrize("kind", ["postgres", "duckdb"])
@pytest.mark.parametrize("auth", ["auth", "credential"])
def test_sql_takes_every_name_of_its_statements(key: str, kind: str, auth: str) -> None:
    assert checked(pipeline(f"- {{ kind: {kind}, {key}: select 1, {auth}: local_postgres }}")).ok


def test_a_step_without_tool_routes_only() -> None:
    plan = plan_of(workflow("- step: start\n  next: { arcs: [ { step: end } ] }\n- step: end\n  tool: { kind: noop }"))
    assert plan.steps["start"].tasks == ()
    assert plan.steps["start"].arcs[0].guard is None
    assert plan.steps["start"].arcs[0].args.source == {}


def test_the_entry_step_is_the_one_called_start_else_the_first() -> None:
    tool, arcs = "tool: { kind: noop }", "next: { arcs: [ { step: start }, { step: other } ] }"
    assert plan_of(workflow(f"- step: other\n  {tool}\n- step: start\n  {tool}\n  {arcs}")).entry == "start"
    assert plan_of(workflow(f"- step: one\n  {tool}\n- step: two\n  {tool}")).entry == "one"


@pytest.mark.parametrize(
    ("spec", "mode", "placement"),
    [
        ("{}", "sequential", "local"),
        ("{ mode: parallel }", "parallel", "distributed"),
        ("{ mode: parallel, exec: local }", "parallel", "local"),
        ("{ policy: { mode: parallel, exec: local } }", "parallel", "local"),
        ("{ exec: distributed }", "sequential", "distributed"),
        ("{ mode: parallel, policy: { mode: parallel } }", "parallel", "distributed"),
    ],
)
def test_a_loop_is_placed_by_its_mode_unless_it_says_otherwise(spec: str, mode: str, placement: str) -> None:
    text = f"- step: start\n  loop: {{ in: [1], iterator: item, spec: {spec} }}\n  tool: {{ kind: noop }}"
    loop = start_of(workflow(text)).loop
    assert loop is not None
    assert (loop.mode, loop.placement, loop.failure_mode) == (mode, placement, "fail_fast")


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ("{ mode: parallel }", 10),
        ("{ mode: parallel, max_in_flight: 3 }", 3),
        ("{ mode: parallel, policy: { max_in_flight: 4 } }", 4),
        ('{ mode: parallel, max_in_flight: "{{ workload.n }}" }', "{{ workload.n }}"),
        ("{ mode: sequential }", 1),
    ],
)
def test_a_parallel_loop_has_ten_in_flight_unless_it_says_otherwise(spec: str, value: object) -> None:
    text = f"- step: start\n  loop: {{ in: [1], iterator: item, spec: {spec} }}\n  tool: {{ kind: noop }}"
    loop = start_of(workflow(text)).loop
    assert loop is not None and loop.max_in_flight.source == value


def test_the_failure_mode_of_the_loop_wins_over_that_of_the_step() -> None:
    def mode_of(step: str, loop: str) -> str:
        text = f"""
        - step: start
          spec: {{ policy: {{ failure: {step} }} }}
          loop: {{ in: [1], iterator: item, spec: {{ policy: {{ failure: {loop} }} }} }}
          tool: {{ kind: noop }}
        """
        plan = start_of(workflow(text)).loop
        assert plan is not None
        return plan.failure_mode

    assert mode_of("{ mode: best_effort }", "{}") == "best_effort"
    assert mode_of("{ mode: best_effort }", "{ mode: fail_fast }") == "fail_fast"
    assert mode_of("{}", "{}") == "fail_fast"


def test_a_loop_takes_lists_and_mappings_as_they_stand() -> None:
    for items in ("[1, 2]", "{ a: 1 }", '[ "{{ workload.a }}" ]'):
        assert checked(workflow(f"- step: start\n  loop: {{ in: {items}, iterator: x }}\n  tool: {{ kind: noop }}")).ok


@pytest.mark.parametrize(
    ("when", "handles"),
    [
        ("event.name == 'step.failed'", True),
        ("event.status == 'error'", True),
        ("event.error is not none", True),
        ("event.result.total > 3", False),
        ("ctx.go", False),
    ],
)
def test_an_arc_handles_failures_when_its_guard_reads_how_the_step_ended(when: str, handles: bool) -> None:
    text = (
        f'- step: start\n  tool: {{ kind: noop }}\n  next: {{ arcs: [ {{ step: start, when: "{{{{ {when} }}}}" }} ] }}'
    )
    assert start_of(workflow(text)).arcs[0].handles_failure is handles


def test_a_retry_rule_without_options_waits_one_second_each_time() -> None:
    rule = "{ when: \"{{ outcome.status == 'error' }}\", then: { do: retry, attempts: 3 } }"
    text = pipeline(f"- {{ kind: noop, spec: {{ policy: {{ rules: [ {rule} ] }} }} }}")
    policy = task_of(text).policy
    assert policy is not None
    retry = policy.rules[0]
    assert retry.delay_s is not None
    assert (retry.backoff, retry.delay_s.source, retry.max_delay_s) == ("none", 1.0, 300.0)
    assert retry.attempts is not None and retry.attempts.source == 3


def test_only_retry_rules_have_a_delay() -> None:
    text = pipeline("- { kind: noop, spec: { policy: { rules: [ { else: { then: { do: break } } } ] } } }")
    policy = task_of(text).policy
    assert policy is not None and policy.rules[0].delay_s is None


def test_rules_and_tasks_remember_their_lines() -> None:
    text = pipeline(
        """
        - name: one
          kind: noop
          spec:
            policy:
              rules:
                - else: { then: { do: continue } }
        """
    )
    task = task_of(text)
    assert text.splitlines()[task.line - 1].strip() == "- name: one"
    assert task.policy is not None
    assert text.splitlines()[task.policy.rules[0].line - 1].strip().startswith("- else")


def test_limits_by_key_are_in_the_plan() -> None:
    plan = load("everything")
    whole, step = plan.concurrency, plan.steps["gather"].limit
    assert whole is not None and step is not None
    assert (whole.key.source, whole.concurrency, whole.rate, whole.on_limit) == (
        "{{ workload.base }}",
        2,
        None,
        "reject",
    )
    assert (step.concurrency, step.rate, step.on_limit) == (5, Rate(0.5, 3), "queue")
    assert not plan.steps["gather"].admits_at_once
    task, other = plan.steps["gather"].tasks
    assert task.limit is not None and other.limit is None
    assert (task.limit.key.source, task.limit.concurrency) == ("page {{ page }} of {{ workload.base }}", None)
    assert (task.limit.rate, plan.steps["gather"].has_limited_tasks) == (Rate(20.0, 1), True)


def test_a_policy_with_a_limit_alone_does_not_change_what_follows_a_task() -> None:
    policy = "limit: { key: api, concurrency: 1 }"
    task = task_of(workflow(f"- step: start\n  tool: {{ kind: noop, spec: {{ policy: {{ {policy} }} }} }}"))
    assert task.policy is None and task.limit is not None and task.limit.key.source == "api"


def test_names_read_by_the_key_of_a_task_are_sent_with_the_command() -> None:
    policy = 'limit: { key: "{{ workload.a }}{{ ctx.b | default(0) }}{{ steps.start }}", concurrency: 1 }'
    root = "workload: { a: 1, c: 2 }\n"
    checked = check(
        workflow(f"- step: start\n  tool: {{ kind: noop, spec: {{ policy: {{ {policy} }} }} }}", root), KINDS
    )
    assert checked.plan is not None
    reads = checked.plan.steps["start"].reads
    assert (reads.workload, reads.ctx, reads.steps) == (frozenset("a"), frozenset("b"), frozenset(["start"]))


def test_neutral_placeholders_are_accepted() -> None:
    policy = "mode: exclusive, before: [], after: [], finally: [], tracing: {}, quotas: null"
    text = f"""
    - step: start
      spec: {{ policy: {{ {policy}, compensation: {{}}, emit: {{ events: [] }} }} }}
      tool:
        kind: noop
        spec: {{ policy: {{ {policy}, rules: [ {{ else: {{ then: {{ do: continue }} }} }} ] }} }}
      next: {{ spec: {{ policy: {{}} }}, arcs: [ {{ step: start, spec: {{}} }} ] }}
    """
    assert codes(workflow(text)) == []


def test_null_sections_read_as_absent() -> None:
    assert checked(playbook("executor:\nworkload:\nworkflow: [ { step: start, spec: , tool: { kind: noop } } ]")).ok


def test_a_playbook_is_pinned_by_the_digest_of_its_bytes() -> None:
    text = workflow("- step: start\n  tool: { kind: noop }  # ü")
    assert plan_of(text).digest == digest_of(text)
    assert check(text.encode(), KINDS).plan.digest == digest_of(text)  # type: ignore[union-attr]
    assert digest_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_constants_are_checked_and_templates_are_not() -> None:
    assert codes(pipeline("- { kind: range, low: one, high: 2 }")) == ["invalid_value"]
    assert codes(pipeline('- { kind: range, low: "{{ workload.low }}", high: 2 }')) == []
    assert codes(pipeline('- { kind: http, url: a, headers: { x: "{{ workload.x }}" } }')) == []


def test_a_rule_across_inputs_applies_when_all_are_known() -> None:
    assert found(pipeline("- { kind: range, low: 3, high: 2 }"), "invalid_value")[0].message == (
        "`low` must not be above `high`"
    )
    assert codes(pipeline('- { kind: range, low: 3, high: "{{ workload.high }}" }')) == []


def test_a_kind_with_free_inputs_takes_any_but_the_words_of_the_language() -> None:
    assert codes(pipeline("- { kind: free, anything: 1 }")) == []
    assert codes(pipeline("- { kind: free, when: true }")) == ["legacy_syntax"]


def test_a_workload_over_its_limit_is_refused_by_the_name_of_the_limit() -> None:
    text = playbook(
        f"""
        executor: {{ spec: {{ policy: {{ limits: {{ max_workload_bytes: 20 }} }} }} }}
        workload: {{ text: {"x" * 40} }}
        workflow: [ {{ step: start, tool: {{ kind: noop }} }} ]
        """
    )
    [problem] = found(text, "limit_exceeded")
    assert "limits.max_workload_bytes" in problem.message


def test_a_playbook_lowers_the_limits_of_the_operator_and_raises_none() -> None:
    operator = Limits(max_step_runs=500, max_in_flight=5_000)

    def checked_with(limits: str) -> CheckResult:
        policy = f"executor: {{ spec: {{ policy: {{ limits: {limits} }} }} }}\n"
        return check(workflow("- step: start\n  tool: { kind: noop }", policy), KINDS, limits=operator)

    lowered = checked_with("{ max_in_flight: 2000, inline_delay_s: 1 }").plan
    assert lowered is not None
    assert (lowered.limits.max_step_runs, lowered.limits.max_in_flight) == (500, 2000)
    assert lowered.limits.inline_delay_s == 1.0
    [problem] = checked_with("{ max_step_runs: 501 }").diagnostics
    assert problem.message == "a playbook may only lower a limit: `max_step_runs` is 500"


def test_templates_are_bound_by_the_limits_of_their_playbook() -> None:
    policy = "executor: { spec: { policy: { limits: { max_template_chars: 20 } } } }\n"
    text = pipeline('- { kind: noop, args: { a: "{{ workload.a }} and more" } }', policy)
    [problem] = checked(text).diagnostics
    assert problem.code == "template_too_long" and "the limit is 20 (limits.max_template_chars)" in problem.message


@pytest.mark.parametrize(
    ("wait", "plan"),
    [
        ("null", None),
        ("{ timeout_s: 0.5 }", WaitPlan(0.5)),
        ("{ timeout_s: 3600, on_timeout: discard }", WaitPlan(3600.0, "discard")),
    ],
)
def test_a_held_token_and_a_resting_branch_wait_as_long_as_their_place_says(wait: str, plan: WaitPlan | None) -> None:
    rules = 'rules: [ { when: "{{ ctx.go }}", then: { allow: true } } ]'
    admit = f"spec: {{ policy: {{ admit: {{ {rules}, wait: {wait} }} }} }}"
    router = f'next: {{ spec: {{ wait: {wait} }}, arcs: [ {{ step: start, when: "{{{{ ctx.go }}}}" }} ] }}'
    step = start_of(workflow(f"- step: start\n  {admit}\n  {router}"))
    assert step.admit is not None and (step.admit.wait, step.next_wait) == (plan, plan)


def test_an_arc_of_a_next_that_waits_may_ask_for_the_timeout() -> None:
    arc = """{ step: start, when: "{{ event.name == 'next.timed_out' }}" }"""
    assert checked(workflow(f"- step: start\n  next: {{ spec: {{ wait: {{ timeout_s: 1 }} }}, arcs: [ {arc} ] }}")).ok
    assert found(workflow(f"- step: start\n  next: {{ arcs: [ {arc} ] }}"), "impossible_comparison")


@pytest.mark.parametrize(
    ("executor", "step", "mode"),
    [
        ("best_effort", "", "best_effort"),
        ("best_effort", "fail_fast", "fail_fast"),
        ("fail_fast", "best_effort", "best_effort"),
    ],
)
def test_a_step_without_a_loop_has_its_own_failure_mode_else_the_executors(executor: str, step: str, mode: str) -> None:
    own = f"spec: {{ policy: {{ failure: {{ mode: {step} }} }} }}, " if step else ""
    root = f"executor: {{ spec: {{ policy: {{ failure: {{ mode: {executor} }} }} }} }}\n"
    plain, looping = f"{own}tool: {{ kind: noop }}", f"{own}loop: {{ in: [], iterator: x }}, tool: {{ kind: noop }}"
    assert start_of(workflow(f"- {{ step: start, {plain} }}", root)).failure_mode == mode
    assert start_of(workflow(f"- {{ step: start, {looping} }}", root)).failure_mode == executor


def test_more_in_flight_than_the_limit_is_refused_by_name() -> None:
    def text_with(number: int) -> str:
        spec = f"{{ mode: parallel, max_in_flight: {number} }}"
        return workflow(f"- step: start\n  loop: {{ in: [1], iterator: x, spec: {spec} }}\n  tool: {{ kind: noop }}")

    assert checked(text_with(1000)).ok
    [problem] = found(text_with(1001), "limit_exceeded")
    assert "limits.max_in_flight" in problem.message
